"""The console and `snapshot` on a hypervisor: what its operator sees of a guest's packets."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.kernels.fetch import fetch, kernels
from tests.lab.machine.errors import LabUnavailable, MachineDied
from tests.lab.machine.hypervisor import CHECKOUT
from tests.lab.machine.remains import Traces, descendants, names, wait_until_gone
from tests.lab.network.testbed import Testbed
from tests.lab.pytest_inside import console_command
from tests.support.terminal_process import TerminalProcess

SENT = 2000
CLOSED_PORT = 9
MEASURING_LIMIT_S = 240.0  # until the probes are compiled
LIMIT_S = 60.0
SNAPSHOT = "/run/lab/snapshot.json"
PROBES = ("vhost_queues", "kernel_drops", "link_rates")


def rows(measured: dict[str, Any], probe: str, table: str, **labels: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = measured[probe]["tables"][table]
    return [row for row in found if labels.items() <= row.items()]


def test_packets_of_a_guest_are_counted_alike(testbed: Testbed) -> None:
    """By the sender, its tap, Open vSwitch, our probes in its vhost worker and at the drop, and our interface rates."""

    def counters() -> tuple[int, int]:
        return testbed.hypervisor.counter("vnet0", "rx_packets"), testbed.ovs.port_counters("vnet0")["rx_packets"]

    # The bridge's own port hands packets over by the CPU's backlog, which sheds them where this machine is busy.
    testbed.hypervisor.run("sysctl", "-q", "-w", f"net.core.netdev_max_backlog={2 * SENT}")
    bring(testbed.hypervisor, shipped(PROBES).values())
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


def is_shown(text: str) -> bool:
    """Raises MachineDied where `make lab` says so of its machine."""
    if ": the machine " in text:
        raise MachineDied(text)
    return all(words in text for words in ("hypervisor", "vnet0", "NO_SOCKET"))


def test_make_lab_shows_a_guest_that_loses_packets_and_leaves_nothing(tmp_path: Path) -> None:
    """What `make lab` runs, on a terminal that is pulled away in the middle."""
    try:
        fetch(kernels()[0])
    except LabUnavailable as error:
        pytest.skip(str(error))
    before = Traces.now(tmp_path)
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(tmp_path)}
    started_s = time.monotonic()
    with TerminalProcess((sys.executable, "-m", "tests.lab"), environment) as terminal:
        terminal.until("its drops", lambda: is_shown(terminal.text()), MEASURING_LIMIT_S)
        print(f"make lab: a guest's packets on the console's screen after {time.monotonic() - started_s:.0f} s")
        started = descendants(terminal.pid)
        assert "qemu-system-x86" in names(started)
        terminal.hang_up()
        terminal.wait(LIMIT_S)
    assert not wait_until_gone(started)
    assert Traces.now(tmp_path) == before
