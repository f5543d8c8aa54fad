"""What the probes between tap and guest find: one incident for a stuck queue, and a late worker by what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PlayedSession

PROBES = ("kernel_drops", "link_rates", "tun_queues", "vhost_queues", "vm_states")
PLACE = {"device": "vnet0", "netns": "host"}
QUEUE = {**PLACE, "vm": "web", "queue": 0}


class Watched:
    """A host with one VM, interval by interval."""

    def __init__(self) -> None:
        self.session = PlayedSession()
        self.incidents = Incidents({name: catalogue.shipped(name) for name in PROBES})
        self.totals: dict[tuple[str, str], int] = {}
        self.scenario = Scenario().hello()
        for probe in PROBES:
            self.scenario.status(probe)
        self.session.play(self.scenario.end())

    def row(self, probe: str, table: str, labels: dict[str, Any], gauges: dict[str, int], **moved: int) -> None:
        counts = {}
        for name, delta in moved.items():
            self.totals[probe, name] = self.totals.get((probe, name), 0) + delta
            counts[name] = delta, self.totals[probe, name]
        self.scenario.table(probe, table, [{"labels": labels, "counts": counts, "gauges": gauges}])

    def stuck(self, lost: int) -> None:
        """Every probe tells of a queue of which nothing is taken."""
        drop = {"location": "tun_net_xmit", "reason": "FULL_RING", "class": "suspicious", "provenance": "kernel"}
        drop |= {"ethertype": "IPv4", "protocol": "UDP"}
        self.row("kernel_drops", "drops", {**PLACE, **drop}, {}, count=lost)
        self.row("tun_queues", "queues", QUEUE, {"size": 1000}, packets=lost, ring_full=lost, stuck=lost, taken=0)
        gauges = {"depth_buffers": 0, "starving": 1, "unanswered": 1}
        self.row("vhost_queues", "queues", {**QUEUE, "direction": "rx"}, gauges, runs=200, starved_runs=200)

    def end(self) -> list[Incident]:
        self.session.play(self.scenario.end())
        self.scenario.lines = []
        return self.incidents.update(self.session.state)


@pytest.mark.parametrize("stuck", [[0, 350], [350]])
def test_what_was_lost_before_a_queue_was_stuck_is_counted_with_it(stuck: list[int]) -> None:
    watched = Watched()
    for part in stuck:
        watched.scenario.lines = []
        watched.row("tun_queues", "queues", QUEUE, {"size": 1000}, packets=2000, ring_full=2000, stuck=part, taken=0)
        (one,) = watched.end()
    assert (one.total, one.peak) == (2000 * len(stuck), 2000.0) and one.sentence.startswith("stuck queue")


@pytest.mark.proves("tun_queues", "findings.queues.stuck.!!")
def test_a_stuck_queue_is_one_incident_that_the_most_specific_rule_says() -> None:
    watched = Watched()
    watched.scenario.lines = []
    for _ in range(5):
        watched.stuck(950)
        found = watched.end()
    (one,) = found
    assert one.sentence.startswith("stuck queue: web vnet0 q0: ring full")
    assert {proof.probe for proof in one.evidence} == {"kernel_drops", "tun_queues", "vhost_queues"}


@pytest.mark.parametrize(
    ("gauge", "sentence"),
    [
        ("paused", "web is paused: QEMU runs none of its virtual CPUs"),
        ("stopped", "web is stopped: its QEMU process gets no CPU (SIGSTOP, or a debugger)"),
    ],
)
@pytest.mark.proves("vm_states", "findings.machines.paused.!!", "findings.machines.stopped.!!")
def test_what_a_machine_loses_that_does_not_run_is_one_incident(gauge: str, sentence: str) -> None:
    watched = Watched()
    watched.scenario.lines = []
    for _ in range(5):
        watched.stuck(950)
        watched.row("vm_states", "machines", {"vm": "web", "process": "qemu/7"}, {gauge: 1}, cpu_ns=0)
        found = watched.end()
    (one,) = found
    assert (one.sentence, one.level) == (sentence, "!!")
    assert {proof.probe for proof in one.evidence} == set(PROBES) - {"link_rates"}


@pytest.mark.parametrize(("waited_ms", "stands_out"), [(3 * 10, False), (705, True)])
@pytest.mark.proves("vhost_queues", "findings.workers.waited_ms.!")
def test_a_worker_is_late_by_the_time_that_it_waits_in_all(waited_ms: int, stands_out: bool) -> None:
    """Ten times 3 ms in a second, as on a healthy but slow host; and once 705 ms."""
    watched = Watched()
    watched.scenario.lines = []
    for _ in range(5):
        worker = {**QUEUE, "worker": "vhost-77"}
        watched.row("vhost_queues", "workers", worker, {"cpu": 1, "node": 0}, cpu_ns=1000, waited_ms=waited_ms)
        found = watched.end()
    said = [one.sentence for one in found]
    assert said == (["web vnet0 q0: its vhost worker waits 705 ms of each second for a CPU"] if stands_out else [])


@pytest.mark.parametrize(("faults", "stands_out"), [(99, False), (340, True)])
@pytest.mark.proves("vm_states", "findings.memory.faults.!")
def test_memory_that_comes_back_from_disk_stands_out(faults: int, stands_out: bool) -> None:
    watched = Watched()
    watched.scenario.lines = []
    for _ in range(5):
        gauges = {"used": 512 << 20, "limit": 512 << 20}
        watched.row("vm_states", "memory", {"vm": "web", "process": "qemu/7"}, gauges, faults=faults)
        found = watched.end()
    said = [one.sentence for one in found]
    assert said == (["web: its memory comes back from disk: 170 page faults/s"] if stands_out else [])
