"""One line for each host, and what stands out on any of them: functions of what is known of each host now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from netconsole.base import figure
from netconsole.findings.incident import Incident, told, urgency
from netconsole.findings.match import RANK, Level
from netconsole.profile.spending import memory_kb
from netconsole.run.cost_here import CostHere
from netconsole.run.rack import RackPhase
from netconsole.telemetry.words import COLLECTOR_LOST, ENDED, LINE_LOST, LIVE
from netconsole.tui.panes.cost import budget
from netconsole.tui.panes.overview import header, stands_out
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES, Tone
from netconsole.tui.widgets.painted import Line, Piece, cells, spread

DROPS_PROBE, DROPS = "kernel_drops", "drops"
"""Every packet that the host's stack drops is counted there once."""

HOSTS = (
    TableColumn("level", "", 2),
    TableColumn("host", "host", 14, grow=2, most=34),
    TableColumn("state", "line", 12),
    TableColumn("worst", "worst", 20, grow=8),
    TableColumn("drops", "drops/s", 7, right=True),
    TableColumn("cost", "cost", 6, right=True),
    TableColumn("memory", "memory", 6, right=True, spare=1),
    TableColumn("age", "age", 6, right=True),
)
INCIDENTS = (
    TableColumn("level", "", 2),
    TableColumn("host", "", 10, grow=2, most=24),
    TableColumn("say", "", 40, grow=6),
    TableColumn("since", "", 14, spare=1),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """The figures of a host that is measured."""

    incidents: Sequence[Incident]
    """The worst first; those that ended last."""
    settled: bool
    state: tuple[str, Tone]
    drops: tuple[str, float | None]
    cpu: tuple[str, float | None]
    tone: Tone
    """Of the cost, against the budget."""
    memory_kb: int | None
    age: tuple[str, float | None, Tone]


@dataclass(frozen=True, slots=True)
class RackLine:
    """What is known of one host. ``why``: why it is not measured."""

    name: str
    phase: RackPhase
    why: str = ""
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class RackIncident:
    """The key of an incident's row: the host, and the incident there."""

    host: str
    number: int
    subject: Subject


def standing(scene: Scene) -> Standing:
    """The figures of a host at this moment."""
    state = scene.state
    probe = state.probes.get(DROPS_PROBE)
    counter = probe.counters.get(DROPS) if probe is not None and probe.measuring else None
    count = counter.count if counter is not None else None
    drops = figure.number(count.per_s, bool(probe and probe.counters_lack_now)) if count is not None else figure.UNKNOWN
    cpu = budget.total_cpu(scene)
    stated = header.stated_age_s(scene)
    age: tuple[str, float | None, Tone] = (figure.UNKNOWN, None, "unknown")
    if stated is not None:
        age = (f"≤ {stated} s", float(stated), "look" if header.is_stale(scene, stated) else "")
    return Standing(
        incidents=tuple(scene.findings),
        settled=all(one.settled for one in state.probes.values()),
        state=_state(scene),
        drops=(drops, count.per_s if count is not None else None),
        cpu=(cpu, state.kernel_cpu_pct),
        tone=budget.TONES[budget.verdict(scene)],
        memory_kb=memory_kb(state),
        age=age,
    )


def host_rows(lines: Sequence[RackLine]) -> list[TableRow]:
    """One row for each host, in the order in which they were given."""
    return [TableRow(line.name, partial(_cells, line)) for line in lines]


def incident_rows(lines: Sequence[RackLine]) -> list[TableRow]:
    """What stands out on all hosts, the worst first."""
    found = [(one, line.name) for line in lines if line.standing for one in line.standing.incidents]
    return [_incident(one, host) for one, host in sorted(found, key=lambda pair: urgency(pair[0]))]


def title(lines: Sequence[RackLine]) -> str:
    """Of the table of hosts: how many there are, and how many are measured."""
    measured = sum(line.standing is not None for line in lines)
    return f"Hosts · {measured} of {len(lines)} measured"


def incidents_title(lines: Sequence[RackLine]) -> str:
    """Of the table of incidents."""
    now = sum(len(_now(line.standing)) for line in lines if line.standing)
    return f"STANDS OUT on all hosts · {now} now" if now else "STANDS OUT on all hosts"


def head(profile: str, elapsed_s: float, here: CostHere | None, width: int) -> Line:
    """The first line: what this is, and what it costs on this machine."""
    left: list[Piece] = [(" netconsole", "strong"), (f" · profile {figure.safe(profile, 24)}", "")]
    left.append((f" · {figure.elapsed(elapsed_s)}", ""))
    if here is None:
        return spread(left, [("cost here – ", "dim")], width)
    cpu = "–" if here.cpu_pct is None else f"{here.cpu_pct:.1f}"
    cost = f"{cpu} % of a core · {round(here.memory_kb / 1024)} MB"
    longer: Line = [("cost here ", "dim"), (f"{cost} · {here.processes} processes ", "")]
    shorter: Line = [("here ", "dim"), (f"{cost} ", "")]
    return spread(left, longer if cells(left) + cells(longer) < width else shorter, width)


def said_of(line: RackLine) -> Line:
    """One sentence about a host in full: why it is not measured, or its worst incident."""
    if line.standing is None:
        words: dict[RackPhase, tuple[str, Tone]] = {
            "connecting": ("connecting…", "look"),
            "asks": (f"{line.why}. Leave (q) and start again: it is asked for then", "act"),
            "refused": (f"{line.why}. It is tried again each minute; Enter: now", "act"),
            "measured": ("starting…", "look"),
        }
        text, tone = words[line.phase]
    else:
        text, tone = _worst(line.standing)
    return [(f" {figure.safe(line.name, 40)}: ", "strong"), (figure.safe(text, 400), tone)]


def _cells(line: RackLine) -> dict[str, Cell]:
    name = Cell(figure.safe(line.name, 80), line.name, "strong")
    there = line.standing
    if there is None:
        words: dict[RackPhase, tuple[str, Tone]] = {
            "connecting": ("connecting…", "look"),
            "asks": ("!! asks", "act"),
            "refused": ("!! refused", "act"),
            "measured": ("starting…", "look"),
        }
        state, tone = words[line.phase]
        unknown = {name: Cell(figure.UNKNOWN, None, "dim") for name in ("drops", "cost", "memory", "age")}
        return {"host": name, "state": Cell(state, state, tone), "worst": Cell(figure.safe(line.why, 200)), **unknown}
    worst, worst_tone = _worst(there)
    level = _level(there)
    memory = figure.UNKNOWN if there.memory_kb is None else f"{round(there.memory_kb / 1024)} MB"
    return {
        "level": Cell(level, float(RANK[level]) if level else None, LEVEL_TONES.get(level, "")),
        "host": name,
        "state": Cell(there.state[0], there.state[0], there.state[1]),
        "worst": Cell(worst, worst, worst_tone if worst_tone == "dim" else ""),
        "drops": Cell(*there.drops),
        "cost": Cell(there.cpu[0], there.cpu[1], there.tone if there.tone in ("look", "act") else ""),
        "memory": Cell(memory, there.memory_kb),
        "age": Cell(*there.age),
    }


def _worst(there: Standing) -> tuple[str, Tone]:
    if now := _now(there):
        return told(now[0]), LEVEL_TONES[now[0].level]
    if not there.settled:
        return "starting…", "look"
    return ("nothing stands out", "dim") if not there.incidents else ("nothing now; what was, below", "dim")


def _now(there: Standing) -> list[Incident]:
    """What goes on there, but for what is of netconsole itself."""
    return [one for one in there.incidents if one.ended_ns is None and not one.is_ours]


def _level(there: Standing) -> Level | Literal[""]:
    now = _now(there)
    return now[0].level if now else "ok" if there.settled else ""


def _state(scene: Scene) -> tuple[str, Tone]:
    connection = scene.connection
    if connection.phase == "lost":
        return (LINE_LOST if connection.line is not None else COLLECTOR_LOST), "act"
    if connection.phase == "starting":
        return "starting…", "look"
    if connection.phase == "ended":
        return ENDED, "look"
    line = connection.line
    away = "" if line is None or line.round_trip_s is None else f" {figure.duration(line.round_trip_s * 1e9)}"
    return f"{LIVE}{away}", "ok"


def _incident(one: Incident, host: str) -> TableRow:
    ended = one.ended_ns is not None
    text = stands_out.said(one)
    return TableRow(
        RackIncident(host, one.number, stands_out.subject_of(one)),
        {
            "level": Cell(one.level, one.level, LEVEL_TONES["off" if ended else one.level]),
            "host": Cell(figure.safe(host, 40), host, "dim" if ended else "strong"),
            "say": Cell(text, text, "dim" if ended else ""),
            "since": Cell(stands_out.since(one), float(one.since_ns), "dim"),
        },
        last=stands_out.place_of(one),
    )
