"""The console and `snapshot` on a hypervisor: what its operator sees of a guest's packets."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Iterator

import pytest

from .hypervisor import Hypervisor
from .pytest_inside import console_command
from .testbed import Testbed

pytestmark = pytest.mark.lab

SENT = 2000
CLOSED_PORT = 9
COMPILE_LIMIT_S = 120.0
LIMIT_S = 60.0
SNAPSHOT = "/run/lab/snapshot.json"
SIZE = ("-x", "120", "-y", "40")
PER_S = 100
LOOK_AGAIN_S = 0.5


def test_snapshot_holds_each_packet_of_a_guest(testbed: Testbed) -> None:
    """Sent while it measures: the tap took them all, and the closed port's host dropped them all for that reason."""
    probes = ("--probe", "kernel_drops", "--probe", "link_rates")
    command = console_command("snapshot", *probes, "--duration", "10m", "--output", SNAPSHOT)
    with testbed.hypervisor.start("sh", "-c", 'exec "$@" 2>&1', "sh", *command) as snapshot:
        snapshot.wait_for(b"measuring with 2 probes", COMPILE_LIMIT_S)
        testbed.guests[0].send_udp(SENT, testbed.bridge, port=CLOSED_PORT)
        snapshot.signal(signal.SIGINT)
        result = snapshot.wait(LIMIT_S)
    assert result.code == 0, result.text
    measured = json.loads(testbed.hypervisor.read_file(SNAPSHOT))["probes"]
    drops = [row for row in measured["kernel_drops"]["tables"]["drops"] if row["reason"] == "NO_SOCKET"]
    assert sum(row["count"] for row in drops) == SENT, drops
    (tap,) = (row for row in measured["link_rates"]["tables"]["links"] if row["device"] == "vnet0")
    assert tap["rx_packets"] == SENT


@pytest.fixture
def console(testbed: Testbed) -> Iterator[Hypervisor]:
    """The console in a tmux of its own on the hypervisor, while a guest sends to a closed port."""
    guest = testbed.guests[0]
    guest.keep_sending_udp(PER_S, testbed.bridge, port=CLOSED_PORT)
    command = shlex.join(console_command("--profile", "summary"))
    testbed.hypervisor.run("tmux", "-L", "console", "new-session", "-d", *SIZE, command, env={"TERM": "tmux-256color"})
    yield testbed.hypervisor
    testbed.hypervisor.run("tmux", "-L", "console", "kill-server", check=False)
    guest.be_quiet()


def test_console_shows_a_guest_that_loses_packets(console: Hypervisor) -> None:
    wanted = ("hypervisor", "vnet0", "NO_SOCKET")
    deadline = time.monotonic() + COMPILE_LIMIT_S
    shown = ""
    while not all(words in shown for words in wanted) and time.monotonic() < deadline:
        shown = console.run("tmux", "-L", "console", "capture-pane", "-p").text
        time.sleep(LOOK_AGAIN_S)  # a screen is no event that can be awaited, and looking takes the machine's time
    assert all(words in shown for words in wanted), shown
