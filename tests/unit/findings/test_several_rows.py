"""What goes wrong in several rows at one place is one incident, whose sentence says of how many."""

from __future__ import annotations

import pytest

from netconsole.findings.incident import Incident
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Label, Row
from tests.unit.findings.test_rules_of_probes import MS, Played
from tests.unit.telemetry.test_state import SECOND

PROBE = "thread_waits"


def waiting(*threads: tuple[str, str, int]) -> list[Incident]:
    """The incidents after a second in which these threads (of which VM, in which role) waited so many ms."""
    played = Played(PROBE)
    rows = []
    for tid, (vm, role, waited_ms) in enumerate(threads):
        labels: dict[str, Label] = {"vm": vm, "role": role, "tid": tid}
        count = Count(delta=waited_ms * MS, total=waited_ms * MS)
        rows.append(Row(labels=labels, counts={"waited_ns": count}))
    stamp = played.stream.stamp(PROBE)
    played.stream.state.apply(frames.Table(**stamp, name="threads", interval_ns=SECOND, full=True, rows=rows))
    return played.end()


@pytest.mark.parametrize(
    ("vm", "who", "role"), [("web", "web", "vCPU"), ("", "Open vSwitch", "handler")], ids=["of a VM", "of the switch"]
)
def test_threads_that_wait_are_one_incident_of_theirs(vm: str, who: str, role: str) -> None:
    (one,) = waiting((vm, f"{role} 0", 500), (vm, f"{role} 1", 200), (vm, f"{role} 2", 20))
    assert one.sentence == f"{who}: 2 of its threads wait for a CPU: 700 ms of each second, together"
    assert (one.total, one.peak, one.level) == (700 * MS, 700 * MS, "!!")


def test_one_thread_is_said_by_its_role() -> None:
    (one,) = waiting(("web", "vCPU 3", 500), ("web", "vCPU 1", 20))
    assert one.sentence == "web: its vCPU 3 waits for a CPU: 500 ms of each second"


def test_each_machine_and_the_switch_have_their_own() -> None:
    found = waiting(("web", "vCPU 0", 500), ("db", "vCPU 0", 400), ("", "handler 1", 300), ("web", "vCPU 1", 300))
    assert {one.sentence.partition(":")[0]: one.total for one in found} == {
        "web": 800 * MS,
        "db": 400 * MS,
        "Open vSwitch": 300 * MS,
    }
