"""A session that applies frames when a test asks for it: without process, clock or thread."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Literal

from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.profile import profile
from netconsole.profile.profile import ProfileMode
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.session import CommandError, Connection, News
from netconsole.telemetry.state import State
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from tests.support.fake_collector import EPOCH_MONO_NS, EPOCH_WALL_NS, INTERVAL_NS, Scenario
from tests.support.tui.scenes import PROBE_DIRECTORY

PROFILE = profile.Profile("summary", budget=profile.Budget(kernel_cpu_pct=5.0, user_cpu_pct=3.0, memory_mb=120.0))


class PlayedSession:
    """Applies the frames of scenarios to a state; remembers what was asked of it."""

    kind: Literal["live"] = "live"

    def __init__(self, scenario: Scenario | None = None, manifests: Mapping[str, Manifest] | None = None) -> None:
        """``manifests``: whose findings are looked for at the end of each interval."""
        self.state = State()
        self.findings = Incidents(manifests or {})
        self.asked: list[tuple[str, ProfileMode | None, Mapping[str, Scalar] | None]] = []
        self.reloaded: list[tuple[str, Mode | None, Mapping[str, Scalar] | None]] = []
        self.refuse: str | None = None
        self.age: float | None = 0.2
        self.standing = Connection("live")
        self.closed = False
        self._seq = 0
        self._mono_ns, self._wall_ns = EPOCH_MONO_NS, EPOCH_WALL_NS
        self._callbacks: list[Callable[[News], None]] = []
        self._looking: set[int] = set()
        if scenario is not None:
            self.play(scenario)

    def play(self, scenario: Scenario) -> None:
        """Apply all frames of a scenario, and tell whoever listens."""
        for line in scenario.lines:
            self._line(line)

    def take(self, frame: frames.AnyFrame) -> None:
        """Apply a frame as it was sent; the one that closes an interval is told to whoever listens."""
        self.state.apply(frame)
        if isinstance(frame, frames.Cost) and frame.probe is None and frame.source == "collector":
            for callback in self._callbacks:
                callback("interval")

    def _line(self, line: dict[str, Any]) -> None:
        if "kind" in line:
            self._frame(line)
        elif line["do"] == "end":
            usage = {"cpu_ns": 4_000_000, "rss_kb": 13_000, "pss_kb": 11_000}
            self._frame({"kind": "cost", "probe": None, "interval_ns": INTERVAL_NS, "usage": usage})
            self._mono_ns += INTERVAL_NS
            self._wall_ns += INTERVAL_NS
            self.findings.update(self.state)
            for callback in self._callbacks:
                callback("interval")

    def _frame(self, line: dict[str, Any]) -> None:
        self._seq += 1
        filled = {"v": 1, "seq": self._seq, "mono_ns": self._mono_ns, "wall_ns": self._wall_ns, **line}
        self.state.apply(frames.decode(json.dumps(filled).encode()))

    def start(self) -> None:
        """Nothing to start."""

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        """A thread that asks again while it looks would wait for itself in a live session: here that is an error."""
        me = threading.get_ident()
        assert me not in self._looking, "the state is asked for while it is held"
        self._looking.add(me)
        try:
            yield self.state
        finally:
            self._looking.remove(me)

    def on_news(self, callback: Callable[[News], None]) -> None:
        self._callbacks.append(callback)

    def connection(self) -> Connection:
        return self.standing

    def age_s(self) -> float | None:
        return self.age

    def settled(self) -> bool:
        return True

    def set(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        self.asked.append((probe, mode, knobs))
        return self._answer()

    def reload(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        self.reloaded.append((probe, mode, knobs))
        return self._answer()

    def unload(self, probe: str, why: str | None = None) -> Future[None]:
        self.asked.append((probe, "off", None))
        return self._answer()

    def close(self) -> None:
        self.closed = True

    def _answer(self) -> Future[None]:
        future: Future[None] = Future()
        if self.refuse is None:
            future.set_result(None)
        else:
            future.set_exception(CommandError(self.refuse))
        return future


def console(session: PlayedSession) -> ConsoleApp:
    """The application on a played session."""
    return ConsoleApp(WatchedHost(session, PROFILE, catalogue.load_all([PROBE_DIRECTORY])))


def screen_text(app: ConsoleApp) -> str:
    """What the screen in front shows, as plain text."""
    width, height = app.size
    lines = []
    for strip in app.screen._compositor.render_strips()[:height]:
        lines.append("".join(segment.text for segment in strip).rstrip()[:width])
    return "\n".join(lines)
