"""Probes that rest for a while: what began before is not joined with what comes after; no time is as long as a rest.

The same of softirq_health and tx_queue_latency is in their own files.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.contexts.vhost import (
    test_irq_path,
    test_kvm_irqs,
    test_tun_queues,
    test_tx_kick_path,
    test_vhost_queues,
)
from tests.support.live.contexts.machines import machine
from tests.support.live.contexts.moments import MS, elapsed, lies, wait
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.stack import Stack
from tests.support.live.contexts.taps import RX, TX
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import Ways

Load = Callable[..., UnattachedProbe]
REST_MS = 200


def rest(probe: UnattachedProbe) -> None:
    probe.rest()
    wait(REST_MS)
    probe.wake()


@pytest.mark.proves("vhost_queues", "knobs.seen_pct", "histograms.{wake,run}", "counters.runs")
def test_runs_and_wake_ups_of_vhost(load: Load) -> None:
    with machine():
        host = test_vhost_queues.loaded(load)
        host.run(host.here, RX, True, 100)
        host.woken(host.here, RX, kicked=True)  # its run is not seen
        host.begun(host.there, TX, kicked=True)  # its end is not seen
        host.probe.rest()
        host.woken(host.here, RX, kicked=True)
        host.begun(host.here, RX, kicked=True)
        wait(REST_MS)
        host.probe.wake()
        host.flushed(host.there.tx, 0)  # of a run whose begin was not seen
        host.ended()
        host.run(host.here, RX, True, 100)
        woken = host.woken(host.here, RX, kicked=True)
        begun = host.begun(host.here, RX, kicked=True)
        host.ended()
        host.probe.read()
    assert host.probe.counters()["runs"] == 3
    row = test_vhost_queues.row_of(host, direction="rx")
    assert (row["runs"], row["batches"]) == (3, 2) and len(host.probe.rows("queues")) == 1
    (wake,) = host.probe.histograms("wake")
    assert wake["count"] == 1 and lies(wake["sum"], elapsed(woken, begun))
    (run,) = host.probe.histograms("run")
    assert run["count"] == 3 and run["max"] < REST_MS * MS
    assert all(one["max"] < REST_MS * MS for one in host.probe.histograms("scheduled"))


@pytest.mark.proves("tun_queues", "knobs.seen_pct", "tables.queues.taken")
def test_what_vhost_took_meanwhile_is_not_counted(load: Load) -> None:
    with machine():
        host = test_tun_queues.Rings(load("tun_queues", test_tun_queues.FUNCTIONS))
        host.ring(host.here, 5, 5)
        host.offered(host.here)
        host.ring(host.here, 50, 50)
        host.taken(host.here)
        host.probe.rest()
        host.offered(host.here)
        host.ring(host.here, 200, 190)
        host.taken(host.here)
        host.probe.wake()
        host.taken(host.here)
        host.ring(host.here, 200, 193)
        host.taken(host.here)
        host.probe.read()
    (row,) = host.probe.rows("queues")
    assert (row["packets"], row["taken"]) == (1, 45 + 3)


@pytest.mark.proves("irq_path", "knobs.seen_pct", "histograms.stages", "ledger.join_missed")
def test_interrupts_on_their_way(load: Load) -> None:
    with machine():
        host = test_irq_path.loaded(load)
        host.offered(host.here)
        host.given(host.here)
        host.told(host.here)
        host.offered(host.there)  # taken from the ring, and not given
        rest(host.probe)
        host.heard(host.here)
        host.accepted()
        host.given(host.there)
        host.told(host.there)
        host.heard(host.there)
        host.accepted()
        passed = [host.passes(host.here), host.passes(host.there)]
        host.probe.read()
    assert host.probe.counters() == {"interrupts": 2}
    found = [one for one in host.probe.histograms("stages") if one["stage"] == "total"]
    assert sum(one["count"] for one in found) == 2
    assert all(lies(one["sum"], passed[int(one["queue"])].total) for one in found)
    assert host.probe.ledger()["join_missed"] == 1


@pytest.mark.proves("tx_kick_path", "knobs.seen_pct", "histograms.stages")
def test_kicks_and_runs_on_their_way(load: Load) -> None:
    with machine():
        host = test_tx_kick_path.loaded(load)
        host.passes(host.here)
        host.kicked(host.here)  # its run is not seen
        host.kicked(host.there)
        host.begun(host.there)
        rest(host.probe)
        host.handed_over(host.there)  # of a run whose begin was not seen
        host.in_stack(host.there)
        host.ended()
        host.begun(host.here)  # of which no kick is known
        host.handed_over(host.here)
        host.in_stack(host.here)
        host.ended()
        points = host.passes(host.there)
        host.probe.read()
    rows = {row["queue"]: row for row in host.probe.rows("queues")}
    assert host.probe.counters() == {"runs": 2}
    assert (rows[0]["runs"], rows[0]["continued_runs"], rows[1]["runs"], rows[1]["packets"]) == (1, 1, 1, 1)
    totals = {one["queue"]: one for one in host.probe.histograms("stages") if one["stage"] == "total"}
    assert lies(totals[1]["sum"], elapsed(points[0], points[-1])) and totals[0]["count"] == 1
    assert totals[0]["max"] < REST_MS * MS


@pytest.mark.proves("kvm_irqs", "knobs.seen_pct")
def test_lines_and_virtual_cpus_do_not_count_meanwhile(load: Load) -> None:
    with machine() as process:
        host = test_kvm_irqs.Machines(load("kvm_irqs", test_kvm_irqs.FUNCTIONS), "made0", (process, process))
        host.signalled(host.here)
        host.probe.rest()
        host.signalled(host.here)
        host.deferred(host.here)
        for program in ("halted", "kicked"):
            host.ran(program, host.here.vcpu)
        host.ran("awake", 7, 1, 1)
        host.probe.wake()
        host.signalled(host.here)
        host.accepted(7, 0x41)
        host.ran("halted", host.here.vcpu)
        host.ran("awake", 30, 1, 1)
        host.probe.read()
    assert host.probe.counters() == {"wakeups": 2, "halts": 1}
    (row,) = host.probe.rows("lines")
    assert (row["wakeups"], row["deferred"], row["accepted"]) == (2, 0, 1)
    (vcpu,) = host.probe.rows("vcpus")
    assert (vcpu["halts"], vcpu["halted_ns"], vcpu["kicks"]) == (1, 30, 0)


@pytest.mark.proves("host_path", "knobs.seen_pct", "histograms.crossing", "ledger.join_missed")
def test_packets_that_cross_the_host(load: Load) -> None:
    probe = load("host_path")
    host = Ways(probe)
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    rest(probe)
    host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])
    crossed = host.cross(Flow(source_port=7), "tap0", "eth0", (1, 1, 1))
    probe.read()
    assert (probe.counters()["received"], probe.counters()["crossed"]) == (2, 1)
    (crossing,) = probe.histograms("crossing")
    assert crossing["count"] == 1 and lies(crossing["sum"], crossed.total)


@pytest.mark.proves("local_path", "knobs.seen_pct", "histograms.crossing")
def test_packets_to_and_from_sockets(load: Load) -> None:
    probe = load("local_path", {"ready": "on_ready"})
    host = Stack(probe)
    before, after = host.come(Flow(), "eth0"), host.come(Flow(), "eth0")
    host.ran("receive", before)
    rest(probe)
    host.ready(before)
    received = host.ran("receive", after)
    ready = host.ready(after)
    probe.read()
    assert (probe.counters()["received"], probe.counters()["delivered"]) == (2, 1)
    (crossing,) = probe.histograms("crossing")
    assert crossing["count"] == 1 and lies(crossing["sum"], elapsed(received, ready))
