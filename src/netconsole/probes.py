"""Probe manifests (docs/probes.md): loaded, validated with all mistakes at once, and ready for collector and panes."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from netconsole import paths
from netconsole.frames import Mode, Scalar
from netconsole.knobs import FILTERS, refusal, unit_of
from netconsole.problems import BadInput, Checker, Problem, bad, close, read_bytes, read_toml, shown
from netconsole.sense import SENSES, FigureKind, Sense, sense

MANIFEST = "probe.toml"
CODE = "probe.bpf.c"
COMMON = "common"
"""The directory beside the probes that holds the shared headers; it is no probe."""
COMMON_HEADER = "netconsole.h"

COSTS = ("per packet", "per drop", "per softirq", "per event", "per interval")
MODES: tuple[Mode, ...] = ("counters", "summary", "details")
SOURCES = ("bpf", "links", "sockets", "softnet", "ovs", "self")
LEVELS = ("!", "!!")
TYPES = r"u8|u16|u32|u64|s32|s64|addr|char\[[0-9]{1,4}\]|pad\[[0-9]{1,4}\]"
SHOWN_AS = (
    "symbol", "drop_reason", "text", "netns", "l4", "ethertype", "address", "port", "cpu", "softirq",
    "process", "socket", "time", "duration", "stack", "hex", "xmit", "errno", "tap", "vm",
)  # fmt: skip
EXTRA_LABELS = {"drop_reason": ("class", "provenance"), "tap": ("vm",)}
"""Labels that the collector adds beside a label of this kind."""
POINTS = ("raw_tracepoint", "tracepoint", "fentry", "fexit", "kprobe", "kretprobe")
MAX_CHECKS = 8  # NC_CHECKS of probes/common/checks.h
COMMON_KNOBS = (*FILTERS, "events_per_s", "threshold_us", "flows_one_in")
FINDING_WORDS = ("rate", "total", "value", "unit")
"""What the sentence of a finding may name besides labels."""

_WORDS = ("name", "version", "title", "summary", "cannot_see")
_HEADER = re.compile(r"[a-z][a-z0-9_]{0,47}\.h")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_MODULE = re.compile(r"\w{1,55}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Column:
    """A label or a value of a table as the kernel keeps it. ``kind`` is `sum` or `max` (a gauge).

    ``worse`` is which way a value is worse; a label has no such way.
    """

    name: str
    type: str
    shown_as: str | None = None
    unit: str = ""
    kind: str = "sum"
    worse: Sense = "none"


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """An exact count of the probe."""

    unit: str
    help: str
    slot: int | None = None
    worse: Sense = "none"
    mode: Mode | None = None
    """The only mode in which it is counted; None: in all."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: its labels, its values, and the counter that its rows must add up to."""

    title: str
    key: tuple[Column, ...]
    value: tuple[Column, ...]
    sort: str
    counter: str | None = None
    max_rows: int = 0
    mode: Mode | None = None
    """The only mode in which it has rows; None: in all."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in order, with those that the collector adds."""
        return _label_names(self.key)


@dataclass(frozen=True, slots=True)
class HistogramSpec:
    """A log-linear histogram by labels."""

    title: str
    unit: str
    key: tuple[Column, ...]
    worse: Sense = "none"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in order, with those that the collector adds."""
        return _label_names(self.key)


@dataclass(frozen=True, slots=True)
class AttachSpec:
    """One alternative of a program: where it attaches, and its function in probe.bpf.c."""

    point: str
    function: str


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A program and its alternatives, best first."""

    name: str
    required: bool
    measures: str
    attach: tuple[AttachSpec, ...]
    mode: Mode | None = None
    """The only mode in which it is attached; None: in all."""


@dataclass(frozen=True, slots=True)
class FindingSpec:
    """A rule for STANDS OUT: a value of a table (or a percentile of a histogram) that is over a limit."""

    table: str
    value: str
    level: str
    over: float
    say: str
    next: str
    where: Mapping[str, str] = field(default_factory=dict)
    percentile: float | None = None
    histogram: bool = False


@dataclass(frozen=True, slots=True)
class Manifest:
    """A probe, as its probe.toml describes it. ``raw`` is the document as the collector takes it."""

    name: str
    version: int
    title: str
    summary: str
    cannot_see: str
    cost: str
    modes: tuple[Mode, ...]
    source: str
    module: str
    """The kernel module whose work it watches; where that is not loaded there is nothing to watch. Empty: none."""
    include: tuple[str, ...]
    knobs: Mapping[str, Scalar]
    programs: tuple[ProgramSpec, ...]
    counters: Mapping[str, CounterSpec]
    tables: Mapping[str, TableSpec]
    histograms: Mapping[str, HistogramSpec]
    events: Mapping[str, tuple[Column, ...]]
    findings: tuple[FindingSpec, ...]
    directory: Path
    raw: Mapping[str, object]

    def code(self) -> str:
        """The text of probe.bpf.c; empty for a probe that is not BPF. Raises BadInput."""
        if self.source != "bpf":
            return ""
        return _text(self.directory / CODE)

    def common_code(self) -> str:
        """The text of the common header and of those that the probe includes; empty without BPF. Raises BadInput."""
        if self.source != "bpf":
            return ""
        common = self.directory.parent / COMMON
        if not common.is_dir():
            common = paths.data("probes") / COMMON
        return "".join(_text(common / header) for header in (COMMON_HEADER, *self.include))


class Catalogue(dict[str, Manifest]):
    """Probes by name. One that is broken does not keep the others from running: it is refused when it is asked for."""

    def __init__(self, manifests: Mapping[str, Manifest], broken: Mapping[str, BadInput]) -> None:
        super().__init__(manifests)
        self.broken = dict(broken)

    def require_whole(self) -> None:
        """Raises BadInput with the mistakes of all broken probes, if there are any."""
        problems = [problem for error in self.broken.values() for problem in error.problems]
        if problems:
            raise BadInput(problems)


def load(directory: Path) -> Manifest:
    """The manifest in a probe's directory. Raises BadInput with all its mistakes."""
    path = directory / MANIFEST
    document = read_toml(path)
    checker = Checker(str(path), document)
    manifest = _manifest(checker, directory, document)
    if manifest.source == "bpf" and not (directory / CODE).is_file():
        checker.problems.append(
            Problem(str(directory / CODE), "", "missing: a probe with source bpf has its code here")
        )
    if checker.problems:
        raise BadInput(checker.problems)
    return manifest


def load_all(directories: Sequence[Path] | None = None) -> Catalogue:
    """All probes by name, in the order of their names. Raises BadInput when there is none at all."""
    found: dict[str, Manifest] = {}
    broken: dict[str, BadInput] = {}
    for directory in paths.probe_directories() if directories is None else directories:
        for path in _probe_directories(directory):
            if path.name in found or path.name in broken:
                continue
            try:
                found[path.name] = load(path)
            except BadInput as error:
                broken[path.name] = error
    if not found and not broken:
        raise bad(paths.data("probes"), "", "no probes here: the installation is not whole")
    return Catalogue(dict(sorted(found.items())), broken)


def pick(manifests: Mapping[str, Manifest], name: str, where: str = "--probe") -> Manifest:
    """A probe by name. Raises BadInput that says what is wrong with it, or names what is close."""
    if name in manifests:
        return manifests[name]
    if isinstance(manifests, Catalogue) and name in manifests.broken:
        raise manifests.broken[name]
    raise bad(where, name, f"unknown probe{close(name, manifests)}")


def _probe_directories(directory: Path) -> Iterable[Path]:
    try:
        entries = sorted(directory.iterdir())
    except OSError:
        return []
    return [entry for entry in entries if entry.name != COMMON and (entry / MANIFEST).is_file()]


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise bad(path, "", "not UTF-8 text") from None


def _manifest(root: Checker, directory: Path, document: Mapping[str, object]) -> Manifest:
    root.only(
        ("probe", "knobs", "programs", "checks", "counters", "tables", "histograms", "events", "findings"), "section"
    )
    probe = root.table("probe")
    probe.only((*_WORDS, "cost", "modes", "source", "module", "btf_modules", "include"))
    name = probe.text("name")
    if name != directory.name:
        probe.wrong("name", f'expected "{directory.name}", the name of its directory')
    source = probe.text("source", "bpf", SOURCES)
    probe.texts("btf_modules")
    module = probe.text("module", "")
    if module and _MODULE.fullmatch(module) is None:
        probe.wrong("module", f"expected the name of a kernel module, such as vhost_net, found {shown(module)}")
    include = probe.texts("include")
    for header in include:
        if _HEADER.fullmatch(header) is None:
            probe.wrong("include", f"expected names of headers in {COMMON}, such as path.h, found {shown(header)}")
    counters = {key: _counter(key, item) for key, item in _named(root.table("counters"))}
    tables = {key: _table(key, item, counters) for key, item in _named(root.table("tables"))}
    histograms = {key: _histogram(key, item) for key, item in _named(root.table("histograms"))}
    programs = tuple(_program(item) for item in root.tables("programs"))
    if source == "bpf" and not programs and not root.has("programs"):
        root.wrong("programs", "missing: a probe with source bpf has at least one program")
    for item in root.tables("checks"):  # of the collector, which is given the raw document
        item.only(("slot", "says", "programs"))
        item.integer("slot", None, 0, MAX_CHECKS - 1)
        item.text("says")
        item.texts("programs", choices=[program.name for program in programs])
    modes = cast("list[Mode]", probe.texts("modes", ["summary"], MODES))
    if "summary" not in modes:
        probe.wrong("modes", 'expected a list that holds "summary"')
    return Manifest(
        name=name,
        version=probe.integer("version", None, 1, 1_000_000) or 1,
        title=probe.text("title"),
        summary=probe.text("summary"),
        cannot_see=probe.text("cannot_see", ""),
        cost=probe.text("cost", None, COSTS),
        modes=tuple(modes),
        source=source,
        module=module,
        include=tuple(include),
        knobs=_knobs(root.table("knobs")),
        programs=programs,
        counters=counters,
        tables=tables,
        histograms=histograms,
        events={key: _event(item) for key, item in _named(root.table("events"))},
        findings=tuple(_finding(item, tables, histograms) for item in root.tables("findings")),
        directory=directory,
        raw=document,
    )


def _label_names(key: Iterable[Column]) -> tuple[str, ...]:
    names: list[str] = []
    for column in key:
        if column.type.startswith("pad["):
            continue
        names.append(column.name)
        names.extend(EXTRA_LABELS.get(column.shown_as or "", ()))
    return tuple(names)


def _named(section: Checker) -> Iterable[tuple[str, Checker]]:
    for name, item in section.each():
        if _NAME.fullmatch(name) is None:
            section.wrong(name, "expected a name of lower-case letters, digits and _, beginning with a letter")
        yield name, item


def _knobs(section: Checker) -> dict[str, Scalar]:
    knobs: dict[str, Scalar] = {}
    for name, value in section.values.items():
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


def _program(item: Checker) -> ProgramSpec:
    item.only(("name", "required", "module", "measures", "mode", "leads", "follows", "attach"))
    if item.has("module"):
        item.text("module")
    attach = []
    for one in item.tables("attach"):
        one.only(("point", "function", "takes", "when"))
        one.texts("takes")
        if one.has("when"):
            one.text("when")
        point = one.text("point")
        kind = point.partition(":")[0]
        if point and (kind not in POINTS or not point.partition(":")[2]):
            one.wrong("point", f"expected KIND:NAME with KIND of {', '.join(POINTS)}")
        attach.append(AttachSpec(point, one.text("function")))
    if not attach:
        item.wrong("attach", "expected at least one alternative { point = …, function = … }")
    required, measures = item.boolean("required"), item.text("measures")
    return ProgramSpec(item.text("name"), required, measures, tuple(attach), _only_mode(item))


def _counter(name: str, item: Checker) -> CounterSpec:
    item.only(("slot", "unit", "help", "worse", "mode"))
    unit = item.text("unit")
    worse = _worse(item, "count", name, unit)
    return CounterSpec(unit, item.text("help", ""), item.integer("slot", None, 0, 31), worse, _only_mode(item))


def _only_mode(item: Checker) -> Mode | None:
    """The only mode in which something runs or is counted; None where none is named."""
    return cast("Mode", item.text("mode", None, MODES)) if item.has("mode") else None


def _worse(item: Checker, kind: FigureKind, name: str, unit: str) -> Sense:
    """As the manifest says, else as is usual for such figures."""
    said = cast("Sense", item.text("worse", "none", SENSES))
    return said if item.has("worse") else sense(kind, name, unit)


def _columns(item: Checker, name: str, table: str | None = None) -> tuple[Column, ...]:
    """``table`` is the name of the table whose values these are; labels and records belong to none."""
    columns = []
    for one in item.tables(name):
        one.only(("name", "type", "as", "unit", "kind", "count", *(["worse"] if table else [])))
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
        column = Column(label, kind, shown_as, unit, adds_up, worse)
        columns.append(column)
    return tuple(columns)


def _table(name: str, item: Checker, counters: Mapping[str, CounterSpec]) -> TableSpec:
    item.only(("map", "title", "max_rows", "counter", "key", "value", "sort", "mode"))
    key, value = _columns(item, "key"), _columns(item, "value", name)
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
    return TableSpec(item.text("title", ""), key, value, sort, counter, rows, _only_mode(item))


def _histogram(name: str, item: Checker) -> HistogramSpec:
    item.only(("map", "title", "unit", "max_rows", "key", "worse"))
    item.integer("max_rows", 8192, 1, 1_000_000)
    unit = item.text("unit")
    worse = _worse(item, "histogram", name, unit)
    return HistogramSpec(item.text("title", ""), unit, _columns(item, "key"), worse)


def _event(item: Checker) -> tuple[Column, ...]:
    item.only(("map", "title", "record"))
    return _columns(item, "record")


def _finding(item: Checker, tables: Mapping[str, TableSpec], histograms: Mapping[str, HistogramSpec]) -> FindingSpec:
    item.only(("table", "histogram", "value", "percentile", "level", "over", "where", "say", "next"))
    is_histogram = item.has("histogram")
    labels: Sequence[str] = ()
    values: Sequence[str] = ()
    if is_histogram:
        name = item.text("histogram", None, tuple(histograms))
        if name in histograms:
            labels = histograms[name].labels
    else:
        name = item.text("table", None, tuple(tables))
        if name in tables:
            labels = tables[name].labels
            values = [column.name for column in tables[name].value]
    value = "" if is_histogram else item.text("value", None, tuple(values))
    percentile = item.number("percentile", 99.0, 0.0, 100.0) if is_histogram else None
    where = item.table("where")
    where.only(labels, "label")
    say = item.text("say")
    _check_sentence(item, say, (*labels, *values, *FINDING_WORDS))
    return FindingSpec(
        table=name,
        value=value,
        level=item.text("level", "!", LEVELS),
        over=item.number("over", 0.0, 0.0, 1e18) or 0.0,
        say=say,
        next=item.text("next", ""),
        where={key: where.text(key) for key in where.values},
        percentile=percentile,
        histogram=is_histogram,
    )


def _check_sentence(item: Checker, say: str, known: Sequence[str]) -> None:
    try:
        parts = list(string.Formatter().parse(say))
    except ValueError as error:
        item.wrong("say", f"expected a sentence with {{label}} in braces: {error}")
        return
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if name not in known:
            item.wrong("say", f"{{{name}}} is no column{close(name, known)}")
        if form or conversion:
            item.wrong("say", f"{{{name}}} takes no format")
