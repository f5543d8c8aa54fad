"""Faults that only a hypervisor can have: each is one incident that says its cause, and counts what was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.session import live
from netconsole.telemetry.session import News
from tests.lab.collector import InsideProcess
from tests.lab.kernels.compiled import bring, shipped
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import flood, flows, frozen
from tests.support.commanded_host import CommandedHost
from tests.support.session_news import SessionNews

PROBES = ("kernel_drops", "tun_queues", "vhost_queues", "ovs_upcalls")
LIMIT_S = 120.0
RING = 256
"""Packets that a tap's ring and a guest's queue hold together are some hundreds: a flood of many more is dropped."""


class Console:
    """What STANDS OUT says out here of the hypervisor inside."""

    def __init__(self) -> None:
        manifests = load_all()
        profile = load("summary", manifests)
        requests = [one for one in plan(profile, manifests, PROBES) if one.name in PROBES]
        self.session = live.LiveSession(CommandedHost(()), requests)
        self._incidents = Incidents(manifests)
        self._log: Sequence[Incident] = ()
        self.session.on_news(self._heard)
        self.until = SessionNews(self.session, LIMIT_S).until
        self.session.start()
        self.until(
            lambda state: all(probe.settled for probe in state.probes.values()) and state.collector.intervals > 1
        )

    def _heard(self, _: News) -> None:
        with self.session.view() as state:
            self._incidents.update(state, self.session.connection())
        self._log = tuple(self._incidents.log)

    def of(self, cause: str) -> list[Incident]:
        """All incidents of a cause since the start."""
        return [one for one in self._log if one.cause == cause]

    def the_one(self, cause: str, before: int) -> Incident:
        """The incident that has come since there were ``before`` of its cause, after its end."""
        self.until(lambda _: len(self.of(cause)) > before and all(one.ended_ns for one in self.of(cause)))
        *_, one = found = self.of(cause)
        assert len(found) == before + 1, [one.sentence for one in found]
        return one


@pytest.fixture(scope="module")
def console(testbed: Testbed) -> Iterator[Console]:
    bring(testbed.hypervisor, shipped(PROBES).values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "CollectorProcess", lambda *_: InsideProcess(testbed.hypervisor))
        one = Console()
        yield one
        one.session.close()


def test_a_guest_that_does_not_run_is_one_incident_of_its_queue(testbed: Testbed, console: Console) -> None:
    guest, hypervisor = testbed.guests[0], testbed.hypervisor
    before = len(console.of("tap-ring-full")), hypervisor.counter("vnet0", "tx_dropped")
    with frozen(hypervisor, guest):
        flood(hypervisor, guest.card.at.ip, 20 * RING)
        console.until(lambda _: len(console.of("tap-ring-full")) > before[0])
    one = console.the_one("tap-ring-full", before[0])
    assert "vnet0" in one.sentence and one.where["device"] == "vnet0"
    assert one.total == hypervisor.counter("vnet0", "tx_dropped") - before[1]
    assert {evidence.probe for evidence in one.evidence} >= {"tun_queues", "kernel_drops"}


def test_a_switch_without_handlers_is_one_incident_of_its_datapath(testbed: Testbed, console: Console) -> None:
    before = len(console.of("upcalls-lost"))
    with testbed.ovs.without_handlers():
        testbed.hypervisor.run("ovs-appctl", "revalidator/purge")  # what a known flow has is no upcall
        flows(testbed.hypervisor, testbed.guests[0].card.at.ip, 300, 1)
        console.until(lambda _: len(console.of("upcalls-lost")) > before)
    one = console.the_one("upcalls-lost", before)
    assert "no handler is registered" in one.sentence
    assert one.total is not None and one.total > 0 and not one.at_least
