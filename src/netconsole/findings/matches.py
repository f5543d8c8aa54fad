"""What stands out in one interval: every row, histogram or state that a rule speaks of, before causes are joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from netconsole.base import figure
from netconsole.findings.match import Evidence, Match, Say
from netconsole.findings.of_rules import of_histograms, of_table
from netconsole.findings.rules import supersedes
from netconsole.findings.share import Packets
from netconsole.findings.windows import Windows, interval_s
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.profile.spending import Limit, Spending, spendings
from netconsole.telemetry.frames import Label
from netconsole.telemetry.ledger import LEDGER_FAULTS
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import row_key

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


Judge: TypeAlias = Callable[[State, Mapping[str, Label]], tuple[str, str]]
"""Of the state and the labels of a row: a word, and what that means, in a sentence that fits beside it."""


def full_ring(state: State, labels: Mapping[str, Label]) -> tuple[str, str]:
    """Why the ring of a tap's queue is full: who does not take packets, and what it waits for."""
    queue = state.row("vhost_queues", "queues", row_key({**labels, "direction": "rx"}))
    gauges = queue.gauges if queue is not None else {}
    moves = queue is not None and queue.per_s("packets")
    if not moves and (why := _why_not_run(state, labels.get("vm"))):
        return why
    if gauges.get("detached"):
        return (
            "stuck: detached",
            "the ring is full; QEMU took the queue from vhost: the VM is paused, or its driver was reset",
        )
    if queue is None or moves:
        return "ring full", "the guest takes packets, but fewer than arrive"
    if not gauges.get("starving"):
        return "stuck: worker", "the ring is full and the vhost worker does not run, although the guest has buffers"
    if gauges.get("unsignalled_buffers") and not gauges.get("unanswered"):
        return (
            "stuck: no poll",
            "the ring is full; the guest wants no interrupt and takes nothing: it hangs, or does not poll",
        )
    return "stuck: guest", "the ring is full; the guest got an interrupt and did not react: it hangs, or lost it"


def lost_upcalls(state: State, labels: Mapping[str, Label]) -> tuple[str, str]:
    """By which error most upcalls of a port are lost."""
    table = state.table("ovs_upcalls", "failures")
    rows = [row for row in table.moving() if labels.items() <= row.labels.items()] if table is not None else []
    most = max(rows, key=lambda row: row.per_s("count") or 0.0, default=None)
    if most is None:
        return "loses upcalls", "upcalls do not reach ovs-vswitchd and are lost"
    return f"lost: {figure.safe(most.labels.get('error'), 32)}", ""


JUDGES: Mapping[str, Judge] = MappingProxyType({"vhost-queue": full_ring, "ovs-port": lost_upcalls})
"""By the name in manifests."""


def _why_not_run(state: State, vm: Label) -> tuple[str, str] | None:
    """Of a machine that does not run; None of one that does, and when nobody looks."""
    for row in state.rows("vm_states", "machines") if vm else ():
        if row.labels.get("vm") == vm and row.gauges.get("stopped"):
            return "stuck: VM stopped", "the ring is full; the VM's QEMU process gets no CPU (SIGSTOP, or a debugger)"
        if row.labels.get("vm") == vm and row.gauges.get("paused"):
            return (
                "stuck: VM paused",
                "the ring is full; QEMU runs none of the VM's virtual CPUs (virsh domstate --reason)",
            )
    return None


MAX_ALIKE = 50
"""Matches of one cause in one table that become incidents."""


def matches(
    state: State,
    manifests: Mapping[str, Manifest],
    windows: Windows,
    budget: Budget | None = None,
    connection: Connection | None = None,
) -> list[Match]:
    """Everything that stands out in this one interval."""
    if connection is not None and connection.phase == "lost":
        # What the probes last said is old: only the loss itself is known.
        return [collector_lost(connection)]
    found = [*of_costs(state, budget or Budget()), *of_failures(state, manifests), *of_governor(state, manifests)]
    packets = Packets(state)
    for probe in state.probes.values():
        manifest = manifests.get(probe.name)
        found.extend(of_status(probe, manifest))
        if manifest is None or not probe.measuring:
            continue
        of_probe: dict[Evidence, Match] = {}
        length_s = interval_s(state, probe.name)
        for rule in manifest.findings:
            of_rule = (
                of_histograms(probe, rule, windows)
                if rule.histogram
                else of_table(probe, manifest, rule, windows, packets, length_s)
            )
            judge = JUDGES.get(rule.judge)
            for match in sorted(of_rule, key=lambda match: -match.weight):
                if judge is not None:
                    match = replace(match, state=judge(state, match.labels))
                known = of_probe.get(match.evidence)
                if known is None or supersedes(match.level, known.level):
                    of_probe[match.evidence] = _with_families_of(known, match)
                    if known is not None and known.family is None and known.cause == match.cause:
                        found.append(known)  # a state that goes on when what is counted in it has stopped
        found.extend(of_probe.values())
    return found


def loudest(found: list[Match]) -> tuple[list[Match], list[Match]]:
    """The matches that become incidents, and the rest: of many in one table with one cause those that count least."""
    alike: dict[tuple[str, str, str], list[Match]] = defaultdict(list)
    for match in found:
        alike[match.evidence.probe, match.evidence.name, match.cause].append(match)
    quiet = {id(match) for group in alike.values() for match in sorted(group, key=lambda one: -one.weight)[MAX_ALIKE:]}
    return [one for one in found if id(one) not in quiet], [one for one in found if id(one) in quiet]


def _with_families_of(known: Match | None, match: Match) -> Match:
    """The match that says a row in place of a known one counts what that counted, too."""
    if known is None or known.family is None or match.family is None:
        return match
    if (known.cause, known.unit) != (match.cause, match.unit):
        return match
    return replace(match, also=tuple({*known.also, known.family} - {match.family}))


def looked_at(state: State, manifests: Mapping[str, Manifest]) -> str:
    """What was looked at when nothing stands out: `nothing stands out in 7 probes; not looked at here: ovs_flows …`."""
    measuring = [probe for probe in state.probes.values() if probe.measuring and probe.mode != "counters"]
    counting = [figure.safe(one.name) for one in state.probes.values() if one.measuring and one.mode == "counters"]
    waiting = [figure.safe(probe.name) for probe in state.probes.values() if not probe.settled]
    parts = []
    if measuring:
        parts.append(f"nothing stands out in {figure.things(len(measuring), 'probes')}")
    if counting:
        parts.append(f"{', '.join(counting)}: counters alone, at which no rule looks")
    if waiting:
        parts.append(f"still to come: {', '.join(waiting)}")
    for probe in state.probes.values():
        if probe.status == "degraded" and probe.why and not probe.attach:  # a source that leaves something out
            parts.append(f"{figure.safe(probe.name)}: {figure.safe(probe.why)}")
    silent = [figure.safe(one.name) for one in state.probes.values() if one.status in ("unsupported", "off")]
    if silent:
        parts.append(f"not looked at here: {', '.join(silent)} (pane Cost says why)")
    return "; ".join(parts) or "nothing is measured yet"
