"""`ping run` and `ping capture` as commands: documents that hold every echo, and nothing left after kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.ping import breakdown, capture
from tests.live.collector.test_cleanup import leftovers
from tests.live.console.test_cleanup import await_gone, children, held_by
from tests.support.console_command import COMMAND
from tests.support.live.echoes import TAPS, WIRES, A, B, TwoHosts
from tests.support.live.measurement import LIMIT_S
from tests.support.terminal_process import TerminalProcess

pytestmark = pytest.mark.starting

COUNT = 30
WATCHED = """
import json, sys, time
from netconsole.ping.vantage import Between
from netconsole.probes.catalogue import load_all
from netconsole.run.ping_places import HERE
from netconsole.run.ping_plan import PingTraffic, plan
from netconsole.run.ping_watch import PingWatch, look_around

target, count = sys.argv[1], int(sys.argv[2])
manifests, traffic = load_all(), PingTraffic(count, 2000)
made = plan((HERE, target), look_around({}, manifests), {}, Between(outside=["eth0"]), traffic, "watched", False)
watching = PingWatch(made, manifests)
watching.start()
while not watching.is_over:
    time.sleep(0.05)
taken = watching.finish()
(place,) = watching.progress()
outcomes = [packet.outcome for packet in taken["host"].packets]
print(json.dumps([place.phase, watching.told, taken["host"].run, outcomes, sorted(taken["host"].facts)[:1]]))
"""
"""What the wizard of the console does with a plan."""


@pytest.fixture(scope="module")
def net() -> Iterator[TwoHosts]:
    hosts = TwoHosts()
    yield hosts
    hosts.remove()


def command(namespace: str, *arguments: str) -> list[str]:
    return [shutil.which("ip") or "ip", "netns", "exec", namespace, *COMMAND, "ping", *arguments]


def test_run_sends_and_writes_what_every_echo_took(net: TwoHosts, tmp_path: Path) -> None:
    words = ("run", "here", B, "--outside", "eth0", "--count", str(COUNT), "--interval", "2ms", "-o", str(tmp_path))
    done = subprocess.run(
        command(net.a.name, *words), capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    taken = capture.load(tmp_path / "host.json")
    assert taken.addresses == [A, B]
    assert taken.outside == ["eth0"]
    assert [packet.seq for packet in taken.packets] == list(range(1, COUNT + 1))
    assert {packet.outcome for packet in taken.packets} == {"answered"}
    assert len({packet.id for packet in taken.packets}) == 1
    for packet in taken.packets:
        parts = (packet.request_us, packet.between_us, packet.reply_us)
        assert packet.total_us == pytest.approx(sum(part for part in parts if part is not None))
    assert breakdown.load(tmp_path / "breakdown.json").round_trip_us == pytest.approx(
        sum(packet.total_us or 0 for packet in taken.packets) / COUNT
    )
    assert f"{COUNT} sent, {COUNT} answered, 0 refused" in done.stderr
    assert "netconsole ping capture --role receiver-vm --host ssh://root@HOST" in done.stderr


def test_the_wizard_measures_the_same(net: TwoHosts) -> None:
    ip = shutil.which("ip") or "ip"
    done = subprocess.run(
        [ip, "netns", "exec", net.a.name, sys.executable, "-c", WATCHED, B, str(COUNT)],
        capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    phase, told, run, outcomes, facts = json.loads(done.stdout)
    assert (phase, told, run) == ("ended", f"{COUNT} sent, {COUNT} answered, 0 refused", "watched")
    assert outcomes == ["answered"] * COUNT and facts


def test_a_run_whose_time_is_over_sends_no_more(net: TwoHosts, tmp_path: Path) -> None:
    words = (
        "run",
        "here",
        B,
        "--outside",
        "eth0",
        "--count",
        "5000",
        "--interval",
        "20ms",
        "--duration",
        "1s",
        "--yes",
    )
    done = subprocess.run(
        [*command(net.a.name, *words), "-o", str(tmp_path)], capture_output=True, text=True, timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    packets = capture.load(tmp_path / "host.json").packets
    assert 2 <= len(packets) < 5000
    assert f"{len(packets)} sent, {len(packets)} answered, 0 refused" in done.stderr


def test_a_run_that_sees_no_echo_says_so(net: TwoHosts) -> None:
    words = ("run", "here", "10.98.77.1", "--outside", "eth0", "--count", "1", "--yes")  # there is no way to it
    done = subprocess.run(
        command(net.a.name, *words), capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 3
    assert "cannot send echoes to 10.98.77.1" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("netconsole: no vantage point saw an echo")


def test_a_capture_ends_early_with_what_it_has(net: TwoHosts) -> None:
    words = ("capture", "--role", "sender-host", "--inside", TAPS[0], "--outside", WIRES[0])
    with subprocess.Popen(
        [sys.executable, *COMMAND[1:], "ping", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert "watching as sender-host" in running.stderr.readline()
        net.send(B, COUNT, 1000)
        os.kill(running.pid, signal.SIGTERM)
        told, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0
    taken = capture.parse(told.encode(), "stdout")
    assert [packet.outcome for packet in taken.packets] == ["answered"] * COUNT
    assert (taken.inside, taken.outside, taken.boundary) == ([TAPS[0]], [WIRES[0]], "before_driver")
    assert json.loads(told)["clock"]["wall"]


def test_kill_9_of_a_run_leaves_neither_probes_nor_the_sender(net: TwoHosts) -> None:
    words = ("run", "here", B, "--outside", "eth0", "--count", "500000", "--interval", "50ms", "--yes")
    files = leftovers()
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with TerminalProcess(tuple(command(net.a.name, *words)), {**kept, "TERM": "xterm", "LANG": "C.UTF-8"}) as console:
        console.until("an echo", lambda: b" seq 1: request" in console.output)
        started = children(console.pid)
        held = {one for pid in started for one in held_by(pid)}
        assert len(started) == 2  # the collector, and what sends
        assert held
        os.kill(console.pid, signal.SIGKILL)
        console.wait()
        await_gone(started, held, files)
