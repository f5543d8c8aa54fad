"""Slow samples of host_path say on which CPU, with which hash of its flow, and what waited behind the packet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.live.contexts.paths.test_host_path_switch import AS_FUNCTIONS, AS_TRACEPOINTS, Switch
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


STACKS = ("received_stack", "asked_stack", "acted_stack", "first_stack", "queued_stack", "stack")


@pytest.mark.proves("host_path", "events.slow.{stack,queued_stack,received_stack,first_stack}", "knobs.with_stacks")
def test_where_asked_a_slow_sample_has_the_way_to_each_of_its_points(load: Load) -> None:
    """All of them are run by this test: the way to each begins with what runs a program."""
    probe = load("host_path")
    host = Ways(probe)
    for mode, asked in (("details", True), ("details", False), ("summary", True), ("details", True)):
        probe.set(mode, events_per_s=1e6, with_stacks=asked)
        host.cross(Flow(), "tap0", "eth0")
    probe.set("details", events_per_s=1e6, with_stacks=True)
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])  # it was in no queue
    host.cross(Flow(), "tap0", "eth0", by="br0")
    probe.read()
    points = {"received_stack", "queued_stack", "stack"}
    assert list(map(given, probe.events())) == [
        points,
        set(),
        points,
        points - {"queued_stack"},
        {*points, "first_stack"},
    ]
    last = probe.events()[-1]
    assert all(any("test_run" in str(frame) for frame in last[name]) for name in given(last)), last


def given(event: Mapping[str, Any]) -> set[str]:
    """The points of which it has a stack."""
    return {name for name in STACKS if event[name]}


@pytest.mark.proves("host_path", "events.slow.{asked_stack,acted_stack}")
@pytest.mark.parametrize("functions", [AS_TRACEPOINTS, AS_FUNCTIONS])
def test_a_packet_through_the_switch_keeps_its_stacks_while_user_space_has_it(
    load: Load, functions: dict[str, str]
) -> None:
    probe = load("host_path", functions)
    host = Switch(probe)
    probe.set("details", events_per_s=1e6, with_stacks=True)
    known, _ = host.received(Flow())
    host.acted(known)
    host.left(known)
    unknown, _ = host.received(Flow())
    host.asked(unknown)
    back = host.from_user_space(Flow())
    host.acted(back)
    host.left(back)
    probe.read()
    points = {"received_stack", "acted_stack", "queued_stack", "stack"}
    assert list(map(given, probe.events())) == [points, {*points, "asked_stack"}]
