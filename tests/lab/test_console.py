"""The console and `snapshot` on a hypervisor: what its operator sees of a guest's packets."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .hypervisor import Hypervisor
from .pytest_inside import console_command
from .testbed import Testbed

pytestmark = pytest.mark.lab

SENT = 2000
CLOSED_PORT = 9
MEASURING_LIMIT_S = 240.0  # until the probes are compiled
LIMIT_S = 60.0
SNAPSHOT = "/run/lab/snapshot.json"
PROBES = ("vhost_queues", "kernel_drops", "link_rates")
SIZE = ("-x", "120", "-y", "40")
PER_S = 100
LOOK_AGAIN_S = 0.5


def rows(measured: dict[str, Any], probe: str, table: str, **labels: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = measured[probe]["tables"][table]
    return [row for row in found if labels.items() <= row.items()]


def test_packets_of_a_guest_are_counted_alike(testbed: Testbed) -> None:
    """By the sender, its tap, Open vSwitch, our probes in its vhost worker and at the drop, and our interface rates."""

    def counters() -> tuple[int, int]:
        return testbed.hypervisor.counter("vnet0", "rx_packets"), testbed.ovs.port_counters("vnet0")["rx_packets"]

    # The bridge's own port hands packets over by the CPU's backlog, which sheds them where this machine is busy.
    testbed.hypervisor.run("sysctl", "-q", "-w", f"net.core.netdev_max_backlog={2 * SENT}")
    chosen = [word for probe in PROBES for word in ("--probe", probe)]
    options = ("--profile", "vhost", *chosen, "--duration", "10m", "--output", SNAPSHOT)
    command = console_command("snapshot", *options)
    with testbed.hypervisor.start("sh", "-c", 'exec "$@" 2>&1', "sh", *command) as snapshot:
        snapshot.wait_for(f"measuring with {len(PROBES)} probes".encode(), MEASURING_LIMIT_S)
        before = counters()
        testbed.guests[0].send_udp(SENT, testbed.bridge, port=CLOSED_PORT)
        after = counters()
        snapshot.signal(signal.SIGINT)
        result = snapshot.wait(LIMIT_S)
    assert result.code == 0, result.text
    measured = json.loads(testbed.hypervisor.read_file(SNAPSHOT))["probes"]
    counted = {
        "tap": after[0] - before[0],
        "Open vSwitch": after[1] - before[1],
        "vhost_queues": sum(
            row["packets"] for row in rows(measured, "vhost_queues", "queues", device="vnet0", direction="tx")
        ),
        "kernel_drops": sum(row["count"] for row in rows(measured, "kernel_drops", "drops", reason="NO_SOCKET")),
        "link_rates": sum(row["rx_packets"] for row in rows(measured, "link_rates", "links", device="vnet0")),
    }
    assert counted == dict.fromkeys(counted, SENT)


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
    deadline = time.monotonic() + MEASURING_LIMIT_S
    shown = ""
    while not all(words in shown for words in wanted) and time.monotonic() < deadline:
        shown = console.run("tmux", "-L", "console", "capture-pane", "-p").text
        time.sleep(LOOK_AGAIN_S)  # a screen is no event that can be awaited, and looking takes the machine's time
    assert all(words in shown for words in wanted), shown
