"""Probes that are attached for a share of the time: what that costs, what they say, and that all is exact again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.tables import seen_ns
from tests.live.probes.test_softirq_health import runs
from tests.support.live.measurement import SEEN, Measurement
from tests.support.live.network import Wire, send_udp
from tests.support.live.storm import Storm

SOFTIRQS, QUEUES = "softirq_health", "tx_queue_latency"
LEAVES = ("pfifo_enqueue", "bfifo_enqueue", "fq_codel_enqueue")
RATE = 2000
TENTH = 10
UNSEEN_MS = 6000
"""Six periods or so."""


Kind = TypeVar("Kind", bound=frames.Frame)


class Kept(Measurement):
    """Keeps the frames of figures."""

    def __init__(self) -> None:
        self.kept: list[frames.AnyFrame] = []
        super().__init__()

    def _fold(self, frame: frames.AnyFrame) -> None:
        self.kept.append(frame)
        super()._fold(frame)

    def of(self, kind: type[Kind], probe: str) -> list[Kind]:
        with self._changed:
            return [frame for frame in self.kept if isinstance(frame, kind) and frame.probe == probe]


@pytest.fixture(scope="module")
def collector() -> Iterator[Kept]:
    measurement = Kept()
    measurement.command(command="statistics", window_ms=100, every_ms=200)
    measurement.load(SOFTIRQS)
    measurement.load(QUEUES)
    yield measurement
    measurement.close()


def ns_per_run(costs: list[frames.Cost], kernels: int) -> float:
    """Run time of all programs in the statistics windows, of what they stand for; of each run that the kernel counts.

    Per run, for other tests make more or fewer of them meanwhile.
    """
    known = [one for one in costs if one.statistics is not None and one.statistics.window_ns]
    time_ns = sum(program.run_time_ns for one in known for program in one.programs)
    share = time_ns / sum(one.statistics.window_ns for one in known if one.statistics)
    return share * sum(one.interval_ns for one in costs) / kernels


@pytest.mark.proves("softirq_health", "knobs.seen_pct")
@pytest.mark.proves("tx_queue_latency", "knobs.seen_pct")
@pytest.mark.proves("collector", "ledger.unseen_ms")
def test_a_tenth_of_the_time_costs_a_tenth_and_says_so(collector: Kept, wire: Wire) -> None:
    wire.shape("1gbit", "100kb", "1mb")
    with Storm(wire.a, RATE):
        collector.kept.clear()
        collector.begin()
        kernels = runs("NET_RX")
        send_udp(wire.a, wire.ADDRESSES[1], 9, 3000)
        collector.settle()
        collector.until(lambda: len(collector.of(frames.Cost, SOFTIRQS)) > 40, "figures of the whole cost")
        whole = ns_per_run(collector.of(frames.Cost, SOFTIRQS), runs("NET_RX") - kernels)
        collector.set(SOFTIRQS, seen_pct=TENTH)
        collector.set(QUEUES, seen_pct=TENTH)
        collector.settle()
        collector.kept.clear()
        collector.begin()
        kernels = runs("NET_RX")
        collector.until(lambda: collector.ledger(SOFTIRQS, "unseen_ms") > UNSEEN_MS, "enough time without the probe")
        kernels = runs("NET_RX") - kernels
    counted = collector.of(frames.Counters, SOFTIRQS)
    share = sum(seen_ns(one) for one in counted) / sum(one.interval_ns for one in counted)
    assert 0.03 < share < 0.3
    # What was seen is that share of what the kernel counted, by and large: periods are not long.
    assert 0.3 * share < collector.total(SOFTIRQS, "cpus", "rx_runs") / kernels < 3 * share
    reduced = ns_per_run(collector.of(frames.Cost, SOFTIRQS), kernels)
    assert reduced < 0.4 * whole
    print(f"seen {100 * share:.1f} %, cost {100 * reduced / whole:.1f} % of the whole")
    for probe in (SOFTIRQS, QUEUES):
        status = collector.statuses[probe]
        # Where no function can be watched, tx_queue_latency lacks its hooks of leaves, and nothing else.
        lacking = [point for point in status.missing if probe != QUEUES or not point.endswith(LEAVES)]
        assert not lacking and len(status.attach) >= 3, "it is attached, now and then"


def test_all_is_exact_again_as_soon_as_it_is_attached_all_the_time(collector: Kept, wire: Wire) -> None:
    for probe in (SOFTIRQS, QUEUES):
        collector.set(probe, seen_pct=TENTH)
    collector.begin()
    collector.until(lambda: collector.ledger(SOFTIRQS, "unseen_ms") > 1000, "a rest")
    for probe in (SOFTIRQS, QUEUES):
        collector.set(probe)
    outside = runs("NET_RX")
    collector.begin()
    inside = runs("NET_RX")
    collector.settle()
    collector.kept.clear()
    send_udp(wire.a, wire.ADDRESSES[1], 9, 3000, senders=2)
    least = runs("NET_RX") - inside
    collector.settle()
    most = runs("NET_RX") - outside
    assert SEEN * least <= collector.total(SOFTIRQS, "cpus", "rx_runs") <= most
    assert all(one.seen_ns is None for one in collector.of(frames.Counters, QUEUES))
