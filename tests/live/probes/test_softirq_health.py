"""softirq_health agrees with the kernel's own counts of softirqs, whatever else this machine does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.live.measurement import SEEN, Measurement
from tests.support.live.network import IS_EMULATED, Wire, send_udp

PROBE = "softirq_health"
SOME = 5000
STORM = 5_000 if IS_EMULATED else 50_000
FEW = 1000
FAST_PER_S = 60_000
"""Runs a second of which some are not timed in either mode: 256 in eight ticks are, and what the breaker lets pass."""
BECAME = ("submitted", "suppressed", "lost")


@pytest.fixture(scope="module")
def softirqs(collector: Measurement) -> Measurement:
    collector.load(PROBE)
    return collector


def runs(name: str) -> int:
    """/proc/softirqs: counted right before the tracepoint (kernel/softirq.c, handle_softirqs), over all CPUs."""
    lines = Path("/proc/softirqs").read_text().splitlines()
    return next(sum(map(int, line.split()[1:])) for line in lines if line.split()[0] == f"{name}:")


def test_runs_lie_between_two_readings_of_the_kernels_own_count(softirqs: Measurement, wire: Wire) -> None:
    outside = runs("NET_RX")
    softirqs.begin()
    inside = runs("NET_RX")
    send_udp(wire.a, wire.ADDRESSES[1], 9, SOME, senders=2)
    least = runs("NET_RX") - inside
    softirqs.settle()
    most = runs("NET_RX") - outside
    assert SEEN * least <= softirqs.total(PROBE, "cpus", "rx_runs") <= most
    assert least > SOME // 100


def test_polled_packets_are_at_least_those_sent(softirqs: Measurement, wire: Wire) -> None:
    softirqs.begin()
    send_udp(wire.a, wire.ADDRESSES[1], 9, SOME, senders=2)
    softirqs.settle()
    assert softirqs.total(PROBE, "cpus", "packets") >= SOME
    assert softirqs.total(PROBE, "cpus", "polls") >= softirqs.total(PROBE, "cpus", "rx_runs") // 2
    # Two tables are read one after the other, and softirqs do not wait.
    softirqs.until(
        lambda: softirqs.total(PROBE, "cpus", "exhausted") == softirqs.total(PROBE, "exhausted"),
        "an account of all exhausted polls",
    )
    assert softirqs.total(PROBE, "exhausted") <= softirqs.total(PROBE, "cpus", "polls")


def test_every_run_has_a_latency_or_is_in_the_ledger(softirqs: Measurement, wire: Wire) -> None:
    softirqs.begin()
    send_udp(wire.a, wire.ADDRESSES[1], 9, SOME)
    softirqs.settle()
    added = softirqs.samples(PROBE, "late")
    added += softirqs.ledger(PROBE, "join_missed") + softirqs.ledger(PROBE, "unmeasured")
    ended = softirqs.total(PROBE, "cpus", "rx_runs") + softirqs.total(PROBE, "cpus", "tx_runs")
    # Frames are read one after another, while the machine goes on.
    assert added == pytest.approx(ended, rel=0.05, abs=50) and ended > SOME // 100
    for one in softirqs.histograms(PROBE, "late"):
        assert one.labels["softirq"] in ("NET_RX", "NET_TX")
        assert one.total.min is not None and one.total.max is not None and 0 < one.total.min <= one.total.max


def test_in_a_storm_some_are_timed_and_all_are_counted(softirqs: Measurement, wire: Wire) -> None:
    """A thousand datagrams in eight ticks are more than are timed; in mode details as many as the breaker lets pass."""
    unmeasured: list[int] = []
    for mode in ("summary", "details"):
        softirqs.set(PROBE, mode)
        softirqs.begin()
        inside, began_s = runs("NET_RX"), time.monotonic()
        send_udp(wire.a, wire.ADDRESSES[1], 9, STORM)
        least = runs("NET_RX") - inside
        took_s = time.monotonic() - began_s
        softirqs.settle()
        assert softirqs.total(PROBE, "cpus", "rx_runs") >= SEEN * least
        if least > max(STORM // 2, FAST_PER_S * took_s):  # else the receiver took many at once, or it was no storm
            unmeasured.append(softirqs.ledger(PROBE, "unmeasured"))
    softirqs.set(PROBE, "summary")
    if len(unmeasured) == 2:
        assert unmeasured[0] > unmeasured[1] > 0
    print(unmeasured)


def test_time_spent_is_within_the_time_that_there_was(softirqs: Measurement, wire: Wire) -> None:
    softirqs.begin()
    send_udp(wire.a, wire.ADDRESSES[1], 9, SOME)
    softirqs.settle()
    for row in softirqs.rows(PROBE, "cpus"):
        longest = row.gauges["rx_longest_ns"]
        if row.counts["rx_runs"]:
            assert longest and 0 < row.counts["rx_ns"] <= row.counts["rx_runs"] * longest


def test_the_time_that_events_take_is_bounded_in_the_kernel(softirqs: Measurement, wire: Wire) -> None:
    """With next to no time for them hardly any are made, and all the others are counted."""
    submitted = {}
    for bound_pct in (0.0, 1e-6):
        assert softirqs.command(command="bound", kernel_cpu_pct=bound_pct).ok
        softirqs.set(PROBE, "details", threshold_us=0, events_per_s=100_000)
        softirqs.begin()
        send_udp(wire.a, wire.ADDRESSES[1], 9, FEW)
        softirqs.settle()
        # The counters are read one after the other, and softirqs do not wait: one event may be in some of them alone.
        softirqs.until(
            lambda: softirqs.event_count(PROBE, "seen") == sum(softirqs.event_count(PROBE, name) for name in BECAME),
            "an account of all events",
        )
        submitted[bound_pct] = softirqs.event_count(PROBE, "submitted")
        assert bound_pct == 0 or softirqs.ledger(PROBE, "breaker") > 0
    softirqs.command(command="bound", kernel_cpu_pct=0)
    softirqs.set(PROBE, "summary")
    assert submitted[1e-6] < submitted[0.0]
