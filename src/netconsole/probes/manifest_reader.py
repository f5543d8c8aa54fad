"""A probe's manifest as a document: every key checked, every mistake noted, and what it says as a :class:`Manifest`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from netconsole.base.checker import Checker, close, shown
from netconsole.probes.causes import read_causes
from netconsole.probes.finding_reader import drop_place, finding
from netconsole.probes.knobs import FILTERS, refusal, unit_of
from netconsole.probes.manifest import (
    DRAWN,
    LAST,
    MODES,
    PAGES,
    PANES,
    AttachSpec,
    ColumnSpec,
    CounterSpec,
    GovernedSpec,
    HistogramSpec,
    LimitSpec,
    Manifest,
    PlaceSpec,
    ProgramSpec,
    RecordSpec,
    TableSpec,
)
from netconsole.probes.meaning import MEANINGS, Meaning, meaning
from netconsole.probes.polarity import POLARITIES, FigureKind, Polarity, polarity
from netconsole.probes.sentences import check_sentence, texts_by_name, word
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.ledger import LEDGER
from netconsole_collector.probe.config import MAX_OWN, ROWS_ONE_IN, own_names
from netconsole_collector.sources.known import KNOWN

COSTS = ("per packet", "per drop", "per softirq", "per event", "per interval")
SOURCES = ("bpf", *KNOWN, "ovs", "self")
TYPES = r"u8|u16|u32|u64|s32|s64|addr|char\[[0-9]{1,4}\]|pad\[[0-9]{1,4}\]"
SHOWN_AS = (
    "symbol", "drop_reason", "text", "netns", "l4", "ethertype", "address", "port", "cpu", "softirq",
    "process", "socket", "mac", "packet", "time", "duration", "stack", "hex", "xmit", "errno", "hook", "tap", "vm",
    "tracked", "tcp_tracked", "tc_class", "carrier", "prefix",
)  # fmt: skip
POINTS = ("raw_tracepoint", "tracepoint", "entry", "return", "fentry", "fexit", "kprobe", "kretprobe", "xdp")
MAX_CHECKS = 8  # NC_CHECKS of probes/common/checks.h
COMMON_KNOBS = (*FILTERS, "events_per_s", "threshold_us", "flows_one_in", ROWS_ONE_IN)
MAX_PATTERN = 128

_WORDS = ("name", "version", "title", "summary", "cannot_see")
_SECTIONS = (
    "probe", "limits", "knobs", "programs", "checks", "counters", "tables", "histograms", "records", "events",
    "findings", "drop_places", "panes", "governed_by", "losses",
)  # fmt: skip
_TABLE_KEYS = (
    "map", "near", "ways", "title", "max_rows", "counter", "key", "value", "sort", "modes", "columns", "page", "words",
    "causes", "example", "least", "most", "beyond", "sums", "commands",
)  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_NAME_FORM = "expected a name of lower-case letters, digits and _, beginning with a letter"
_MODULE = re.compile(r"\w{1,55}", re.ASCII)
_KERNEL = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}")
_FACT = re.compile(r"(?:HAVE|NARGS)_\w{1,120}", re.ASCII)


def manifest_of(root: Checker, directory: Path, document: Mapping[str, object]) -> Manifest:
    """What the document of a probe in this directory says. Mistakes are noted in ``root``: with any it is none."""
    root.only(_SECTIONS, "section")
    probe = root.table("probe")
    probe.only((*_WORDS, "cost", "modes", "source", "module", "btf_modules", "topic"))
    name = probe.text("name")
    if name != directory.name:
        probe.wrong("name", f'expected "{directory.name}", the name of its directory')
    source = probe.text("source", "bpf", SOURCES)
    btf_modules = tuple(probe.texts("btf_modules"))
    module = probe.text("module", "")
    if module and _MODULE.fullmatch(module) is None:
        probe.wrong("module", f"expected the name of a kernel module, such as vhost_net, found {shown(module)}")
    counters = {key: _counter(key, item) for key, item in _named(root.table("counters"))}
    tables = {key: _table(key, item, counters, directory) for key, item in _named(root.table("tables"))}
    _check_sums(root, tables)
    histograms = {key: _histogram(key, item) for key, item in _named(root.table("histograms"))}
    programs = tuple(_program(item) for item in root.tables("programs"))
    if source == "bpf" and not programs and not root.has("programs"):
        root.wrong("programs", "missing: a probe with source bpf has at least one program")
    for item in root.tables("checks"):  # of the collector, which is given the raw document
        item.only(("slot", "says", "programs"))
        item.integer("slot", None, 0, MAX_CHECKS - 1)
        item.text("says")
        item.texts("programs", choices=[program.name for program in programs])
    _check_needs(root, [program.name for program in programs])
    knobs = _knobs(root.table("knobs"))
    if source == "bpf" and len(own := own_names(knobs)) > MAX_OWN:
        root.wrong("knobs", f"expected at most {MAX_OWN} of the probe's own, found {len(own)}: {', '.join(own)}")
    limits = tuple(_limit(item) for item in root.tables("limits"))
    modes = cast("list[Mode]", probe.texts("modes", ["summary"], MODES))
    if "summary" not in modes:
        probe.wrong("modes", 'expected a list that holds "summary"')
    return Manifest(
        name=name,
        version=probe.integer("version", None, 1, 1_000_000) or 1,
        title=probe.text("title"),
        summary=probe.text("summary"),
        cannot_see=" ".join(filter(None, [probe.text("cannot_see", ""), *map(_sentence, limits)])),
        limits=limits,
        cost=probe.text("cost", None, COSTS),
        modes=tuple(modes),
        source=source,
        module=module,
        knobs=knobs,
        programs=programs,
        counters=counters,
        tables=tables,
        histograms=histograms,
        records={key: _record(item, knobs) for key, item in _named(root.table("records"))},
        events={key: _event(item) for key, item in _named(root.table("events"))},
        findings=tuple(finding(item, tables, histograms) for item in root.tables("findings")),
        drop_places=tuple(drop_place(item, tables) for item in root.tables("drop_places")),
        topic=word(probe, "topic", name.replace("_", " ")),
        panes=_panes(root, name, tables, histograms),
        governed_by=tuple(_governed(item) for item in root.tables("governed_by")),
        losses=_losses(root.table("losses")),
        directory=directory,
        raw=document,
        btf_modules=btf_modules,
    )


def _named(section: Checker) -> Iterable[tuple[str, Checker]]:
    for name, item in section.each():
        if _NAME.fullmatch(name) is None:
            section.wrong(name, _NAME_FORM)
        yield name, item


def _check_needs(root: Checker, programs: Sequence[str]) -> None:
    """The programs and facts of a kernel that counters and values name. The collector asks, of the raw document."""
    tables = [table for _, table in root.table("tables").each()]
    for item in (
        *(one for _, one in root.table("counters").each()),
        *(one for t in tables for one in t.tables("value")),
    ):
        if needs := item.texts("needs"):
            item.texts("needs", choices=[*programs, *filter(_FACT.fullmatch, needs)])


def _knobs(section: Checker) -> dict[str, Scalar]:
    knobs: dict[str, Scalar] = {}
    for name, value in section.values.items():
        if _NAME.fullmatch(name) is None:
            section.wrong(name, _NAME_FORM)
        if value is not None and not isinstance(value, (str, int, float, bool)):
            section.wrong(name, "expected a text, a number, true or false: the default")
            continue
        if why := refusal(name, value, value):
            section.wrong(name, why)
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name not in COMMON_KNOBS and numeric and unit_of(name) is None:
            section.wrong(name, "expected a unit at the end of its name, such as _us, _packets or _pct")
        knobs[name] = value
    return knobs


def _limit(item: Checker) -> LimitSpec:
    item.only(("says", "before", "since"))
    if item.has("before") == item.has("since"):
        item.wrong("before", "expected either this or since: the kernel until which, or from which on, that is so")
    key = "before" if item.has("before") else "since"
    release = item.text(key, "")
    if isinstance(item.values.get(key), str) and _KERNEL.fullmatch(release) is None:
        item.wrong(key, f"expected a kernel's first two numbers, such as 6.7, found {shown(release)}")
    return LimitSpec(item.text("says"), release, key == "before")


def _sentence(limit: LimitSpec) -> str:
    return f"{limit.when[:1].upper()}{limit.when[1:]}: {limit.says}."


def _program(item: Checker) -> ProgramSpec:
    item.only(("name", "required", "module", "measures", "modes", "leads", "follows", "goes_on", "attach", "unless"))
    if item.has("module"):
        item.text("module")
    attach = []
    for one in item.tables("attach"):
        one.only(("point", "function", "takes", "when"))
        one.texts("takes")
        when = _fact(one, "when")
        point = one.text("point")
        kind = point.partition(":")[0]
        if point and (kind not in POINTS or not point.partition(":")[2]):
            one.wrong("point", f"expected KIND:NAME with KIND of {', '.join(POINTS)}")
        attach.append(AttachSpec(point, one.text("function"), when))
    if not attach:
        item.wrong("attach", "expected at least one alternative { point = …, function = … }")
    required, measures = item.boolean("required"), item.text("measures")
    return ProgramSpec(item.text("name"), required, measures, tuple(attach), _modes(item), _fact(item, "unless"))


def _fact(item: Checker, key: str) -> str:
    """What a kernel may have, by a name that can stand in C; "": nothing is said."""
    name = item.text(key) if item.has(key) else ""
    if name and _FACT.fullmatch(name) is None:
        item.wrong(key, f"expected HAVE_ and a name of the kernel, found {shown(name)}")
    return name


def _counter(name: str, item: Checker) -> CounterSpec:
    item.only(("slot", "unit", "help", "worse", "modes", "loss", "needs"))
    unit = item.text("unit")
    worse, slot = _worse(item, "count", name, unit), item.integer("slot", None, 0, 31)
    return CounterSpec(unit, item.text("help", ""), slot, worse, _modes(item), item.boolean("loss"))


def _modes(item: Checker) -> tuple[Mode, ...]:
    """The modes in which something runs or is counted: all where none is named."""
    return tuple(cast("list[Mode]", item.texts("modes", MODES, MODES)))


def _worse(item: Checker, kind: FigureKind, name: str, unit: str) -> Polarity:
    """As the manifest says, else as is usual for such figures."""
    said = cast("Polarity", item.text("worse", "none", POLARITIES))
    return said if item.has("worse") else polarity(kind, name, unit)


def _columns(item: Checker, name: str, table: str | None = None) -> tuple[ColumnSpec, ...]:
    """``table`` is the name of the table whose values these are; labels and records belong to none."""
    columns = []
    own = (
        ("worse", "needs", "part", "whole")
        if table
        else ("stands_for", "added", "least_of")
        if name == "key"
        else ("stands_for",)
    )
    words = _words(item, name)
    for one in item.tables(name):
        one.only(("name", "type", "as", "unit", "kind", "count", "head", "spare", *own))
        kind = one.text("type", "u64")
        if re.fullmatch(TYPES, kind) is None:
            one.wrong("type", f"expected u8 u16 u32 u64 s32 s64 addr char[N] or pad[N], found {kind!r}")
        is_padding = kind.startswith("pad[")
        shown_as = one.text("as", None, SHOWN_AS) if one.has("as") else None
        one.integer("count", 1, 1, 128)
        label = one.text("name", "" if is_padding else None)
        unit, adds_up = one.text("unit", ""), one.text("kind", "sum", ("sum", "max"))
        figure: FigureKind = "gauge" if adds_up == "max" else "count"
        worse = _worse(one, figure, f"{table} {label}", unit) if table else "none"
        stands_for = cast("Meaning", one.text("stands_for", meaning(label, shown_as), MEANINGS))
        spare = one.integer("spare", None, 0, 99)
        head = word(one, "head", "")
        said = words.get(label, {})
        added = one.text("added", "")
        ratio = one.text("part", ""), one.text("whole", "")
        columns.append(
            ColumnSpec(label, kind, shown_as, unit, adds_up, worse, stands_for, added, head, spare, said, *ratio)
        )
    return tuple(columns)


def _words(item: Checker, name: str) -> dict[str, dict[str, str]]:
    """What is shown in place of the values of labels, by label."""
    if name != "key":
        return {}
    section = item.table("words")
    labels = [str(one.values.get("name")) for one in Checker("", item.values, "", []).tables("key")]
    section.only(labels, "label")
    return {label: texts_by_name(said) for label, said in section.each()}


def _shown(item: Checker, known: Sequence[str]) -> tuple[str, ...]:
    """The columns that are shown, of those that there are."""
    columns = item.texts("columns", (), known)
    for twice in sorted({one for one in columns if columns.count(one) > 1}):
        item.wrong("columns", f'"{twice}" is there twice')
    return tuple(dict.fromkeys(columns))


def _table(name: str, item: Checker, counters: Mapping[str, CounterSpec], directory: Path) -> TableSpec:
    item.only(_TABLE_KEYS)
    item.integer("ways", 1, 1, 64)
    if item.has("near"):
        item.text("near")
    item.integer("most", 1024, 4, 10_000)
    for other in ("beyond", "sums"):
        if item.has(other):
            item.text(other)
    key, value = _columns(item, "key"), _without_padding(_columns(item, "value", name))
    names = [column.name for column in (*key, *value)]
    for twice in sorted({one for one in names if one and names.count(one) > 1}):
        item.wrong("key", f'"{twice}" is there twice')
    sort = item.text("sort", value[0].name if value else "")
    if sort not in names:
        item.wrong("sort", f"expected a column of the table{close(sort, [name for name in names if name])}")
    counter = item.text("counter") if item.has("counter") else None
    if counter is not None and counter not in counters:
        item.wrong("counter", f"unknown counter{close(counter, counters)}")
    rows = item.integer("max_rows", 1024, 1, 1_000_000) or 1024
    spec = TableSpec(item.text("title", ""), key, value, sort, counter, rows, _modes(item))
    columns = _shown(item, (*spec.labels, *(column.name for column in value if column.name)))
    if columns and sort and sort not in columns:
        item.wrong("columns", f'expected "{sort}" too, which the table is sorted by')
    page = item.text("page", "", PAGES) if item.has("page") else ""
    example, causes, least = _example(item), read_causes(item, directory), _least(item, value)
    commands = tuple(item.texts("commands"))
    for command in commands:
        check_sentence(item, "commands", command, spec.labels)
    return replace(spec, columns=columns, page=page, example=example, causes=causes, least=least, commands=commands)


def _check_sums(root: Checker, tables: Mapping[str, TableSpec]) -> None:
    """Tables of sums: of a table before them that is ranked, by labels of that."""
    ranked: list[str] = []
    for name, item in _named(root.table("tables")):
        if not item.has("sums"):
            ranked += [name] if item.has("most") else []
            continue
        of = item.text("sums")
        if of not in ranked:
            item.wrong("sums", f"expected a table before it that has most{close(of, ranked)}")
            continue
        labels = [column.name for column in tables[of].key if column.name]
        for column in item.tables("key"):
            own = column.text("name", "")
            parts = column.texts("least_of", [own], labels)
            if not column.has("least_of") and own not in labels:
                column.wrong("name", f"expected a label of {of}{close(own, labels)}")
            elif not parts:
                column.wrong("least_of", f"expected labels of {of}")
        counts = [value.name for value in tables[of].value if value.kind != "max"]
        for value in tables[name].value:
            if value.kind != "max" and value.name not in counts:
                item.wrong("value", f'"{value.name}" is no count of {of}{close(value.name, counts)}')


def _least(table: Checker, value: Sequence[ColumnSpec]) -> tuple[str, int]:
    """How much of a count there has to be before ratios say anything. Each ratio is of two counts."""
    counts = [column.name for column in value if column.kind != "max"]
    for column in value:
        if not column.part and not column.whole:
            continue
        if column.kind != "max":
            table.wrong("value", f'expected kind = "max" of "{column.name}", which is a ratio')
        for name in (column.part, column.whole):
            if name not in counts:
                table.wrong("value", f'"{column.name}" is of an unknown count{close(name, counts)}')
    item = table.table("least")
    item.only(counts, "count")
    found = [(name, item.integer(name, None, 1, 1_000_000_000) or 1) for name in item.values]
    if len(found) > 1:
        table.wrong("least", "expected one count")
    return found[0] if found else ("", 0)


def _without_padding(columns: Iterable[ColumnSpec]) -> tuple[ColumnSpec, ...]:
    return tuple(column for column in columns if not column.type.startswith("pad["))


def _example(table: Checker) -> tuple[ColumnSpec, ...]:
    """What is kept of the latest packet of a row."""
    if not table.has("example"):
        return ()
    item = table.table("example")
    item.only(("map", "record"))
    item.text("map")
    record = _without_padding(_columns(item, "record"))
    if not any(column.name == "mono_ns" and column.type == "u64" for column in record):
        item.wrong("record", 'expected { name = "mono_ns", type = "u64", as = "time" } too: when the packet came')
    if table.has("ways"):
        table.wrong("example", "expected no ways: the rows of an array have no key in the kernel")
    return record


def _histogram(name: str, item: Checker) -> HistogramSpec:
    item.only(("map", "title", "unit", "max_rows", "key", "worse", "columns", "words"))
    item.integer("max_rows", 8192, 1, 1_000_000)
    unit = item.text("unit")
    worse = _worse(item, "histogram", name, unit)
    spec = HistogramSpec(item.text("title", ""), unit, _columns(item, "key"), worse)
    return replace(spec, columns=_shown(item, spec.labels))


def _panes(
    root: Checker, probe: str, tables: Mapping[str, TableSpec], histograms: Mapping[str, HistogramSpec]
) -> tuple[PlaceSpec, ...]:
    """The places of a probe; where it says none, all of it is on the pane Host."""
    if not root.has("panes"):
        return (PlaceSpec("host", probe.replace("_", " ")),)
    whole = {("table", name) for name in tables} | {("histogram", name) for name in histograms}
    places, shown_in = [], {pane: set[tuple[str, str]]() for pane in ("", *PANES)}
    for item in root.tables("panes"):
        place = _place(item, probe, tables, histograms)
        shows = {(str(place.kind), place.name)} if place.kind else whole
        if shows & shown_in[place.pane]:
            item.wrong("pane", f"expected another pane: {place.pane} shows this already")
        shown_in[place.pane] |= shows
        places.append(place)
    return tuple(places)


def _place(
    item: Checker, probe: str, tables: Mapping[str, TableSpec], histograms: Mapping[str, HistogramSpec]
) -> PlaceSpec:
    """One place of a pane: of a table, of a histogram, of a block that a pane draws itself, or of all there is."""
    kinds: dict[Literal["table", "histogram", "drawn"], Sequence[str]] = {
        "table": tuple(tables),
        "histogram": tuple(histograms),
        "drawn": DRAWN,
    }
    item.only(("pane", "tab", "order", "row", "lines", "always", *kinds))
    pane = item.text("pane", None, PANES)
    named = [kind for kind in kinds if item.has(kind)]
    for kind in named[1:]:
        item.wrong(kind, f"expected alone: there is {named[0]} already")
    if not named and pane == "overview":
        item.wrong("table", "missing: the overview shows one table, or one histogram, of a probe")
    if item.has("always") and pane != "overview":
        item.wrong("always", "expected on the overview alone")
    row = item.integer("row", None, 1, 20)
    if row is None and pane == "overview":
        row = LAST
    return PlaceSpec(
        pane=pane,
        tab=word(item, "tab", probe.replace("_", " ")),
        kind=named[0] if named else "",
        name=item.text(named[0], None, kinds[named[0]]) if named else "",
        order=item.integer("order", LAST, 1, 1000) or LAST,
        row=row,
        lines=item.integer("lines", None, 2, 50),
        always=item.boolean("always"),
    )


def _governed(item: Checker) -> GovernedSpec:
    item.only(("facts", "figures"))
    facts, figures = item.texts("facts"), item.texts("figures")
    if item.values.get("facts", []) == []:
        item.wrong("facts", 'expected a list of fact keys, such as "sysctl/net.core.rmem_*"')
    for name, texts in (("facts", facts), ("figures", figures)):
        if any(not text or len(text) > MAX_PATTERN for text in texts):
            item.wrong(name, f"expected texts of 1 to {MAX_PATTERN} characters")
    return GovernedSpec(tuple(facts), tuple(text.lower() for text in figures))


def _losses(section: Checker) -> dict[str, str]:
    section.only(tuple(LEDGER), "entry of the ledger")
    return texts_by_name(section)


def _record(item: Checker, knobs: Mapping[str, Scalar]) -> RecordSpec:
    item.only(("map", "max_rows", "key", "value", "since", "keep"))
    key, value = _columns(item, "key"), _columns(item, "value")
    item.integer("max_rows", 1024, 1, 1_000_000)
    times = [column.name for column in value if column.type == "u64"]
    lengths = [name for name in knobs if name.endswith("_ms")]
    return RecordSpec(key, value, item.text("since", None, times), item.text("keep", None, lengths))


def _event(item: Checker) -> tuple[ColumnSpec, ...]:
    item.only(("map", "title", "record"))
    return _columns(item, "record")
