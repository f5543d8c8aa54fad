"""vm_states on the lab's guests: one that sleeps is told from one that is paused, and that from a stopped process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.lab.machine.hypervisor import CHECKOUT
from tests.lab.machine.machine import Process
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import paused, stopped

# Reads the whole table at every line of its input, and prints the state of each machine as one line of JSON.
READER = """
import json, sys
from netconsole_collector.sources import base, vm_states
base.FULL_EVERY = 1
source, names = vm_states.VmStates(), ("paused", "stopped")
for _ in sys.stdin:
    (table,) = source.read(base.SourceReading(1))
    found = {row["labels"]["vm"]: [name for name in names if row["gauges"][name]] for row in table["rows"]}
    print(json.dumps(found), flush=True)
"""
SLEEP_S = "1"


@pytest.fixture
def reader(testbed: Testbed) -> Iterator[Process]:
    environment = {"PYTHONPATH": str(CHECKOUT / "src")}
    one = testbed.hypervisor.start(sys.executable, "-c", READER, env=environment, cwd=CHECKOUT)
    yield one
    one.close_input()
    one.wait()


def states(testbed: Testbed, reader: Process) -> dict[str, list[str]]:
    """After an interval in which nobody asked anything of the guests."""
    for _ in range(2):
        reader.write(b"\n")
        found: dict[str, list[str]] = json.loads(reader.wait_for(b"\n"))
        testbed.hypervisor.run("sleep", SLEEP_S)
    return found


def test_a_guest_that_sleeps_is_neither_paused_nor_stopped(testbed: Testbed, reader: Process) -> None:
    assert states(testbed, reader) == {guest.name: [] for guest in testbed.guests}


@pytest.mark.proves("vm_states", "tables.machines.{vm,paused,stopped}", "modes.summary")
def test_a_paused_guest_and_a_stopped_process(testbed: Testbed, reader: Process) -> None:
    first, second = testbed.guests
    with paused(first), stopped(testbed.hypervisor, second):
        assert states(testbed, reader) == {first.name: ["paused"], second.name: ["stopped"]}
    assert states(testbed, reader) == {first.name: [], second.name: []}
