"""Slow samples of host_path say on which CPU, with which hash of its flow, and what waited behind the packet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.memory import size_of
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import Ways

Load = Callable[..., UnattachedProbe]


@pytest.mark.proves("host_path", "events.slow.{cpu,flow_hash,queue_packets}")
def test_a_slow_sample_has_its_cpu_its_hash_and_the_packets_behind_it(load: Load) -> None:
    probe = load("host_path")
    host = Ways(probe)
    probe.set("details", events_per_s=1e6)
    eth0 = host.devices["eth0"]
    qdisc = host.memory.make("Qdisc", {"q.qlen": 17})
    queues = host.memory.keep(bytes(3 * size_of("netdev_queue")))
    for number in range(3):  # the third one is that of the packet
        of_queue = {"dev": eth0, "qdisc": qdisc if number == 2 else host.memory.make("Qdisc", {"q.qlen": number})}
        host.memory.change("netdev_queue", queues + number * size_of("netdev_queue"), of_queue)
    host.memory.change("net_device", eth0, {"_tx": queues})
    for queue, value in ((2, 0xC0FFEE01), (1, 0), (0, 7)):
        skb = host.come(Flow(source_port=1 + queue), "tap0")
        host.ran("receive", skb)
        host.memory.change("sk_buff", host.leaving(skb, eth0), {"hash": value, "queue_mapping": queue})
        host.ran("queue", skb)
        host.ran("send", skb, eth0)
    probe.read()
    told = [(one["cpu"], one["flow_hash"], one["queue_packets"]) for one in probe.events()]
    assert told == [(0, "0xc0ffee01", 17), (0, "0x0", 1), (0, "0x7", 0)]


@pytest.mark.proves("host_path", "events.slow.{stack,queued_stack,received_stack}", "knobs.with_stacks")
def test_where_asked_a_slow_sample_has_the_way_to_each_of_its_points(load: Load) -> None:
    """All of them are run by this test: the way to each begins with what runs a program."""
    probe = load("host_path")
    host = Ways(probe)
    stacks = "stack", "queued_stack", "received_stack"
    for mode, asked in (("details", True), ("details", False), ("summary", True), ("details", True)):
        probe.set(mode, events_per_s=1e6, with_stacks=asked)
        host.cross(Flow(), "tap0", "eth0")
    probe.set("details", events_per_s=1e6, with_stacks=True)
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])  # it was in no queue
    probe.read()
    told = [tuple(bool(one[name]) for name in stacks) for one in probe.events()]
    assert told == [(True,) * 3, (False,) * 3, (True,) * 3, (True, False, True)]
    first = probe.events()[0]
    assert all(any("test_run" in str(frame) for frame in first[name]) for name in stacks), first
