"""Where packets died, in reports: the ranked list, the balance, and the list then and now."""

from __future__ import annotations

from collections.abc import Iterator

from netconsole.base import figure
from netconsole.compare.document import Comparison
from netconsole.report.blocks import Heading, Note, ReportBlock, TextTable
from netconsole.snapshot.balance import SEEN_BY, balance_sums, is_filtered
from netconsole.snapshot.document import MEASURED, BalanceData, DropPlaceData, MirrorStageData, Snapshot

MAX_PLACES = 30
"""The JSON document has all."""
TITLE = "Where packets died"
MIRROR_TITLE = "Mirror: from NIC to worker"


def drop_places(snapshot: Snapshot) -> Iterator[ReportBlock]:
    """One line each place, what nobody wants first."""
    found = snapshot.drop_places
    if not found:
        return
    yield Heading(TITLE)
    rows = [
        [
            one.level,
            figure.count(one.total, _mark(one)),
            figure.number(one.per_s, _mark(one)),
            f"{one.stage} {one.where}".strip(),
            one.why,
            one.sender or figure.UNKNOWN,
        ]
        for one in found[:MAX_PLACES]
    ]
    head = ["", "packets", "per s", "place", "cause", "first sender"]
    yield TextTable(head, rows, frozenset({1, 2}), max(0, len(found) - MAX_PLACES))


def _mark(one: DropPlaceData) -> str:
    return figure.AT_LEAST if one.at_least else figure.ABOUT if one.scaled else ""


def mirror_ledger(snapshot: Snapshot) -> Iterator[ReportBlock]:
    """The verdict on a mirror, and a line for each stage."""
    if snapshot.mirror is None:
        return
    yield Heading(MIRROR_TITLE)
    said = snapshot.mirror.verdict
    yield Note(f"{said[:1].upper()}{said[1:]}.")
    rows = [
        [
            one.stage,
            _if_known(one.passed, _stage_mark(one)),
            figure.number(one.passed_per_s, _stage_mark(one)) if one.passed is not None else "",
            _if_known(one.lost, _stage_mark(one)),
            figure.number(one.lost_per_s, _stage_mark(one)) if one.lost_per_s is not None else "",
            one.where,
        ]
        for one in snapshot.mirror.stages
    ]
    yield TextTable(["stage", "packets", "per s", "lost", "lost per s", "where most"], rows, frozenset({1, 2, 3, 4}))


def _stage_mark(one: MirrorStageData) -> str:
    return figure.ABOUT if one.estimated else figure.AT_LEAST if one.at_least else ""


def _if_known(count: int | None, mark: str) -> str:
    return "" if count is None else figure.count(count, mark)


def mirror_then_and_now(comparison: Comparison) -> Iterator[ReportBlock]:
    """The ledger of a mirror in a comparison."""
    if not comparison.mirror:
        return
    yield Heading(MIRROR_TITLE)
    rows = [
        [
            one.stage,
            "lost" if one.is_loss else "passed",
            figure.number(one.baseline_per_s),
            figure.number(one.current_per_s),
            one.where,
        ]
        for one in comparison.mirror
    ]
    head = ["stage", "packets", "baseline per s", "current per s", "where most, now"]
    yield TextTable(head, rows, frozenset({2, 3}))


def losses_held_against(snapshot: Snapshot) -> Iterator[ReportBlock]:
    """The balance: what the kernel counts as lost, and how much of it probes saw."""
    rows = snapshot.balance or []
    if not rows:
        return
    sums = balance_sums(rows)
    yield Heading("Balance")
    if sums.lost:
        seen, lost = figure.percent(sums.seen_pct), figure.count(sums.lost)
        yield Note(f"Probes saw {seen} of the {lost} packets that the kernel itself counts as lost.")
    drops = snapshot.probes.get(SEEN_BY)
    if drops is not None and drops.status not in MEASURED:
        why = f" ({drops.why})" if drops.why else ""
        yield Note(f"{SEEN_BY} was not attached at the end{why}: what was lost without it is unexplained.")
    if sums.hidden:
        yield Note(
            f"The kernel counts {figure.count(sums.hidden)} more lost packets. The filter by {', '.join(sums.filters)} "
            "may hide them from kernel_drops: measure without the filter to see them."
        )
    if sums.unknown:
        yield Note(
            f"Whether kernel_drops saw {figure.count(sums.unknown)} more lost packets is not known: it has as many in "
            "no row, or saw as many just before the begin."
        )
    table = [
        [
            one.stage,
            " ".join(part for part in (one.device, f"netns {one.netns}" if one.netns else None) if part) or "host",
            figure.count(one.entered),
            figure.count(one.left),
            figure.count(one.dropped),
            f"{figure.count(one.unexplained)}{_why(one)}",
            figure.number(one.coverage_pct),
        ]
        for one in rows[:MAX_PLACES]
    ]
    head = ["stage", "place", "in", "out", "lost", "unexplained", "seen %"]
    yield TextTable(head, table, frozenset(range(2, 7)), max(0, len(rows) - MAX_PLACES))


def _why(row: BalanceData) -> str:
    return " (filter)" if is_filtered(row) else " (unknown)" if row.hidden_by else ""


def where_packets_died(comparison: Comparison) -> Iterator[ReportBlock]:
    """The places of a comparison, then and now."""
    found = comparison.drop_places or []
    if not found:
        return
    yield Heading(TITLE)
    rows = [
        [
            one.level,
            f"{one.stage} {one.where}".strip(),
            one.why,
            figure.number(one.baseline_per_s),
            figure.number(one.current_per_s),
        ]
        for one in found[:MAX_PLACES]
    ]
    head = ["", "place", "cause", "baseline per s", "current per s"]
    yield TextTable(head, rows, frozenset({3, 4}), max(0, len(found) - MAX_PLACES))
