"""What stands out of the measurement itself: probes that failed or changed, costs, what was missed, its loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netconsole.base import figure
from netconsole.findings.match import Evidence, Match, Say
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.profile.spending import Limit, Spending, spendings
from netconsole.telemetry.frames import Label
from netconsole.telemetry.ledger import LEDGER_FAULTS
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import ProbeState, State

OVER_BUDGET_AFTER = 10
"""Intervals in a row for what watching costs: starting up is dear, and over by then."""


def _fixed(sentence: str) -> Say:
    return lambda *_unused: sentence


def collector_lost(connection: Connection) -> Match:
    why = figure.safe(connection.why or "no reason known")
    wait = "" if connection.retry_in_s is None else f"; it starts again in {connection.retry_in_s:.0f} s"
    return Match(
        Evidence("collector", ""), "collector-lost", "!!", _fixed(f"the collector was lost: {why}{wait}"), 0.0,
        float("inf"),
        next="All figures are from before the loss. If it goes on, `netconsole doctor` says what is missing.",
    )  # fmt: skip


def of_failures(state: State, manifests: Mapping[str, Manifest]) -> Iterator[Match]:
    """Probes that failed. What several failed for, such as a host that does not answer, stands out once."""
    together: dict[str, list[ProbeState]] = {}
    for probe in state.probes.values():
        if probe.status == "failed":
            together.setdefault(figure.safe(probe.why or "no reason known"), []).append(probe)
    for why, probes in together.items():
        first = probes[0]
        what = _title(first, manifests.get(first.name)) if len(probes) == 1 else f"{len(probes)} probes"
        yield Match(
            Evidence("probe", first.name), "not-measured", "?", _fixed(f"{what}: not measured: {why}"), 0.0, 0.0,
            {"probe": first.name},
            next=figure.safe(first.help) if first.help else "`netconsole doctor` says more.",
        )  # fmt: skip


def of_governor(state: State, manifests: Mapping[str, Manifest]) -> Iterator[Match]:
    """What netconsole measures less than it was asked to, to keep its budget: one thing, however many probes it is."""
    # Nothing is missing in the kernel, and yet there is a reason.
    kept = [
        probe
        for probe in state.probes.values()
        if probe.name in manifests and probe.why and probe.status in ("attached", "off")
    ]
    titles = [_title(probe, manifests[probe.name]) for probe in kept]
    for probe in kept:
        why = f"{titles[0]}: {figure.safe(kept[0].why)}"
        what = why if len(kept) == 1 else f"{len(kept)} probes measure less, {', '.join(titles[1:])} and {why}"
        back = "It comes back by itself when the budget has room. Press u to get it back now, at any cost."
        yield Match(
            Evidence("probe", probe.name), "budget-kept", "!", _fixed(f"netconsole slowed itself: {what}"), 0.0, 0.0,
            next=figure.safe(probe.help) if probe.help else back,
        )  # fmt: skip


def of_status(probe: ProbeState, manifest: Manifest | None) -> Iterator[Match]:
    title = _title(probe, manifest)
    place: dict[str, Label] = {"probe": probe.name}
    evidence = Evidence("probe", probe.name)
    if manifest is None and probe.why and probe.measuring:
        yield Match(
            evidence, "escalated", "!", _fixed(f"{title} {figure.safe(probe.why)}"), 0.0, 0.0, place,
            next="Its samples are in the pane Events. It goes back to summary by itself and writes a snapshot.",
        )  # fmt: skip
    if not probe.measuring:
        return
    ledger = probe.cost.ledger
    moving = [name for name in LEDGER_FAULTS if name in ledger and ledger[name].delta]
    if moving:
        # Said since the start, as totals are: the sentence stays when the interval is over. A run that was missed may
        # have been of a packet that a filter keeps out, so by how much they are too low is not known.
        what = ", ".join(_missed(name, ledger[name].total) for name in moving)
        sentence = f"{title}: {what}, so its totals may be too low"
        weight = float(sum(ledger[name].delta for name in moving))
        yield Match(
            evidence, "lower-bound", "?", _fixed(sentence), 0.0, weight, place,
            next="The ledger of the probe says what was missed; docs/reference/frames.md explains it.",
        )  # fmt: skip


def _missed(entry: str, count: int) -> str:
    """So many of an entry of LEDGER_FAULTS."""
    if entry == "missed":
        return f"{figure.things(count, 'runs')} missed"
    return f"{figure.number(count)} {'found no room in a table' if entry == 'map_full' else 'in no row'}"


def _title(probe: ProbeState, manifest: Manifest | None) -> str:
    return manifest.title if manifest else figure.safe(probe.name)


def of_costs(state: State, budget: Budget) -> Iterator[Match]:
    for one in spendings(state, budget):
        if one.word == "over":
            unit, of = _COSTS[one.name]
            what = f"{figure.number(one.measured)}{unit} {of}{_dearest(state, one)}"
            sentence = f"netconsole uses {what}; its budget is {figure.number(one.limit)}{unit}"
            yield Match(
                Evidence("collector", ""), f"over-budget-{one.name}", "!", _fixed(sentence), 0.0, 0.0,
                next="Switch off or filter the most expensive probe (pane Cost), or take a smaller profile.",
                needed=OVER_BUDGET_AFTER,
            )  # fmt: skip


_COSTS: dict[Limit, tuple[str, str]] = {
    "kernel_cpu_pct": (" %", "of a core in the kernel"),
    "ns_per_packet": (" ns", "of kernel time per received packet"),
    "user_cpu_pct": (" %", "of a core in console and collector"),
    "memory_mb": (" MB", "in console and collector"),
    "events_per_s": (" events/s", "of its probes"),
}


def _dearest(state: State, one: Spending) -> str:
    if one.name not in ("kernel_cpu_pct", "ns_per_packet"):
        return ""
    dearest = max(state.probes.values(), key=lambda probe: probe.kernel_cpu_pct or 0.0)
    return f", most of it {figure.safe(dearest.name)} ({figure.percent(dearest.kernel_cpu_pct)})"
