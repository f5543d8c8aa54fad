"""The short form of a snapshot's report: what stands out, whether measuring kept its budget, what was not measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from netconsole.base import figure
from netconsole.findings.of_snapshot import standing_out
from netconsole.probes.manifest import Manifest
from netconsole.profile.spending import (
    LINKS_BYTES,
    LINKS_PACKETS,
    LINKS_PROBE,
    LINKS_TABLE,
    MIN_PACKETS_PER_S,
    PACKETS_PROBE,
    PACKETS_TABLE,
    PACKETS_VALUE,
    stand_for,
)
from netconsole.report.blocks import Note, ReportBlock, SummaryLine, SummaryLines
from netconsole.snapshot.document import MEASURED, Snapshot, number, seconds
from netconsole.telemetry.ledger import LEDGER_COUNTS, UNSEEN
from netconsole.telemetry.words import budget_word, short_reason

OVER = budget_word("over")
MAX_STANDING_OUT, MAX_COMPARED = 9, 3
"""Lines of the short form that say what stands out, and where a comparison is told as well."""
MAX_OVER, MAX_GAPS, MAX_NAMES = 3, 3, 8
_NOT_OF_A_SNAPSHOT = ("action", "record_mb_per_min")
"""Parts of a budget that a snapshot does not measure."""


def standing_out_lines(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> list[SummaryLine]:
    """The incidents, the worst first, and the probes whose counts are too low."""
    lines = [SummaryLine(one.level, one.text, one.next, one.commands) for one in standing_out(snapshot, manifests)]
    for name, probe in snapshot.probes.items():
        missed = {entry: n for entry, n in probe.ledger.items() if n and entry in LEDGER_COUNTS}
        if missed:
            what = ", ".join(map(_missed, missed, missed.values()))
            lines.append(SummaryLine("?", f"{name}: counts are a lower bound (≥): {what}"))
    measured = [name for name, probe in snapshot.probes.items() if probe.status in MEASURED]
    if not lines and measured:
        lines.append(SummaryLine("ok", f"nothing stands out in {len(measured)} probes: {', '.join(measured)}"))
    return lines or [SummaryLine("?", "no probe measured anything")]


def _missed(entry: str, n: int) -> str:
    return (
        f"not attached for {figure.duration(n, 'ms')}"
        if entry == UNSEEN
        else f"{figure.count(n)} {LEDGER_COUNTS[entry].partition(':')[0]}"
    )


def first(lines: Sequence[SummaryLine], most: int) -> Iterator[ReportBlock]:
    """So many of the lines, and how many there are besides."""
    yield SummaryLines(list(lines[:most]))
    if len(lines) > most:
        yield Note(f"{len(lines) - most} more lines are below.")


def kept(snapshot: Snapshot) -> list[SummaryLine]:
    """Whether measuring kept its budget, in a line; a line more for each figure that did not."""
    cost = snapshot.cost
    costs = [
        f"{figure.percent(number(cost.get('kernel_cpu_pct')))} of one core in the kernel",
        f"{figure.percent(sum_of(cost, 'cpu_pct'))} of one core and {figure.memory(sum_of(cost, 'pss_kb'))} "
        "in console and collector",
        f"{figure.rate(number(cost.get('events_per_s')), 'events')}",
    ]
    rows = list(budget_rows(snapshot))
    over = [row for row in rows if row[3] == OVER]
    word = "!" if over else "ok"
    told = "over the budget" if over else "within the budget" if rows else "the profile sets no budget"
    return [
        SummaryLine(word, f"{'; '.join(costs)}: {told}"),
        *(SummaryLine("!", f"{what}: {measured}, the budget is {limit}") for what, measured, limit, _ in over),
    ]


def gaps(snapshot: Snapshot) -> list[SummaryLine]:
    """What was not measured, each reason once."""
    by_why: dict[tuple[str, str], list[str]] = {}
    for name, probe in snapshot.probes.items():
        if probe.status != "attached":
            why = short_reason(probe.why or "no reason given")  # the table below has the rest
            by_why.setdefault((probe.status, why), []).append(name)
    lines = [
        SummaryLine("?", f"{', '.join(names[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''}: {status}: {why}")
        for (status, why), names in sorted(by_why.items(), key=lambda one: -len(one[1]))
    ]
    return lines or [SummaryLine("ok", "every probe of the profile measured")]


def budget_rows(snapshot: Snapshot) -> Iterator[list[str]]:
    """What, measured, budget and state, of every figure that has a budget."""
    cost = snapshot.cost
    user = sum_of(cost, "cpu_pct")
    memory = sum_of(cost, "pss_kb")
    measured = {
        "kernel_cpu_pct": ("time in the kernel, of one core", number(cost.get("kernel_cpu_pct")), "%"),
        "user_cpu_pct": ("console and collector, of one core", user, "%"),
        "memory_mb": ("memory of console and collector", None if memory is None else memory / 1024, "MB"),
        "events_per_s": ("events submitted per second", number(cost.get("events_per_s")), ""),
        "ns_per_packet": ("time in the kernel for each packet (from 10 000/s on)", _ns_per_packet(snapshot), "ns"),
    }
    for name, limit in snapshot.profile.budget.items():
        if name in _NOT_OF_A_SNAPSHOT or limit is None or isinstance(limit, str):
            continue
        what, value, unit = measured.get(name, (name, None, ""))
        state = "? not measured" if value is None else OVER if value > limit else "ok"
        yield [what, figure.quantity(value, unit), figure.quantity(number(limit), unit), state]


def _ns_per_packet(snapshot: Snapshot) -> float | None:
    """Kernel time for each packet that the kernel receives. None when there are too few packets, as in the console."""
    packets = _total(snapshot, PACKETS_PROBE, PACKETS_TABLE, PACKETS_VALUE)
    sizes = [_total(snapshot, LINKS_PROBE, LINKS_TABLE, name) for name in (LINKS_BYTES, LINKS_PACKETS)]
    per_s = packets * stand_for(*sizes) / (seconds(snapshot, PACKETS_PROBE) or 1.0)
    kernel_pct = number(snapshot.cost.get("kernel_cpu_pct"))
    return None if kernel_pct is None or per_s < MIN_PACKETS_PER_S else kernel_pct / 100 * 1e9 / per_s


def _total(snapshot: Snapshot, name: str, table: str, value: str) -> float:
    """The sum of all rows of a table."""
    probe = snapshot.probes.get(name)
    return sum(number(row.get(value)) or 0.0 for row in (probe.tables.get(table, ()) if probe else ()))


def sum_of(cost: Mapping[str, Any], name: str) -> float | None:
    """The sum over console and collector, of those that are known. None when neither is."""
    known = []
    for process in ("collector", "console"):
        with contextlib.suppress(AttributeError):
            known.append(number(cost.get(process, {}).get(name)))
    values = [value for value in known if value is not None]
    return sum(values) if values else None
