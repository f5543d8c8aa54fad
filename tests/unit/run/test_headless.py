"""A measurement without a screen: what it says before it begins, what it waits for, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.budget.enforcer import Enforcer
from netconsole.escalation.escalator import Escalator
from netconsole.far.host import THIS_HOST
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget, Profile
from netconsole.run import headless
from netconsole.run.assembly import LiveRun
from netconsole.run.preflight import RunPlan
from netconsole.session.live import LiveSession
from netconsole.snapshot.document import IncidentData
from netconsole.telemetry import frames
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.frames import SourceName
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.state import ProbeState, State
from tests.support.commanded_host import CommandedHost
from tests.support.fake_collector import Scenario
from tests.unit.probes.test_manifest_reader import GOOD, make
from tests.unit.telemetry.test_state import SECOND, Stream

ROOT = Path(__file__).parents[3]
FAKE = ROOT / "tests" / "support" / "fake_collector.py"
PROFILE = Profile("summary", budget=Budget(kernel_cpu_pct=5.0))
LIMIT_S = 300.0


@pytest.fixture
def manifests(tmp_path: Path) -> dict[str, Manifest]:
    return {"p": catalogue.load(make(tmp_path, GOOD))}


class Session:
    """In place of a session whose probes have these states and reasons."""

    def __init__(self, source: SourceName = "collector", **probes: tuple[str, str | None]) -> None:
        self._state = State()
        for name, (status, why) in probes.items():
            probe = self._state.probes[name] = ProbeState(name, source)
            probe.status, probe.why = status, why  # type: ignore[assignment]

    @contextmanager
    def view(self) -> Iterator[State]:
        yield self._state


def test_a_reason_that_several_probes_have_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "this kernel has no kprobes"
    session: Any = Session(
        vhost_queues=("unsupported", f"{why}; netconsole cannot measure runs"),
        kernel_drops=("attached", None),
        tun_queues=("unsupported", f"{why}; netconsole cannot measure packets"),
        ovs_drops=("failed", None),
        ovs_upcalls=("failed", None),
    )
    assert headless._say_refused(session, catalogue.load_all())
    assert capsys.readouterr().err.splitlines() == [
        "netconsole: 2 of 5 probes cannot run here (netconsole doctor says why)",
        "netconsole: ovs_drops, ovs_upcalls: failed: no reason known",
    ]
    nothing: Any = Session(ovs_drops=("failed", "no types"))
    assert not headless._say_refused(nothing, catalogue.load_all())


def test_the_countdown_is_one_line_that_is_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    countdown = headless.Countdown(2.5)
    for step_s in (0.0, 0.4, 0.6, 1.0, 9.0):
        now_s[0] += step_s
        assert countdown.is_on()
    countdown.end()
    said = capsys.readouterr().err
    assert "\n" not in said and [one.strip() for one in said.split("\r") if one] == [
        *(f"netconsole: {left} s left" for left in (3, 2, 1, 0)),
        "",
    ]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    silent = headless.Countdown(2.5)
    assert silent.is_on()
    silent.end()
    assert capsys.readouterr().err == ""


def test_the_end_names_the_worst_and_the_file() -> None:
    probes = {"a": SimpleNamespace(status="attached"), "b": SimpleNamespace(status="unsupported")}
    taken: Any = SimpleNamespace(incidents=None, probes=probes)
    assert headless.outcome(taken, None, False) == "nothing stands out in 1 probe"
    taken.probes.pop("a")
    assert headless.outcome(taken, None, False) == "nothing was measured", "which is not that nothing stands out"
    what = "lo: 5 UDP packets/s go to a port where nobody listens\x1b[2J"
    taken.incidents = [IncidentData(level="!!", cause="c", what=what, ended="2026-01-01T00:00:09Z")] * 2
    told = headless.outcome(taken, Path("t.md"), False)
    assert told == f"t.md is written; 2 incidents, the worst: !! {what[:-4]}\\x1b[2J (ended)"
    assert headless.outcome(taken, Path("t.md"), True) == "t.md is written; 2 incidents, the worst: !!"


def test_a_name_from_afar_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b]0;x\x07"
    session: Any = Session("collector", **{name: ("failed", "\x1b[2J")})
    headless._say_refused(session, catalogue.load_all())
    headless._say_action(BudgetAction(0.0, name, "detached", "\x1b[2J"))
    assert "\x1b" not in capsys.readouterr().err


def test_every_source_has_to_measure_for_the_time_and_at_least_one_interval() -> None:
    """The console's may end half an interval after the collector's, and have measured nothing by then."""
    session: Any = Session()
    streams = {name: Stream(session._state, name) for name in ("collector", "console")}
    streams["collector"].hello()
    for name, stream in streams.items():
        stream.state.apply(frames.Status(**stream.stamp(name), state="attached", mode="summary"))
        stream.end()
    begun, until_ns = headless._intervals(session._state), 100 * SECOND + 3 * SECOND // 2
    assert begun == {"collector": 1, "console": 1}
    streams["collector"].end()
    assert not headless._has_measured(session, begun, until_ns), "the console has not"
    streams["console"].end()
    assert headless._has_measured(session, begun, until_ns), "half an interval may lack"
    assert not headless._has_measured(session, begun, until_ns + SECOND)
    assert not headless._has_measured(session, {"collector": 2}, 0), "none since"


def session(path: Path, scenario: Scenario, interval_s: float = 1.0) -> LiveSession:
    command = [sys.executable, str(FAKE), str(scenario.save(path / "scenario.jsonl"))]
    return LiveSession(
        CommandedHost(command), [ProbeRequest("p", spec={}, code="int x;")], interval_s, back_off_s=(600.0,)
    )


def live(session: LiveSession, manifests: dict[str, Manifest]) -> LiveRun:
    """A run of this session that nobody escalates."""
    enforcer, escalator = Enforcer(session, PROFILE, manifests), cast(Escalator, None)
    return LiveRun(RunPlan(PROFILE, manifests, ()), THIS_HOST, session, enforcer, escalator)


def test_a_run_measures_whole_intervals_from_the_moment_when_all_is_attached(
    tmp_path: Path, manifests: dict[str, Manifest], capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario().hello().status("p", "compiling").do("await", command="load").status("p", "attached")
    for number in range(100):
        scenario.counters("p", drops=(10, 10 * (number + 1))).end().do("sleep", s=0.05)
    taken = headless.measure(live(session(tmp_path, scenario), manifests), 3.0)
    # The scenario's clock goes on by one second per interval, however long that takes here.
    assert taken.duration_s >= 3.0
    assert taken.probes["p"].counters["drops"].total == 10 * taken.duration_s
    assert "measuring with 1 probe for" in capsys.readouterr().err


def test_it_begins_with_an_interval_of_the_collector_though_the_console_has_ended_many(
    tmp_path: Path, manifests: dict[str, Manifest]
) -> None:
    scenario = Scenario().hello().status("p").do("sleep", s=0.3)
    for number in range(100):
        scenario.counters("p", drops=(10, 10 * (number + 1))).end().do("sleep", s=0.05)
    taken = headless.measure(live(session(tmp_path, scenario, interval_s=0.01), manifests), 3.0)
    assert taken.duration_s >= 3.0
    assert taken.probes["p"].counters["drops"].total == 10 * taken.duration_s


def test_a_probe_that_is_refused_is_said_and_not_waited_for(
    tmp_path: Path, manifests: dict[str, Manifest], capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario().do("refuse", command="load", error="no BTF").hello().do("await", command="load")
    scenario.end().do("repeat", times=0, lines=[{"do": "end"}, {"do": "sleep", "s": 0.05}])
    taken = headless.measure(live(session(tmp_path, scenario), manifests), 0.5)
    assert taken.probes["p"].status == "failed"
    assert "p: failed: no BTF" in capsys.readouterr().err


def test_two_hosts_begin_and_end_together_though_their_intervals_end_at_other_moments(
    tmp_path: Path, manifests: dict[str, Manifest]
) -> None:
    """Both are asked to end an interval at the begin and at the end: what both see is counted at both ends or at none.

    One alone is asked at its begin: what follows are its own intervals.
    """

    def measured(*names: str) -> list[int]:
        """How often each was asked."""
        runs = []
        for name in names:
            scenario = Scenario().hello().status("p").do("clock", real=True)
            lines = [*Scenario().counters("p", drops=(10, 10)).lines, {"do": "end", "pace_s": 0.05}]
            (tmp_path / name).mkdir()
            path = scenario.do("repeat", times=0, lines=lines).save(tmp_path / name / "scenario.jsonl")
            command = [sys.executable, str(FAKE), str(path), "--log", str(tmp_path / name / "log")]
            request = ProbeRequest("p", spec={}, code="int x;")
            runs.append(live(LiveSession(CommandedHost(command), [request], 0.05), manifests))
        taken = headless.measure_together(runs, 0.2)
        assert [one.probes["p"].status for one in taken] == ["attached"] * len(names)
        logs = [(tmp_path / name / "log").read_text().splitlines() for name in names]
        return [sum(json.loads(line).get("at_once") is True for line in log) for log in logs]

    assert measured("host", "guest") == [2, 2]
    assert measured("alone") == [1]


STARTED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path
from netconsole.budget.enforcer import Enforcer
from netconsole.far.host import THIS_HOST
from netconsole.run import headless
from netconsole.run.assembly import LiveRun
from netconsole.run.preflight import RunPlan
from netconsole.run.stop import Interrupted
from netconsole.session.live import LiveSession
from tests.support.commanded_host import CommandedHost
from netconsole.profile.profile import Profile
from netconsole.telemetry.request import ProbeRequest
from netconsole.snapshot.document import encode

profile = Profile("summary")
session = LiveSession(CommandedHost([sys.executable, *sys.argv[1:]]), [ProbeRequest("p", code="int x;")])
live = LiveRun(RunPlan(profile, {}, ()), THIS_HOST, session, Enforcer(session, profile, {}), None)
try:
    taken = headless.measure(live, 600.0)
except Interrupted as error:
    sys.exit(130)
sys.stdout.buffer.write(encode(taken))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_early_with_what_was_measured(tmp_path: Path, number: signal.Signals) -> None:
    scenario = Scenario().hello().status("p").do("clock", real=True)
    lines = [*Scenario().counters("p", drops=(10, 10)).lines, {"do": "end", "pace_s": 0.05}]
    done = started(tmp_path, scenario.do("repeat", times=0, lines=lines), lambda child: child.send_signal(number))
    assert done.returncode == 0, done.stderr
    taken: dict[str, Any] = json.loads(done.stdout)
    assert taken["probes"]["p"]["status"] == "attached"
    assert taken["duration_s"] < 600


def test_a_signal_while_the_probes_start_ends_it_with_130(tmp_path: Path) -> None:
    scenario = Scenario().hello().status("p", "compiling")
    scenario.do("repeat", times=0, lines=[{"do": "end"}, {"do": "sleep", "s": 0.05}])
    command = [sys.executable, "-c", STARTED, str(ROOT), str(FAKE), str(scenario.save(tmp_path / "scenario.jsonl"))]
    child = subprocess.Popen([*command, "--log", str(tmp_path / "log")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: (tmp_path / "log").exists() and b'"load"' in (tmp_path / "log").read_bytes())
    child.terminate()
    out, _ = child.communicate(timeout=LIMIT_S)
    assert (child.returncode, out) == (130, b"")


def started(
    path: Path, scenario: Scenario, act: Callable[[subprocess.Popen[str]], None]
) -> subprocess.CompletedProcess[str]:
    """A run of its own process; ``act`` is called when it says that it measures."""
    command = [sys.executable, "-c", STARTED, str(ROOT), str(FAKE), str(scenario.save(path / "scenario.jsonl"))]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = ""
    while "measuring" not in said:
        line = child.stderr.readline()
        assert line, f"ended before it measured: {said}"
        said += line
    act(child)
    out, err = child.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(command, child.returncode, out, said + err)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_a_run_whose_probes_all_are_the_consoles_needs_one_that_measures() -> None:
    away, there = ("unsupported", "no Open vSwitch here"), ("attached", None)
    nothing: Any = Session("console", ovs_flows=away)
    assert not headless._say_refused(nothing, catalogue.load_all())
    one: Any = Session("console", ovs_flows=away, softnet=there)
    assert headless._say_refused(one, catalogue.load_all())
    beside: Any = Session("collector", kernel_drops=("failed", "not root"), softnet=there)
    assert not headless._say_refused(beside, catalogue.load_all()), "what was asked for above all is BPF"
