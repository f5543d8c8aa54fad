"""What a manifest says of its figures: which of them stand out, and which are losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from netconsole.base.checker import Checker
from netconsole.probes.causes import CAUSE_KINDS, Causes, CauseSpec
from netconsole.probes.manifest import JUDGES, DropPlaceSpec, FindingSpec, HistogramSpec, TableSpec
from netconsole.probes.sentences import alternatives, check_sentence, texts_by_name, word

LEVELS = ("!", "!!", "ok")
FINDING_WORDS = ("rate", "total", "value", "unit")
"""What the sentence of a finding may name besides labels."""
_ROWS = "rows"
"""Of how many rows it is said."""
_HALF = "half"
"""Above what value half of the samples of a histogram are."""
_WHY = "why"
"""The cause of a row in words, where its table has causes."""

_FINDING_KEYS = (
    "table", "histogram", "value", "percentile", "level", "over", "where", "say", "next", "cause", "place", "specific",
    "explains", "elsewhere", "at_once", "lasting", "share_pct", "share_of", "times_past", "commands", "joins",
    "state", "means", "judge", "urgent_over", "kinds", "say_several", "say_half",
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
    causes: Causes | None = None
    if is_histogram:
        name = item.text("histogram", None, tuple(histograms))
        if name in histograms:
            labels = histograms[name].labels
    else:
        name = item.text("table", None, tuple(tables))
        if name in tables:
            labels = tables[name].labels
            values = [column.name for column in tables[name].value]
            causes = tables[name].causes
    value = "" if is_histogram else item.text("value", None, tuple(values))
    percentile = item.number("percentile", 99.0, 0.0, 100.0) if is_histogram else None
    where = item.table("where")
    where.only(labels, "label")
    say = item.text("say")
    kinds = tuple(item.texts("kinds", (), CAUSE_KINDS))
    if kinds and causes is None:
        item.wrong("kinds", "expected in a finding of a table that names its causes")
    words = (*labels, *values, *FINDING_WORDS, *([_WHY] if kinds else []))
    check_sentence(item, "say", say, words)
    say_several = item.text("say_several", "")
    check_sentence(item, "say_several", say_several, (*words, _ROWS))
    say_half = item.text("say_half", "")
    if say_half and not is_histogram:
        item.wrong("say_half", "expected in a finding of a histogram")
    check_sentence(item, "say_half", say_half, (*words, _HALF))
    commands = item.texts("commands")
    for command in commands:
        check_sentence(item, "commands", command, labels)
    elsewhere = item.table("elsewhere")
    state = item.text("state", "")
    check_sentence(item, "state", state, labels)
    rule = FindingSpec(
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
        share_of=item.text("share_of", "", ("", *values)),
        commands=tuple(commands),
        joins=item.boolean("joins"),
        state=state,
        means=item.text("means", ""),
        judge=item.text("judge", "", ("", *JUDGES)),
        urgent_over=item.number("urgent_over", None, 0.0, 1e18),
        kinds=kinds,
        say_several=say_several,
        say_half=say_half,
    )
    known = causes.specs if causes is not None else ()
    return replace(rule, cases={one: _case(rule, one) for one in known if one.kind in kinds and _meet(rule, one)})


def _meet(rule: FindingSpec, one: CauseSpec) -> bool:
    """Whether a row can be both what the rule and what the cause speaks of."""
    return all(set(values).intersection(one.where.get(label, values)) for label, values in rule.where.items())


def _case(rule: FindingSpec, one: CauseSpec) -> FindingSpec:
    """The rule, as it is said of rows with this cause."""
    return replace(
        rule,
        cause=rule.cause.replace("{cause}", one.cause) or one.cause,
        place=rule.place or one.place,
        explains=(*rule.explains, *([one.cause] if rule.cause else []), *one.explains),  # a flood of it is it, too
        specific=max(rule.specific, one.specific),
        next=" ".join(filter(None, (rule.next, one.next))),
        commands=(*rule.commands, *one.commands),
        why=one.why,
    )


def drop_place(item: Checker, tables: Mapping[str, TableSpec]) -> DropPlaceSpec:
    """One of a manifest's `drop_places`; mistakes are noted in ``item``."""
    item.only(_DROP_PLACE_KEYS)
    name = item.text("table", None, tuple(tables))
    labels = tables[name].labels if name in tables else ()
    causes = tables[name].causes if name in tables else None
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
            check_sentence(item, key, text, (*labels, *([_WHY] if causes is not None else [])))
    known = causes.specs if causes is not None else ()
    return replace(spec, cases={one: _drop_place_case(spec, one) for one in known})


def _drop_place_case(spec: DropPlaceSpec, one: CauseSpec) -> DropPlaceSpec:
    """The place, as it is said of rows with this cause."""
    return replace(
        spec,
        stage=spec.stage or one.stage,
        say=spec.say.replace(f"{{{_WHY}}}", one.why),
        same_as=one.same_as or spec.same_as,
        case_of=spec,
    )
