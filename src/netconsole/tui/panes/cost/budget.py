"""What watching costs against the profile's budget: in a few words, in one line, and as a table of the Cost pane."""

from __future__ import annotations

from typing import cast

from netconsole.base import figure
from netconsole.profile.spending import (
    MIN_PACKETS_PER_S,
    PACKETS_PROBE,
    Limit,
    Spending,
    duty_pct,
    machine_before_pct,
    machine_change_pct,
    memory_kb,
    packets_per_s,
    spendings,
    user_cpu_pct,
    worst,
)
from netconsole.telemetry.ledger import LEDGER_COUNTS
from netconsole.telemetry.words import BUDGET_LEVELS, budget_word
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES, Tone
from netconsole.tui.widgets.painted import Piece

STARTING_INTERVALS = 5
"""Starting up is dear: it is not held against the budget."""

TONES: dict[str, Tone] = {word: LEVEL_TONES[level] for word, level in BUDGET_LEVELS.items()}
_TITLES: dict[Limit, str] = {
    "kernel_cpu_pct": "in kernel",
    "ns_per_packet": "per packet",
    "user_cpu_pct": "user",
    "memory_mb": "memory",
    "events_per_s": "events",
}
_FEW = figure.count(round(MIN_PACKETS_PER_S))
_UNITS: dict[Limit, str] = {
    "kernel_cpu_pct": " %",
    "ns_per_packet": " ns",
    "user_cpu_pct": " %",
    "memory_mb": " MB",
    "events_per_s": "/s",
}


def spent(scene: Scene) -> list[Spending]:
    """Each cost and its limit."""
    if "spent" not in scene.made:
        scene.made["spent"] = spendings(scene.state, scene.profile.budget)
    return cast(list[Spending], scene.made["spent"])


def verdict(scene: Scene) -> str:
    """ok, near or over the tightest limit of the budget; ``no budget`` without one, ``starting`` at first."""
    word = worst(spent(scene))
    if word == "no limit":
        return "no budget"
    return "starting" if _is_starting(scene) else word


def headline(scene: Scene) -> list[Piece]:
    """The total in words: ``cost 1.3 % of a core · 58 MB · ok``."""
    word = verdict(scene)
    return [
        ("cost ", "dim"),
        (f"{total_cpu(scene)} of a core · {_memory(scene)} · ", ""),
        (budget_word(word), TONES[word]),
    ]


def short_headline(scene: Scene) -> list[Piece]:
    """The same for narrow terminals: ``1.3 % 58 MB ok``."""
    word = verdict(scene)
    said = [] if word == "no budget" else [(f" {budget_word(word)}", TONES[word])]
    return [(f"{total_cpu(scene)} {_memory(scene)}", ""), *said]


def shortest_headline(scene: Scene) -> list[Piece]:
    """What is left where not even that fits: ``1.3 % ok``."""
    word = verdict(scene)
    return [(f"{total_cpu(scene)} ", ""), (budget_word(word), TONES[word])]


def strip(scene: Scene) -> list[list[Piece]]:
    """What deserves a word now, each a group: a limit that is near or over, the worst first; what was lost."""
    found = [] if _is_starting(scene) else spent(scene)
    ledger = scene.state.ledger_totals()
    missed = {"samples lost": ledger.get("lost", 0), "events not counted": _uncounted(ledger)}
    groups = [_group(scene, one) for word in ("over", "near") for one in found if one.word == word]
    for name, count in missed.items():
        if count:
            groups.append([(f"{name} ", "dim"), (figure.number(count), "look")])
    return groups


def block() -> Block:
    """The same in full, with what each figure is."""
    columns = (
        TableColumn("what", "cost", 10),
        TableColumn("now", "now", 8, right=True),
        TableColumn("limit", "limit", 6, right=True),
        TableColumn("word", "", 8),
        TableColumn("note", "", 20, grow=1, spare=1),
    )
    return Block("budget", lambda scene: f"Budget: {_action(scene)}", columns, rows, lambda _: "")


def _ours(scene: Scene) -> str:
    """Which of our processes run on the measured host."""
    return "collector on the far host" if scene.connection.line is not None else "collector and console"


def rows(scene: Scene) -> list[TableRow]:
    """Every cost of the profile's budget, what was missed, and the machine."""
    state = scene.state
    ledger = state.ledger_totals()
    uncounted = figure.number(_uncounted(ledger))
    duty = duty_pct(state)
    notes: dict[Limit, str] = {
        "kernel_cpu_pct": _kernel_note(scene),
        "ns_per_packet": _why_no_packets(scene) or "kernel time per received packet",
        "user_cpu_pct": f"{_ours(scene)}, of one core",
        "memory_mb": _ours(scene),
        "events_per_s": "samples sent by the probes",
    }
    made = [_row(scene, one, notes[one.name]) for one in spent(scene)]
    lost, suppressed = figure.number(ledger.get("lost", 0)), figure.number(ledger.get("suppressed", 0))
    return [
        *made,
        *_line(scene),
        _plain("missed", lost, f"samples lost; {suppressed} suppressed; {uncounted} events not counted"),
        _plain("statistics", figure.percent(duty), "of the time; each run then reads the clock twice more"),
        _plain("machine", _machine(scene), _machine_note(scene)),
    ]


def _row(scene: Scene, one: Spending, note: str) -> TableRow:
    word = "starting" if _is_starting(scene) and one.limit is not None else one.word
    about = "≈ " if one.name in ("kernel_cpu_pct", "ns_per_packet") and scene.state.kernel_cpu_estimated else ""
    now = f"{about}{_figure(one, one.measured)}" if one.measured is not None else figure.UNKNOWN
    return TableRow(
        Subject("", "probe", one.name, ()),
        {
            "what": Cell(_TITLES[one.name], one.name),
            "now": Cell(now, one.measured),
            "limit": Cell(_figure(one, one.limit) if one.limit is not None else "–", one.limit),
            "word": Cell(budget_word(word), word, TONES[word]),
            "note": Cell(note, None, "dim"),
        },
    )


def _line(scene: Scene) -> list[TableRow]:
    """What the line to a far host carries, how long it takes, and how well the clocks there are known."""
    line = scene.connection.line
    if line is None:
        return []
    parts = ["frames, before ssh compresses them"]
    if line.round_trip_s is not None and line.clock_within_s is not None and line.ahead_s is not None:
        within, off = figure.duration(line.clock_within_s * 1e9), figure.duration(abs(line.ahead_s) * 1e9)
        order = "ahead of" if line.ahead_s > 0 else "behind"
        is_off = abs(line.ahead_s) > line.clock_within_s
        parts.insert(0, f"its clock {f'is {off} {order} this one' if is_off else 'agrees with this one'} ±{within}")
        parts.insert(1, f"round trip {figure.duration(line.round_trip_s * 1e9)}")
    return [_plain("line", figure.rate(line.bytes_per_s, "B"), "; ".join(parts))]


def _plain(what: str, now: str, note: str) -> TableRow:
    cells = {"what": Cell(what, what), "now": Cell(now), "note": Cell(note, None, "dim")}
    return TableRow(Subject("", "probe", what, ()), cells)


def _group(scene: Scene, one: Spending) -> list[Piece]:
    about = "≈ " if one.name in ("kernel_cpu_pct", "ns_per_packet") and scene.state.kernel_cpu_estimated else ""
    if one.name == "kernel_cpu_pct" and scene.state.kernel_cpu_calibrated:
        about = "calibrated ≈ "
    title: Piece = (f"{_TITLES[one.name]} ", "dim")
    if one.name == "ns_per_packet" and (why := _why_no_packets(scene)):
        return [title, (why, "")]
    if one.measured is None:
        about = ""
    if one.limit is None:
        return [title, (f"{about}{_figure(one, one.measured)}", "")]
    # The unit once, where both figures have the same one.
    now = _figure(one, one.measured) if one.name == "ns_per_packet" else _digits(one, one.measured)
    pieces: list[Piece] = [title, (f"{about}{now}", "")]
    word = "starting" if _is_starting(scene) else one.word
    # The word alone: the headline has its level, and the line has no room to say it of each cost.
    said: list[Piece] = [] if word == "starting" else [(f" {word}", TONES[word])]
    return [*pieces, (f" of {_figure(one, one.limit)}", "dim"), *said]


def _figure(one: Spending, value: float | None) -> str:
    if one.name == "ns_per_packet" and value is not None:
        return figure.duration(value if value is one.limit else round(value))
    return f"{_digits(one, value)}{_UNITS[one.name]}"


def _digits(one: Spending, value: float | None) -> str:
    """What is smaller than a hundredth of a percent costs nothing worth a digit; the others are whole but for CPU."""
    if value is None:
        return figure.UNKNOWN
    if one.name == "kernel_cpu_pct" and value is not one.limit:
        return core_share(value)
    if one.name == "user_cpu_pct" and value is not one.limit:
        return f"{value:.1f}"
    return figure.number(value if value is one.limit else round(value))


def core_share(percent: float | None) -> str:
    """A share of a core to two decimals: what is smaller than that costs nothing worth a digit."""
    if percent is None:
        return figure.UNKNOWN
    if 0 < percent < 0.01:
        return "<0.01"
    return f"{percent:.2f}" if percent < 100 else figure.number(percent)


def _machine(scene: Scene) -> str:
    change = machine_change_pct(scene.state)
    said = "" if change is None else f" ({change:+.1f})"
    return f"{figure.percent(scene.state.machine_cpu_pct)}{said}"


def _kernel_note(scene: Scene) -> str:
    if scene.state.kernel_cpu_calibrated:
        return "of one core, by calibration: this kernel has no run-time statistics"
    if scene.state.kernel_cpu_pct is None and any(not p.cost.measurable for p in scene.state.probes.values()):
        return "this kernel has no run-time statistics; netconsole calibrate gives an estimate"
    return "all our programs, of one core"


def _machine_note(scene: Scene) -> str:
    before = machine_before_pct(scene.state)
    was = "not known" if before is None else _idle_pct(before)
    return f"busy, all CPUs; idle {_idle_pct(scene.state.machine_cpu_pct)}, before watching {was}"


def _idle_pct(busy_pct: float | None) -> str:
    return figure.percent(None if busy_pct is None else max(0.0, 100 - busy_pct), digits=2)


def _why_no_packets(scene: Scene) -> str:
    """Why the time per packet is not known; empty when it may be."""
    if PACKETS_PROBE not in scene.state.probes:
        return f"not known without the probe {PACKETS_PROBE}"
    rate = packets_per_s(scene.state)
    return "" if rate is None or rate >= MIN_PACKETS_PER_S else f"not known below {_FEW} packets/s"


def _action(scene: Scene) -> str:
    words = {
        "degrade": "above it details are reduced",
        "warn": "above it only a warning",
        "stop": "above it probes stop",
    }
    return words[scene.profile.budget.action]


def _uncounted(ledger: dict[str, int]) -> int:
    return sum(count for name, count in ledger.items() if name in LEDGER_COUNTS)


def _is_starting(scene: Scene) -> bool:
    return max(source.intervals for source in scene.state.sources.values()) < STARTING_INTERVALS


def total_cpu(scene: Scene) -> str:
    """In kernel and user space. One decimal: what changes in the second is noise, and would be sent every time."""
    known = [part for part in (scene.state.kernel_cpu_pct, user_cpu_pct(scene.state)) if part is not None]
    return f"{sum(known):.1f} %" if known else f"{figure.UNKNOWN} %"


def _memory(scene: Scene) -> str:
    kb = memory_kb(scene.state)
    return f"{figure.UNKNOWN} MB" if kb is None else f"{round(kb / 1024)} MB"
