"""How every probe, program and process of ours is doing, and what was done to keep the budget."""

from __future__ import annotations

from functools import partial

from netconsole.base import figure
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.telemetry.costs import ProgramCost
from netconsole.telemetry.ledger import UNSEEN
from netconsole.telemetry.state import ProbeState
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.panes.cost.budget import core_share
from netconsole.tui.scene.scene import Scene, Subject, reason, state_word
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow


def probes_block() -> Block:
    """Every probe: its state in a word, what it costs, what it missed, and why it cannot run."""
    columns = (
        TableColumn("probe", "probe", 16, grow=1, most=20),
        TableColumn("state", "state", 12),
        TableColumn("mode", "mode", 7, spare=4),
        TableColumn("kernel", "% core", 6, right=True),
        TableColumn("run", "ns/run", 6, right=True, spare=1),
        TableColumn("maps", "maps", 7, right=True, spare=6),
        TableColumn("events", "events", 7, right=True, spare=5),
        TableColumn("suppressed", "suppr.", 6, right=True, spare=7),
        TableColumn("lost", "lost", 5, right=True, spare=2),
        TableColumn("uncounted", "uncounted", 9, right=True, spare=2),
        TableColumn("why", "attached to; or why not, and what would help", 44, grow=4),
    )
    return Block("probes", lambda _: "Probes", columns, probe_rows, lambda _: "no probe in this profile")


def probe_rows(scene: Scene) -> list[TableRow]:
    """Probes that need attention first, then by what they cost in the kernel."""
    states = sorted(scene.state.probes.values(), key=lambda one: (_attention(one), -(one.kernel_cpu_pct or 0.0)))
    return [_probe_row(scene, one) for one in states]


def programs_block() -> Block:
    """Every BPF program and what its runs cost."""
    columns = (
        TableColumn("program", "program", 16, grow=2, most=28),
        TableColumn("attach", "attached to", 20, grow=3, most=40),
        TableColumn("kernel", "% core", 6, right=True),
        TableColumn("run", "ns/run", 6, right=True),
        TableColumn("runs", "runs/s", 7, right=True),
        TableColumn("missed", "missed", 7, right=True),
    )
    note = "no program has run yet"
    return Block("programs", lambda _: "Programs, in the kernel", columns, program_rows, lambda _: note)


def program_rows(scene: Scene) -> list[TableRow]:
    """The programs that run, the costliest first."""
    running = [(probe, program) for probe in scene.state.probes.values() for program in _running(scene, probe)]
    rows = []
    for probe, program in sorted(running, key=lambda pair: -(pair[1].cpu_pct or 0.0)):
        runs = program.runs_per_s
        name = f"{probe.name}/{program.name}"
        rows.append(
            TableRow(
                Subject(probe.name, "probe", program.name, ()),
                {
                    "program": Cell(figure.safe(name, 64), name),
                    "attach": Cell(figure.safe(program.attach, 64), program.attach),
                    "kernel": Cell(core_share(program.cpu_pct), program.cpu_pct),
                    "run": Cell(figure.number(program.ns_per_run), program.ns_per_run),
                    "runs": Cell(figure.number(runs), runs),
                    "missed": Cell(figure.number(program.missed), program.missed, "look" if program.missed else ""),
                },
            )
        )
    return rows


def _running(scene: Scene, probe: ProbeState) -> list[ProgramCost]:
    """The programs that are attached now. Of others we know only what they cost before."""
    if not probe.measuring:
        return []
    manifest = scene.manifests.get(probe.name.removesuffix(SUFFIX))
    idle = {one.name for one in manifest.programs if probe.mode not in one.modes} if manifest is not None else set()
    return [program for program in probe.cost.programs.values() if program.name not in idle]


def processes_block() -> Block:
    """Our own processes, and the machine they run on."""
    columns = (
        TableColumn("process", "process", 22, grow=1, most=28),
        TableColumn("cpu", "% core", 7, right=True),
        TableColumn("rss", "RSS", 9, right=True),
        TableColumn("pss", "PSS", 9, right=True, spare=2),
        TableColumn("history", "% core, last 60 s", 20, grow=1, most=40, spare=1),
        TableColumn("note", "", 10, grow=2, spare=3),
    )
    return Block("processes", lambda _: "Processes", columns, process_rows, lambda _: "not measured yet")


def process_rows(scene: Scene) -> list[TableRow]:
    """Collector, console and the whole machine."""
    state = scene.state
    output = scene.output
    notes = {
        "collector": f"restarted {state.collector.restarts} times" if state.collector.restarts else "",
        "console": f"{figure.rate(output.bytes_per_s, 'B')} to the terminal, {output.frames_skipped} drawings skipped",
    }
    rows = []
    for name, source in state.sources.items():
        history = partial(source.cpu_history, 40)
        rows.append(
            TableRow(
                Subject("", "probe", name, ()),
                {
                    "process": Cell(name, name),
                    "cpu": Cell(core_share(source.cpu_pct), source.cpu_pct),
                    "rss": Cell(figure.memory(source.rss_kb), source.rss_kb),
                    "pss": Cell(figure.memory(source.pss_kb), source.pss_kb),
                    "history": Cell("", history=history),
                    "note": Cell(notes[name], None, "dim"),
                },
            )
        )
    machine = state.machine_cpu_pct
    note = Cell("of all CPUs together", None, "dim")
    cells = {"process": Cell("whole machine", "whole"), "cpu": Cell(figure.number(machine), machine), "note": note}
    return [*rows, TableRow(Subject("", "probe", "machine", ()), cells)]


def actions_block() -> Block:
    """What the governor did to keep the budget, and what the user changed meanwhile."""
    columns = (
        TableColumn("at", "ago", 8, right=True),
        TableColumn("probe", "probe", 16, grow=1, most=20),
        TableColumn("action", "action", 20, grow=2, most=40),
        TableColumn("measured", "measured", 8, right=True),
        TableColumn("limit", "limit", 6, right=True),
        TableColumn("because", "because", 24, grow=3, spare=1),
    )
    note = "nothing was reduced so far; u pins a probe"
    return Block("actions", _actions_title, columns, action_rows, lambda _: note)


def _actions_title(scene: Scene) -> str:
    pinned = ", ".join(sorted(scene.pinned))
    return f"Actions, ours and yours; pinned: {pinned}" if pinned else "Actions, ours and yours"


def action_rows(scene: Scene) -> list[TableRow]:
    """Actions, the newest first."""
    now_s = (scene.state.collector.closed_mono_ns or 0) / 1e9
    return [
        TableRow(
            Subject(action.probe, "probe", f"action {number}", ()),
            {
                "at": Cell(figure.elapsed(max(0.0, now_s - action.at_s)), action.at_s),
                "probe": Cell(figure.safe(action.probe, 48), action.probe),
                "action": Cell(figure.safe(action.action, 96), action.action),
                "measured": Cell(figure.number(action.measured), action.measured),
                "limit": Cell(figure.number(action.limit), action.limit),
                "because": Cell(figure.safe(action.because, 200), action.because, "dim"),
            },
        )
        for number, action in reversed(list(enumerate(scene.actions)))
    ]


def _attention(state: ProbeState) -> int:
    order = ("failed", "unsupported", "degraded", "compiling", "attaching", "attached", "off")
    return order.index(state.status)


def _probe_row(scene: Scene, state: ProbeState) -> TableRow:
    word, tone = state_word(state)
    runs = state.cost.programs.values()
    counted = sum(program.run_count for program in runs)
    per_run = sum(program.run_time_ns for program in runs) / counted if counted else None
    events = state.cost.events
    submitted = events["submitted"].total if "submitted" in events else None
    suppressed = events["suppressed"].total if "suppressed" in events else None
    lost = events["lost"].total if "lost" in events else None
    uncounted = sum(count for entry, count in state.at_least().items() if entry != UNSEEN)
    why = reason(state) or ", ".join(figure.safe(point, 64) for point in state.attach)
    return TableRow(
        Subject(state.name, "probe", "", ()),
        {
            "probe": Cell(figure.safe(state.name, 48), state.name),
            "state": Cell(word, word, tone),
            "mode": Cell(state.mode, state.mode),
            "kernel": Cell(core_share(state.kernel_cpu_pct), state.kernel_cpu_pct),
            "run": Cell(figure.number(per_run), per_run),
            "maps": Cell(figure.memory(state.cost.maps_kb), state.cost.maps_kb),
            "events": Cell(figure.number(submitted), submitted),
            "suppressed": Cell(figure.number(suppressed), suppressed),
            "lost": Cell(figure.number(lost), lost, "look" if lost else ""),
            "uncounted": Cell(figure.number(uncounted), uncounted, "look" if uncounted else ""),
            "why": Cell(why, why, "" if state.status == "attached" else tone),
        },
    )
