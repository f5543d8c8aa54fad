"""LiveSession against a collector that plays a scenario: whole pictures, commands, crashes, and an end in any case."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from netconsole.host.collector_process import CollectorGone, CollectorProcess
from netconsole.profile.scope import RunScope
from netconsole.session import live
from netconsole.session.live import LiveSession
from netconsole.telemetry.frames import MAX_LINE_BYTES, MAX_SENTENCE, Action, AnyFrame, Table, decode, encode
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import CommandError
from netconsole.telemetry.state import State
from tests.support.commanded_host import CommandedHost
from tests.support.fake_collector import Scenario
from tests.support.session_news import SessionNews

FAKE = Path(__file__).parents[2] / "support" / "fake_collector.py"
REQUEST = ProbeRequest("kernel_drops", knobs={"device": ""}, spec={"probe": {"name": "kernel_drops"}}, code="int x;")
LIMIT_S = 300.0
"""How long anything may take on a loaded machine before the test gives up."""


class Watch:
    """A session with an event for every piece of news."""

    def __init__(self, path: Path, scenario: Scenario, back_off_s: tuple[float, ...] = (0.01,)) -> None:
        self.log = path / "commands"
        command = [sys.executable, str(FAKE), str(scenario.save(path / "scenario.jsonl")), "--log", str(self.log)]
        self.session = LiveSession(CommandedHost(command), [REQUEST], back_off_s=back_off_s)
        self.until = SessionNews(self.session, LIMIT_S).until

    def commands(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Kept(list[AnyFrame]):
    """What a recorder would get."""

    def take(self, _: State, batch: Sequence[AnyFrame]) -> None:
        self.extend(batch)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    made: list[Watch] = []

    def make(scenario: Scenario, **values: tuple[float, ...]) -> Watch:
        made.append(Watch(tmp_path, scenario, **values))
        return made[-1]

    yield make
    for one in made:
        one.session.close()


def drops(delta: int, total: int, scenario: Scenario) -> Scenario:
    row = {"labels": {"reason": "NO_SOCKET", "device": "lo"}, "counts": {"count": (delta, total)}}
    return scenario.counters("kernel_drops", drops=(delta, total)).table("kernel_drops", "drops", [row])


def test_a_picture_is_shown_only_when_its_interval_is_whole(watch: Callable[..., Watch]) -> None:
    scenario = Scenario().hello().status("kernel_drops")
    drops(5, 5, scenario).end()
    drops(7, 12, scenario).do("await", command="set")
    one = watch(scenario)
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    with one.session.view() as state:
        assert state.probes["kernel_drops"].counters["drops"].count.total == 5
    assert one.session.settled()
    assert one.session.connection().phase == "live"


def test_frames_that_are_too_many_bytes_do_not_wait_for_the_end_of_their_interval(
    watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_MAX_PENDING_BYTES", -1)  # bytes are counted as they come, many frames at once
    scenario = Scenario().hello().status("kernel_drops")
    one = watch(drops(5, 5, scenario).status("kernel_drops", mode="details").do("await", command="set"))
    one.session.start()
    one.until(lambda state: "kernel_drops" in state.probes and state.probes["kernel_drops"].mode == "details")
    with one.session.view() as state:
        assert state.probes["kernel_drops"].counters["drops"].count.total == 5
        assert state.collector.intervals == 0


def test_load_carries_the_manifest_the_source_and_the_knobs(watch: Callable[..., Watch]) -> None:
    one = watch(Scenario().hello().do("await", command="load").status("kernel_drops").end())
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    load = next(command for command in one.commands() if command["command"] == "load")
    assert load["spec"] == {"probe": {"name": "kernel_drops"}}
    assert load["source"] == "int x;"
    assert (load["mode"], load["knobs"]) == ("summary", {"device": ""})


def test_knobs_are_set_on_the_running_probe_and_survive_a_restart(watch: Callable[..., Watch]) -> None:
    scenario = Scenario().hello().do("await", command="load").status("kernel_drops").end()
    one = watch(scenario.do("await", command="set").do("exit", status=0))
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    assert one.session.set("kernel_drops", "details", {"device": "eth0"}).result(LIMIT_S) is None
    one.until(lambda state: state.collector.restarts == 1 and state.collector.intervals >= 2)
    loads = [command for command in one.commands() if command["command"] == "load"]
    assert (loads[-1]["mode"], loads[-1]["knobs"]) == ("details", {"device": "eth0"})


def test_an_action_is_a_frame_before_the_next_ones_and_makes_no_probe(watch: Callable[..., Watch]) -> None:
    one = watch(Scenario().hello().status("kernel_drops").end())
    kept = Kept()
    one.session.attach(kept)
    with one.session.view():  # as somebody does who looks and tells at once
        one.session.say_action("never_there", "not started", "x" * 2 * MAX_SENTENCE)
        one.session.say_action("", "over the budget", "of all", 3.0, 2.0)
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    first, second, *_ = kept
    assert isinstance(first, Action) and isinstance(second, Action)
    assert (first.probe, second.probe, second.measured, second.limit) == ("never_there", None, 3.0, 2.0)
    assert [decode(encode(frame)) for frame in (first, second)] == [first, second]
    with one.session.view() as state:
        assert "never_there" not in state.probes and not state.console.frames_lost


def test_a_refused_command_says_why(watch: Callable[..., Watch]) -> None:
    scenario = Scenario().hello().do("refuse", command="set", error="port 70000: at most 65535").end()
    one = watch(scenario)
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    with pytest.raises(CommandError, match="at most 65535"):
        one.session.set("kernel_drops", knobs={"port": 70000}).result(LIMIT_S)
    with pytest.raises(CommandError, match="nonsense"):
        one.session.set("nonsense").result(LIMIT_S)


def test_a_load_that_is_refused_leaves_no_probe_in_progress(watch: Callable[..., Watch]) -> None:
    scenario = Scenario().do("refuse", command="load", error="no BTF").hello().do("await", command="load").end()
    one = watch(scenario)
    one.session.start()
    one.until(lambda state: state.probes["kernel_drops"].status == "failed")
    with one.session.view() as state:
        assert state.probes["kernel_drops"].why == "no BTF"


def test_a_crash_is_shown_and_restarted_and_its_gap_marked(watch: Callable[..., Watch]) -> None:
    scenario = Scenario().hello().status("kernel_drops")
    drops(5, 5, scenario).end().do("complain", text="Segmentation fault").do("exit", status=7)
    one = watch(scenario, back_off_s=(0.01, 600.0))
    seen: list[str | None] = []
    one.session.on_news(lambda _: seen.append(one.session.connection().why))
    one.session.start()
    one.until(lambda state: state.collector.restarts == 1 and state.probes["kernel_drops"].status == "failed")
    why = one.session.connection().why
    assert why == "Segmentation fault (exit status 7)"
    assert one.session.connection().phase == "lost"
    with one.session.view() as state:
        assert "Segmentation fault" in (state.probes["kernel_drops"].why or "")


def test_broken_frames_are_counted_and_passed_over(watch: Callable[..., Watch]) -> None:
    scenario = Scenario().hello().do("raw", text='{"kind": "counters", "pr\n').do("raw", text="\udcff\udcfe\n")
    scenario.status("kernel_drops").end()
    one = watch(scenario)
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    assert one.session.connection().broken_frames == 2


def test_close_kills_a_collector_that_hangs_and_is_idempotent(watch: Callable[..., Watch]) -> None:
    one = watch(Scenario().hello().end().do("hang"))
    one.session.start()
    one.until(lambda state: state.collector.intervals == 1)
    process = one.session._process
    assert process is not None
    pid = process.pid
    one.session.close()
    one.session.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert one.session.connection().phase == "ended"
    with pytest.raises(CommandError):
        one.session.set("kernel_drops").result(LIMIT_S)


def test_a_collector_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    session = LiveSession(CommandedHost([str(tmp_path / "nothing")]), [REQUEST], back_off_s=(600.0,))
    lost = threading.Event()
    session.on_news(lambda _: lost.set() if session.connection().phase == "lost" else None)
    session.start()
    assert lost.wait(LIMIT_S)
    assert "cannot start the collector" in (session.connection().why or "")
    session.close()


def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    after = '{"kind":"bye","seq":1,"mono_ns":2,"wall_ns":3,"why":"stop"}'
    code = f"import sys; sys.stdout.write('x' * {3 * MAX_LINE_BYTES}); print(); print('{after}')"
    process = CollectorProcess([sys.executable, "-c", code])
    try:
        assert [frame.seq for frame in process.frames()] == [1]
        assert process.broken_frames == 1
    finally:
        process.close()


def test_a_collector_that_reads_nothing_does_not_block_whoever_commands_it() -> None:
    process = CollectorProcess([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with pytest.raises(CollectorGone, match="does not read"):
            for number in range(10_000):
                process.send({"id": number, "command": "load", "source": "x" * 1000})
    finally:
        process.close()
    with pytest.raises(CollectorGone, match="has ended"):
        process.send({"id": 1, "command": "stop"})


def test_neither_the_state_nor_a_recorder_gets_what_is_outside_of_the_scope(tmp_path: Path) -> None:
    rows = [{"labels": {"device": "veth0", "netns": name}, "counts": {"count": (5, 5)}} for name in ("7", "mfa")]
    scenario = Scenario().hello().status("kernel_drops").table("kernel_drops", "drops", rows).end()
    command = [sys.executable, str(FAKE), str(scenario.do("await", command="set").save(tmp_path / "scenario.jsonl"))]
    scope = RunScope({"netns": 7}, {}, {})
    session, kept = LiveSession(CommandedHost(command), [REQUEST], back_off_s=(600.0,), scope=scope), Kept()
    session.attach(kept)
    with contextlib.closing(session):
        until = SessionNews(session, LIMIT_S).until
        session.start()
        until(lambda state: state.collector.intervals == 1)
        with session.view() as state:
            seen = [row.labels["netns"] for row in state.probes["kernel_drops"].tables["drops"].rows.values()]
    assert seen == ["7"]
    assert [row.labels["netns"] for frame in kept if isinstance(frame, Table) for row in frame.rows] == ["7"]
