"""What stands out in one interval: every row, histogram or state that a rule speaks of, before causes are joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from netconsole.base import figure
from netconsole.findings.judges import JUDGES
from netconsole.findings.match import Evidence, Match
from netconsole.findings.of_rules import of_histograms, of_table
from netconsole.findings.of_state import collector_lost, of_costs, of_failures, of_governor, of_status
from netconsole.findings.rules import supersedes
from netconsole.findings.share import Packets
from netconsole.findings.windows import Windows, interval_s
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from netconsole.telemetry.words import short_reason

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
    """What was looked at when nothing stands out: `nothing stands out in 7 probes; ovs_flows: no Open vSwitch here`."""
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
    silent: dict[str, list[str]] = {}
    for probe in state.probes.values():
        if probe.status in ("unsupported", "off"):
            silent.setdefault(short_reason(probe.why or probe.status), []).append(figure.safe(probe.name))
    parts += [f"{', '.join(names)}: {figure.safe(reason)}" for reason, names in silent.items()]
    return "; ".join(parts) or "nothing is measured yet"
