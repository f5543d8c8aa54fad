"""Probes on functions that are attached for a share of the time, while a guest is pinged and flooded."""

from __future__ import annotations

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import flood, ping

PROBES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs")
SHARE_PCT = 25
RESTED_MS = 30_000
FLOOD, PINGS = 2000, 40
NS_PER_S = 1_000_000_000
TIMED = {
    "vhost_queues": ("wake", "run"),
    "irq_path": ("stages",),
    "tx_kick_path": ("stages",),
}


@pytest.mark.proves("vhost_queues", "knobs.seen_pct")
@pytest.mark.proves("tun_queues", "knobs.seen_pct")
@pytest.mark.proves("irq_path", "knobs.seen_pct")
@pytest.mark.proves("tx_kick_path", "knobs.seen_pct")
@pytest.mark.proves("kvm_irqs", "knobs.seen_pct")
def test_probes_of_a_guests_path_come_and_go_and_no_time_is_as_long_as_a_rest(testbed: Testbed, lab: Lab) -> None:
    collector: InsideMeasurement = lab.collector(testbed)
    for name in PROBES:
        collector.need(name)
    try:
        for name in PROBES:
            collector.set(name, seen_pct=SHARE_PCT)
        see_them_rest(testbed, collector)
    finally:
        for name in PROBES:
            collector.set(name)
    collector.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS, interval_s=0.02)
    collector.settle()
    tap = testbed.guests[0].card.tap
    assert collector.total("vhost_queues", "queues", "packets", device=tap, direction="tx") >= PINGS, "all again"


def see_them_rest(testbed: Testbed, collector: InsideMeasurement) -> None:
    collector.begin()

    def send() -> None:
        flood(testbed.hypervisor, testbed.guests[0].card.at.ip, FLOOD)
        ping(testbed.hypervisor, testbed.guests[0], PINGS, interval_s=0.02)

    def have_rested() -> bool:
        send()
        rested = {name: collector.ledger(name, "unseen_ms") for name in PROBES}
        print("rested for ms:", rested)
        return all(one > RESTED_MS for one in rested.values())

    def counted() -> tuple[int, int]:
        return collector.counter("vhost_queues", "runs"), collector.total("tun_queues", "queues", "taken")

    def have_come_back() -> bool:
        send()
        return all(now > before for now, before in zip(counted(), before_coming_back, strict=True))

    collector.until(have_rested, "rests")
    before_coming_back = counted()
    collector.until(have_come_back, "packets after a rest")  # a rest takes up to half a minute
    collector.settle()
    longest = {
        f"{name}/{histogram}": max((one.total.max or 0 for one in collector.histograms(name, histogram)), default=0)
        for name, histograms in TIMED.items()
        for histogram in histograms
    }
    print({name: f"{ns / NS_PER_S:.3f} s" for name, ns in longest.items()})
    for name in PROBES:
        cost, ledger = collector.cost(name), collector.cost(name).ledger
        print(name, {entry: count.total for entry, count in ledger.items() if count.total}, cost.statistics)
        assert collector.statuses[name].state == "attached", collector.statuses[name]
    assert all(longest.values()), "all of them saw traffic"
    assert max(longest.values()) < NS_PER_S, "a rest takes some seconds, a packet does not"
