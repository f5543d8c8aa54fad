"""What a manifest says of its figures: which of them stand out, and which are losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netconsole.base.checker import Checker
from netconsole.probes.manifest import JUDGES, DropPlaceSpec, FindingSpec, HistogramSpec, TableSpec
from netconsole.probes.sentences import alternatives, check_sentence, texts_by_name, word

LEVELS = ("!", "!!", "ok")
FINDING_WORDS = ("rate", "total", "value", "unit")
"""What the sentence of a finding may name besides labels."""

_FINDING_KEYS = (
    "table", "histogram", "value", "percentile", "level", "over", "where", "say", "next", "cause", "place", "specific",
    "explains", "elsewhere", "at_once", "lasting", "share_pct", "share_of", "times_past", "commands", "joins",
    "state", "means", "judge",
)  # fmt: skip
_DROP_PLACE_KEYS = (
    "table", "value", "stage", "at", "say", "where", "by", "same_as", "elsewhere", "same_elsewhere", "aliases", "fine",
    "rest", "left_out",
)  # fmt: skip


def finding(item: Checker, tables: Mapping[str, TableSpec], histograms: Mapping[str, HistogramSpec]) -> FindingSpec:
    """One of a manifest's `findings`; mistakes are noted in ``item``."""
    item.only(_FINDING_KEYS)
    is_histogram = item.has("histogram")
    labels: Sequence[str] = ()
    values: Sequence[str] = ()
    gauges: Sequence[str] = ()
    if is_histogram:
        name = item.text("histogram", None, tuple(histograms))
        if name in histograms:
            labels = histograms[name].labels
    else:
        name = item.text("table", None, tuple(tables))
        if name in tables:
            labels = tables[name].labels
            values = [column.name for column in tables[name].value]
        gauges = [column.name for column in tables[name].value if column.kind == "max"] if name in tables else []
    value = "" if is_histogram else item.text("value", None, tuple(values))
    percentile = item.number("percentile", 99.0, 0.0, 100.0) if is_histogram else None
    where = item.table("where")
    where.only(labels, "label")
    say = item.text("say")
    check_sentence(item, "say", say, (*labels, *values, *FINDING_WORDS))
    commands = item.texts("commands")
    for command in commands:
        check_sentence(item, "commands", command, labels)
    elsewhere = item.table("elsewhere")
    state = item.text("state", "")
    check_sentence(item, "state", state, labels)
    return FindingSpec(
        table=name,
        value=value,
        level=item.text("level", "!", LEVELS),
        over=item.number("over", 0.0, 0.0, 1e18) or 0.0,
        say=say,
        next=item.text("next", ""),
        where={key: alternatives(where, key) for key in where.values},
        percentile=percentile or 99.0,
        histogram=is_histogram,
        cause=item.text("cause", ""),
        place=tuple(item.texts("place", (), labels)),
        specific=item.integer("specific", 0, 0, 9) or 0,
        explains=tuple(item.texts("explains")),
        elsewhere={key: elsewhere.text(key, None, tuple(labels)) for key in elsewhere.values},
        at_once=item.number("at_once", None, 0.0, 1e18),
        lasting=item.number("lasting", None, 0.0, 1e18),
        share_pct=item.number("share_pct", None, 0.0, 100.0, "%"),
        times_past=item.number("times_past", None, 1.0, 1e6),
        share_of=item.text("share_of", "", ("", *gauges)),
        commands=tuple(commands),
        joins=item.boolean("joins"),
        state=state,
        means=item.text("means", ""),
        judge=item.text("judge", "", ("", *JUDGES)),
    )


def drop_place(item: Checker, tables: Mapping[str, TableSpec]) -> DropPlaceSpec:
    """One of a manifest's `drop_places`; mistakes are noted in ``item``."""
    item.only(_DROP_PLACE_KEYS)
    name = item.text("table", None, tuple(tables))
    labels = tables[name].labels if name in tables else ()
    values = [column.name for column in tables[name].value if column.kind == "sum"] if name in tables else []
    where, by, aliases = item.table("where"), item.table("by"), item.table("aliases")
    where.only(labels, "label")
    spec = DropPlaceSpec(
        table=name,
        value=item.text("value", None, values),
        stage=word(item, "stage", ""),
        at=item.text("at", ""),
        say=item.text("say", "" if item.boolean("left_out") else None),
        where={key: alternatives(where, key) for key in where.values},
        by=texts_by_name(by),
        same_as=tuple(item.texts("same_as")),
        elsewhere=texts_by_name(item.table("elsewhere")),
        same_elsewhere=tuple(item.texts("same_elsewhere")),
        aliases={key: tuple(aliases.texts(key)) for key in aliases.values},
        fine=item.integer("fine", 0, 0, 9) or 0,
        rest=item.boolean("rest"),
        left_out=item.boolean("left_out"),
    )
    said = {"at": [spec.at], "say": [spec.say], "by": spec.by.values(), "same_as": spec.same_as}
    for key, texts in (*said.items(), ("elsewhere", spec.elsewhere.values()), ("same_elsewhere", spec.same_elsewhere)):
        for text in texts:
            check_sentence(item, key, text, labels)
    return spec
