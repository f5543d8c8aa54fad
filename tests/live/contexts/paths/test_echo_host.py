"""echo_host on echoes of the test's own: when each passed which device, and which are none."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.moments import MS, elapsed, wait
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.pings import CARRIED, ID, V4, V6, Pinged, passed, reply, request
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "echo_host"
Load = Callable[..., UnattachedProbe]
FRAGMENTED = 1


@pytest.mark.proves(
    "echo_host",
    "counters.echoes",
    "records.echoes.{source,target,id,seq,request_in,request_out,reply_in,reply_out}",
    "records.echoes.{request_in_ns,request_out_ns,reply_in_ns,reply_out_ns,fingerprint,flags,repeated,duplicates}",
    "knobs.receiver",
    "modes.summary",
)
@pytest.mark.parametrize("is_receiver", [False, True])
def test_each_echo_has_when_it_passed_which_device(load: Load, is_receiver: bool) -> None:
    host = Pinged(load(PROBE))
    host.probe.set(receiver=is_receiver)
    near, far = ("eth0", "tap0") if is_receiver else ("tap0", "eth0")
    ways = {}
    for flow in (V4, V6):
        for seq in (7, 0xFFFE):
            points = {"request_in": (host.received(request(flow, seq), near), near)}
            host.received(request(flow, seq), far)  # not where requests come in
            host.sent(request(flow, seq), near)  # not where they go out
            points["request_out"] = host.sent(request(flow, seq), far), far
            wait(1)
            host.received(reply(flow, seq), near)
            points["reply_in"] = host.received(reply(flow, seq), far), far
            host.sent(reply(flow, seq), far)
            points["reply_out"] = host.sent(reply(flow, seq), near), near
            host.sent(reply(flow, seq), near)  # what it passes first counts
            host.sent(request(flow, seq), far)
            ways[flow.source, seq] = flow, points
    found = host.records()
    assert found.keys() == ways.keys()
    for key, (flow, points) in ways.items():
        record = found[key]
        assert passed(record, points)
        assert (record["source"], record["target"], record["id"]) == (flow.source, flow.target, ID)
        assert (record["flags"], record["repeated"], record["duplicates"]) == (0, 0, 0) and record["fingerprint"]
    assert host.counts() == [4, 0, 0, 0, 0] and host.probe.ledger() == {}


@pytest.mark.proves(
    "echo_host",
    "counters.{echoes,repeated,duplicates,unknown,another}",
    "records.echoes.{repeated,duplicates,fingerprint,flags}",
)
@pytest.mark.parametrize("flow", [V4, V6])
def test_further_and_foreign_packets_are_told_apart(load: Load, flow: Flow) -> None:
    host = Pinged(load(PROBE))
    host.received(request(flow, 1), "tap0")
    for device in ("tap0", "tap1", "tap0"):  # on the other one it is the same packet on its way
        host.received(request(flow, 1), device)
    for device in ("eth0", "eth1", "eth0", "eth0"):
        host.received(reply(flow, 1), device)
    assert host.counts() == [1, 2, 2, 0, 0]
    other = b"something other "
    host.received(request(flow, 1, other), "tap0")
    host.sent(request(flow, 1, other), "eth0")
    assert host.counts() == [1, 2, 2, 0, 2]
    for packet in (request(flow, 2), reply(flow, 2)):
        host.sent(packet, "eth0" if packet == request(flow, 2) else "tap0")  # never seen to begin
    assert host.counts() == [1, 2, 2, 2, 2]
    for seq, carried in (
        (3, CARRIED),
        (4, other),
        (5, CARRIED[:8] + other),
        (6, CARRIED[:7]),
        (7, b""),
        (9, CARRIED[:8]),
    ):
        host.received(request(flow, seq, carried), "tap0")
    host.received(request(flow, 8, fragment=0), "tap0")
    record = host.records()
    assert (record[flow.source, 1]["repeated"], record[flow.source, 1]["duplicates"]) == (2, 2)
    prints = {seq: record[flow.source, seq]["fingerprint"] for seq in range(1, 10) if seq not in (2, 8)}
    assert prints[1] == prints[3] == prints[5] == prints[9] != prints[4] and prints[6] == prints[7] == 0 != prints[4]
    assert {seq: record[flow.source, seq]["flags"] for seq in (1, 7, 8)} == {1: 0, 7: 0, 8: FRAGMENTED}
    host.sent(request(flow, 3, fragment=0), "eth0")  # cut on its way
    assert host.records()[flow.source, 3]["flags"] == FRAGMENTED
    if flow is V6:
        host.received(with_options(request(flow, 10), 3), "tap0")
        assert host.records()[flow.source, 10]["flags"] == 0
        host.received(with_options(request(flow, 11), 4), "tap0")
    before = host.counts()
    assert (flow.source, 11) not in host.records()
    at = 2 if flow is V4 else 4
    for odd in (
        request(flow, 19)[:at] + (27 if flow is V4 else 7).to_bytes(2, "big") + request(flow, 19)[at + 2 :],
        request(flow, 20, code=1),
        request(flow, 21, fragment=1480 // 8 * 8),
        bytes(20) + request(flow, 22)[20:],
        request(flow, 23)[: -len(CARRIED) - 8] + b"\x03" + request(flow, 23)[-len(CARRIED) - 7 :],
    ):
        host.received(odd, "tap0")
    host.received(Flow(protocol=17).packet(), "tap0")
    assert host.counts() == before


def with_options(packet: bytes, count: int) -> bytes:
    """Of IPv6, with so many more headers of 8 and 16 bytes: hop-by-hop, and options for the target."""
    headers = b""
    for number in range(count):
        following = 58 if number == count - 1 else 60
        headers += bytes([following, number % 2, 1, 4, *bytes(4), *bytes(8 * (number % 2))])
    return (
        packet[:4] + (len(packet) - 40 + len(headers)).to_bytes(2, "big") + b"\0" + packet[7:40] + headers + packet[40:]
    )


@pytest.mark.proves("echo_host", "knobs.{address,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    host = Pinged(load(PROBE))
    flows = (
        V4,
        Flow("192.0.2.9", "192.0.2.1"),
        Flow("198.51.100.7", "203.0.113.1"),
        V6,
        Flow("2001:db8:1::1", "2001:db8::1"),
    )
    seq = 0
    for knobs, wanted in (
        ({}, {0, 1, 2, 3, 4}),
        ({"address": "192.0.2.1"}, {0, 1}),
        ({"address": "203.0.113.0/24"}, {2}),
        ({"address": "192.0.2.9,192.0.2.1"}, {1}),
        ({"address": "192.0.2.2,192.0.2.1"}, {0}),
        ({"address": "2001:db8::1"}, {3, 4}),
        ({"address": "from:2001:db8::1"}, {3}),
        ({"netns": NETNS}, {0, 1, 2, 3, 4}),
        ({"netns": OTHER_NETNS}, set()),
        ({"netns": NETNS, "address": "2001:db8:1::/48"}, {4}),
    ):
        host.probe.set(**knobs)
        for number, flow in enumerate(flows):
            seq, before = seq + 1, host.counts()
            host.received(request(flow, seq), "tap0")
            host.sent(request(flow, seq), "eth0")
            host.received(reply(flow, seq), "eth0")
            host.sent(reply(flow, seq), "tap0")
            passed = [now - then for now, then in zip(host.counts(), before, strict=True)]
            assert passed == [int(number in wanted), 0, 0, 0, 0], (knobs, flow)
            record = host.records().get((flow.source, seq))
            assert (record is not None and record["reply_out_ns"] > 0) == (number in wanted)
    skb = host.carrying(request(V4, 999), "eth0")
    host.memory.change("sk_buff", skb, {"dev": host.elsewhere})
    host.probe.set(receiver=True, netns=OTHER_NETNS)
    host.ran("receive", skb)
    assert (V4.source, 999) in host.records()


@pytest.mark.proves("echo_host", "knobs.{inside_devices,outside_devices,receiver}")
def test_devices_are_those_of_the_sets_after_each_change(load: Load) -> None:
    host = Pinged(load(PROBE))
    seq = 0
    for knobs, first, second in (
        ({}, {"tap0", "tap1"}, {"eth0", "eth1"}),
        ({"receiver": True}, {"eth0", "eth1"}, {"tap0", "tap1"}),
        ({"inside_devices": "veth*", "outside_devices": "eth1 kind:bridge"}, {"veth0"}, {"eth1", "br0"}),
        ({"inside_devices": "tap1", "outside_devices": "tap0", "receiver": True}, {"tap0"}, {"tap1"}),
        ({"inside_devices": "", "outside_devices": "kind:physical"}, set(), {"eth0", "eth1"}),
    ):
        host.probe.set(**knobs)
        for device in host.devices:
            seq, before = seq + 1, host.counts()
            host.received(request(V4, seq), device)
            host.received(reply(V4, seq + 10_000), device)
            host.sent(request(V4, seq + 20_000), device)
            host.sent(reply(V4, seq + 30_000), device)
            passed = [now - then for now, then in zip(host.counts(), before, strict=True)]
            expected = [int(device in first), 0, 0, 2 * (device in second) + (device in first), 0]
            assert passed == expected, (knobs, device)


@pytest.mark.proves("echo_host", "knobs.keep_ms", "counters.{echoes,repeated}")
def test_an_echo_is_followed_as_long_as_it_is_to_be_kept(load: Load) -> None:
    host = Pinged(load(PROBE))
    host.probe.set(keep_ms=30)
    took, seq = (0, 1000 * MS), 0
    while took[1] >= 30 * MS:  # the machine took its time
        seq, before = seq + 1, host.counts()
        began = host.received(request(V4, seq), "tap0")
        wait(25.5)
        took = elapsed(began, host.received(request(V4, seq), "tap0"))
    assert host.counts()[:2] == [before[0] + 1, before[1] + 1]
    while time.monotonic_ns() < began[1] + 30 * MS:
        pass
    host.received(request(V4, seq), "tap0")
    assert host.counts()[:2] == [before[0] + 2, before[1] + 1]
    kept = host.probe.running._maps["echoes"]
    host.probe.set(keep_ms=60_000)
    host.records()
    assert len(list(kept.items())) == seq
    host.probe.set(keep_ms=1)
    wait(1.2)
    host.records()
    assert list(kept.items()) == []


@pytest.mark.proves("echo_host", "ledger.{map_full,parse_failed}")
def test_what_finds_no_room_or_cannot_be_read_is_counted(load: Load) -> None:
    host = Pinged(load(PROBE, echoes=1))
    for seq in (1, 2, 3):
        host.received(request(V4, seq), "tap0")
    assert len(host.records()) == 1 and host.counts() == [3, 0, 0, 0, 0]
    assert host.probe.ledger() == {"map_full": 2}
    for packet in (b"\x55" + request(V4, 4)[1:], request(V4, 5)[:24], b"\x65" + request(V6, 6)[1:39]):
        host.ran("receive", host.come(V6 if packet[0] >> 4 == 6 else V4, "tap0", packet=packet))
    host.probe.read()
    assert host.probe.ledger() == {"map_full": 2, "parse_failed": 3}
