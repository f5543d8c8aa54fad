"""The two lines on top: where this is, whether it is live, how old its figures are, and what they cost."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.profile.scope import said, words
from netconsole.recording.replay_session import Position
from netconsole.telemetry.frames import Host
from netconsole.telemetry.words import COLLECTOR_LOST, ENDED, LINE_LOST, LIVE, PAUSED
from netconsole.tui import actions
from netconsole.tui.panes.cost import budget
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.bars import bar
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, Piece, cells, spread

FRESH_INTERVALS = 2.0
"""Figures may be two intervals old before it is worth a word: one to come, one on its way to the screen."""
_JOINT: Piece = (" · ", "dim")
_BAR_COLUMNS = 20


@dataclass(frozen=True)
class Pause:
    """What stands still, and for how long: nothing, the order of rows, or the whole screen."""

    step: Literal["live", "order", "screen"] = "live"
    since_s: float = 0.0


def stated_age_s(scene: Scene) -> int | None:
    """The age that the header admits to, in whole seconds; the picture is drawn anew before it is exceeded."""
    bound = scene.data_bound_s
    return None if bound is None else max(_fresh_s(scene), math.ceil(bound))


def is_stale(scene: Scene, stated_s: int) -> bool:
    """Whether figures of this age are older than the next interval explains."""
    return stated_s > _fresh_s(scene)


def first_line(scene: Scene, pause: Pause, kind: str, now_s: float, width: int) -> Line:
    """Host, kernel and profile; live or paused, elapsed time, age of the figures."""
    is_recorded = scene.replay is not None and scene.replay.behind_s is None
    host = scene.replay.host if scene.replay is not None and is_recorded else scene.state.host
    right = [
        *_governed(scene),
        *_recording(scene),
        *_line(scene),
        *_liveness(scene, pause, kind, now_s),
        *_age(scene, pause),
        (" ", ""),
    ]
    if host is None:
        return spread([(" netconsole  ", "strong"), ("starting the collector…", "look")], right, width)
    scope = words(said(scene.profile))
    narrow = [f" · scope {scope}" if scope else "", f" · only {scene.only} (Esc)" if scene.only else ""]
    places = _places(host, figure.safe(scene.profile.name, 24), "".join(narrow))
    left = next((place for place in places if cells(place) + 1 + cells(right) <= width), places[-1])
    return spread(left, right, width)


def _places(host: Host, profile: str, scope: str) -> list[Line]:
    """Where this is, in fewer and fewer words: the scope, the profile and the name of the host go last."""
    name, kernel = figure.safe(host.name, 40), figure.safe(host.kernel, 40)
    cpus = f"{host.cpus} CPUs" if host.cpus != 1 else "1 CPU"
    version = kernel.split("-")[0]
    return [
        [(" netconsole  ", "strong"), (f"{name} · {kernel} · {cpus}", "strong"), (f" · profile {profile}{scope}", "")],
        [(f" {name} · {kernel} · {cpus}", "strong"), (f" · profile {profile}{scope}", "")],
        [(f" {name} · {kernel}", "strong"), (f" · profile {profile}{scope}", "")],
        [(f" {name} · {kernel}", "strong"), (f" · {profile}{scope}", "")],
        [(f" {name} · {version}", "strong"), (f" · {profile}{scope}", "")],
        [(f" {name}", "strong"), (f" · {profile}{scope}", "")],
        [(f" {name}", "strong"), (scope, "")],
        [(f" {name}", "strong")],
    ]


def second_line(
    scene: Scene, pane: str, levels: Mapping[str, str], width: int, empty: Collection[str] = ()
) -> tuple[Line, bool]:
    """The panes with their keys, those that need attention marked, empty ones dim; at the right what all this costs.

    And whether the cost is in it: on a narrow screen the names of the panes need the line.
    """
    costs = [[*budget.headline(scene), (" ", "")], budget.short_headline(scene), budget.shortest_headline(scene)]
    # Names before the cost, which the pane Cost has; in 80 columns they stand close to their keys, and with many marks
    # those of empty panes make room.
    tries = [
        (_tabs(pane, levels, " ", empty), costs),
        (_tabs(pane, levels, "", empty), [*costs, []]),
        (_tabs(pane, levels, "", empty, without={*empty} - {pane}), [*costs, []]),
        (_tabs(pane, levels, None, empty), costs),
    ]
    for tabs, rights in tries:
        for right in rights:
            if cells(tabs) + bool(right) + cells(right) <= width:
                return spread(tabs, right, width) if right else tabs, bool(right)
    return spread(_tabs(pane, levels, None, empty), [], width), False


def _tabs(
    pane: str, levels: Mapping[str, str], between: str | None, empty: Collection[str], without: Collection[str] = ()
) -> list[Piece]:
    """The panes by key and name, with this between the two; None: only the name of the pane in front.

    ``without``: panes whose names are left out.
    """
    pieces: list[Piece] = [(" ", "")]
    for action in actions.ACTIONS:
        if not action.id.startswith("pane."):
            continue
        name = action.call.removeprefix("pane('").removesuffix("')")
        number = action.keys.partition(",")[0]
        here = name == pane
        level = levels.get(name, "")
        is_named = here if between is None else name not in without
        title = f"{' ' if between is None else between}{action.title}" if is_named else ""
        tone: Tone = "here" if here else "dim" if name in empty else ""
        pieces += [(f"{number}{title}", tone), (level, "act" if level == "!!" else "look"), (" ", "")]
    return pieces[:-1]


def _liveness(scene: Scene, pause: Pause, kind: str, now_s: float) -> list[Piece]:
    if scene.replay is not None:
        return _recorded(scene.replay) if scene.replay.behind_s is None else _rewound(scene.replay)
    connection = scene.connection
    paused = f"{max(0, int(now_s - pause.since_s))} s"
    if connection.phase == "lost":
        again = "" if connection.retry_in_s is None else f", again in {math.ceil(connection.retry_in_s)} s"
        return [(f"{COLLECTOR_LOST if connection.line is None else LINE_LOST}{again}", "act"), _JOINT]
    if connection.phase == "ended" and kind == "live":
        return [(ENDED, "look"), _JOINT]
    if pause.step == "screen":
        return [(f"{PAUSED} {paused}", "look"), _JOINT]
    elapsed = figure.elapsed(scene.state.elapsed_s)
    if pause.step == "order":
        return [(f"ORDER HELD {paused}", "look"), (f" {elapsed}", ""), _JOINT]
    return [(LIVE if kind == "live" else kind.upper(), "ok"), (f" {elapsed}", ""), _JOINT]


def _recorded(place: Position) -> list[Piece]:
    """When the figures were recorded, in the time zone of whoever looks at them."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(place.wall_ns / 1e9))
    return [("RECORDING", "look"), (f" {at}", "strong")]


def _rewound(place: Position) -> list[Piece]:
    """That this is not now. In reverse: it must never be taken for now, without colour too."""
    ago = figure.elapsed(place.behind_s)
    return [(f" REWOUND {clock(place.wall_ns)}, {ago} ago ", "here"), (" Esc", "key"), (" now", "dim")]


def _governed(scene: Scene) -> list[Piece]:
    """That probes measure less than they were asked to; which ones and why is in the Cost pane."""
    count = len(scene.lowered)
    return [(f"! {count} LOWERED", "look"), _JOINT] if count else []


def _line(scene: Scene) -> list[Piece]:
    """That the host is another machine, and how far away; the Cost pane says more."""
    line = scene.connection.line
    if line is None or scene.connection.phase == "lost":
        return []
    away = "" if line.round_trip_s is None else f" {figure.duration(line.round_trip_s * 1e9)}"
    return [(f"ssh{away}", "dim"), _JOINT]


def _recording(scene: Scene) -> list[Piece]:
    """That this session is being recorded, and how much there is."""
    progress = scene.recording
    if progress is None:
        return []
    if progress.ended is not None:
        return [("!! RECORDING ENDED", "act"), _JOINT]
    return [(f"REC {figure.memory(round(progress.bytes / 1024, -1))}", "look"), _JOINT]


def replay_line(place: Position, width: int) -> Line:
    """Where in a recording this is, how fast it goes, and the keys that move it."""
    if place.trouble is not None and width >= _BAR_COLUMNS * 4:
        keys: list[Piece] = [(f"! {figure.safe(place.trouble, 60)}", "look")]
    else:
        pairs = (("p", "pause"), (", .", "step"), ("[ ]", "10 s"), ("- +", "speed"), ("t", "time"), ("m", "mark"))
        keys = [piece for key, word in pairs for piece in ((key, "key"), (f" {word}  ", "dim"))]
    word = "END" if place.at_end else "PLAYING" if place.playing else PAUSED
    tone: Tone = "ok" if word == "PLAYING" else "look"
    length = f"{figure.elapsed(place.length_s)}{' (cut)' if place.cut else ''}"
    left: list[Piece] = [(f" {word} ×{place.speed:g} ", tone), (f"{figure.elapsed(place.at_s)} of {length} ", "")]
    if place.since_s > 0:
        left.append((f"mark {figure.elapsed(place.since_s)} ", "dim"))
    if width - cells(left) > _BAR_COLUMNS + 2:
        share = place.at_s / place.length_s if place.length_s else 1.0
        left.append((f"{figure.fit(bar(share, _BAR_COLUMNS), _BAR_COLUMNS)}▏ ", "dim"))
    while keys and cells(left) + cells(keys) > width:
        del keys[-2:]
    return [*left, *keys]


def _fresh_s(scene: Scene) -> int:
    """Two intervals in whole seconds; an interval is never exactly as long as it was meant to be."""
    return max(1, round(FRESH_INTERVALS * scene.interval_s))


def _age(scene: Scene, pause: Pause) -> list[Piece]:
    if scene.replay is not None:
        return []
    stated = stated_age_s(scene)
    if stated is None:
        return [("no data yet", "dim")]
    stale = is_stale(scene, stated) and pause.step != "screen"
    return [(f"data ≤ {stated} s old" + (" !" if stale else ""), "look" if stale else "")]
