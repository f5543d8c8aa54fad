"""echo_stack on echoes of the test's own: between IP, ICMP and the device, by functions and where there are none."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import MS, Span, elapsed, wait
from tests.support.live.contexts.packets import ICMP, ICMPV6, Flow
from tests.support.live.contexts.pings import CARRIED, ID, V4, V6, Pinged, passed, reply, request, summed
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "echo_stack"
Load = Callable[..., UnattachedProbe]

FUNCTIONS = {"made4": "on_made4", "made6": "on_made6", "icmp4": "on_icmp4", "icmp6": "on_icmp6"}
TRACEPOINTS = {"made4": "on_queue4", "made6": "on_queue6", "icmp4": "on_ready4", "icmp6": "on_ready6"}
FRAGMENTED = 1


class Machine(Pinged):
    """That pings, or is pinged, by eth0."""

    def __init__(self, probe: UnattachedProbe, functions: dict[str, str]) -> None:
        super().__init__(probe)
        self.has_functions = functions is FUNCTIONS

    @property
    def made_at(self) -> str:
        """The device that a packet is known to be made for."""
        return "" if self.has_functions else "eth0"

    def made(self, packet: bytes, net: int = 0, length: int | None = None) -> Span:
        """IP has it, and has not written its length yet; or it is queued to its device."""
        version = packet[0] >> 4
        if self.has_functions:
            at = 2 if version == 4 else 4
            unfinished = packet[:at] + bytes(2) + packet[at + 2 :]
            skb = self.carrying(unfinished, "eth0")
            self.memory.change("sk_buff", skb, {"protocol": 0, "dev": 0})
            return self.ran(f"made{version}", net or self.nets[0], 0, skb)
        skb = self.leaving(self.carrying(packet, "eth0"), self.elsewhere if net else self.devices["eth0"])
        self.memory.change("sk_buff", skb, {"skb_iif": 0})
        self.probe.run(f"made{10 - version}", skb)  # that of the other version
        return self.ran(f"made{version}", skb)

    def came(self, packet: bytes, net: int = 0, pulled: int | None = None) -> Span:
        """ICMP has it, or its socket. ``pulled``: so many bytes are in its linear data, the rest is in a fragment."""
        version = packet[0] >> 4
        skb = self.carrying(packet, "eth0") if pulled is None else self.beyond(packet, "eth0", pulled)
        if self.has_functions:
            self.memory.change("sk_buff", skb, {"dev": self.elsewhere if net else self.devices["eth0"]})
            return self.ran(f"icmp{version}", skb)
        protocol = ICMP if version == 4 else ICMPV6
        sock = self.memory.make(
            "sock",
            {"sk_protocol": protocol, "sk_receive_queue.prev": skb, "__sk_common.skc_net.net": net or self.nets[0]},
        )
        other = self.memory.make("sock", {"sk_protocol": 17, "sk_receive_queue.prev": skb})
        self.probe.run(f"icmp{version}", other)
        return self.ran(f"icmp{version}", sock)


def machine(load: Load, functions: dict[str, str], **room: int) -> Machine:
    return Machine(load(PROBE, functions, **room), functions)


@pytest.mark.proves(
    "echo_stack",
    "counters.echoes",
    "records.echoes.{source,target,id,seq,request_in,request_out,reply_in,reply_out}",
    "records.echoes.{request_in_ns,request_out_ns,reply_in_ns,reply_out_ns,fingerprint,flags,repeated,duplicates}",
    "knobs.receiver",
    "modes.summary",
)
@pytest.mark.parametrize("functions", [FUNCTIONS, TRACEPOINTS])
@pytest.mark.parametrize("flow", [V4, V6])
def test_each_echo_has_when_it_passed_each_point(load: Load, functions: dict[str, str], flow: Flow) -> None:
    host = machine(load, functions)
    host.received(request(flow, 1), "eth0")  # of somebody who pings this machine
    host.came(request(flow, 1))
    points = {"request_in": (host.made(request(flow, 1)), host.made_at)}
    wait(1)
    host.sent(request(flow, 1), "tap0")
    points["request_out"] = host.sent(request(flow, 1), "eth0"), "eth0"
    wait(1)
    points["reply_in"] = host.received(reply(flow, 1), "eth0"), "eth0"
    wait(1)
    points["reply_out"] = host.came(reply(flow, 1)), ""
    host.came(reply(flow, 1))
    host.made(reply(flow, 1))
    host.sent(reply(flow, 1), "eth0")
    if not host.has_functions:  # one that this machine forwards, to the same device
        skb = host.leaving(host.carrying(request(flow, 3), "eth0"), host.devices["eth0"])
        host.ran("made4" if flow is V4 else "made6", skb)
    record = host.records()[flow.source, 1]
    assert passed(record, points)
    assert (record["source"], record["target"], record["id"], record["seq"]) == (flow.source, flow.target, ID, 1)
    assert (record["flags"], record["repeated"], record["duplicates"]) == (0, 0, 0) and record["fingerprint"]
    assert host.counts() == [1, 0, 0, 0, 0]

    host.probe.set(receiver=True)
    points = {"request_in": (host.received(request(flow, 2), "eth0"), "eth0")}
    wait(1)
    asked = host.came(request(flow, 2))
    if host.has_functions:  # no socket gets a request
        points["request_out"] = asked, ""
    wait(1)
    points["reply_in"] = host.made(reply(flow, 2)), host.made_at
    wait(1)
    points["reply_out"] = host.sent(reply(flow, 2), "eth0"), "eth0"
    host.made(request(flow, 2))
    host.sent(request(flow, 2), "eth0")
    host.received(reply(flow, 2), "eth0")
    host.came(reply(flow, 2))
    assert passed(host.records()[flow.source, 2], points)
    assert host.counts() == [2, 0, 0, 0, 0] and host.probe.ledger() == {}


@pytest.mark.proves(
    "echo_stack",
    "counters.{echoes,repeated,duplicates,unknown,another}",
    "records.echoes.{repeated,duplicates,fingerprint,flags}",
)
@pytest.mark.parametrize("flow", [V4, V6])
def test_further_and_foreign_packets_are_told_apart(load: Load, flow: Flow) -> None:
    host = machine(load, FUNCTIONS)
    for _ in range(3):
        host.made(request(flow, 1))
    for _ in range(4):
        host.received(reply(flow, 1), "eth0")
    other = b"something other "
    host.made(request(flow, 1, other))
    host.sent(request(flow, 1, other), "eth0")
    assert host.counts() == [1, 2, 3, 0, 2]
    host.sent(request(flow, 9), "eth0")  # never seen to begin
    host.received(reply(flow, 9), "eth0")
    host.came(reply(flow, 9))
    assert host.counts() == [1, 2, 3, 3, 2]
    for seq, carried in ((2, CARRIED), (3, other), (4, b"short")):
        host.made(request(flow, seq, carried))
    host.sent(request(flow, 2, fragment=0), "eth0")
    record = host.records()
    assert (record[flow.source, 1]["repeated"], record[flow.source, 1]["duplicates"]) == (2, 3)
    prints = [record[flow.source, seq]["fingerprint"] for seq in (1, 2, 3, 4)]
    assert prints[0] == prints[1] != prints[2] != 0 == prints[3]
    assert [record[flow.source, seq]["flags"] for seq in (1, 2)] == [0, FRAGMENTED]


@pytest.mark.proves("echo_stack", "knobs.{address,netns}")
@pytest.mark.parametrize("functions", [FUNCTIONS, TRACEPOINTS])
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load, functions: dict[str, str]) -> None:
    host = machine(load, functions)
    flows = V4, Flow("192.0.2.9", "192.0.2.1"), V6, Flow("2001:db8:1::1", "2001:db8::1")
    seq = 0
    for knobs, wanted in (
        ({}, {0, 1, 2, 3}),
        ({"address": "192.0.2.1"}, {0, 1}),
        ({"address": "192.0.2.8/29"}, {1}),
        ({"address": "192.0.2.9,192.0.2.1"}, {1}),
        ({"address": "2001:db8::1"}, {2, 3}),
        ({"address": "to:2001:db8::1"}, {3}),
        ({"netns": NETNS}, {0, 1, 2, 3}),
        ({"netns": OTHER_NETNS}, set()),
    ):
        for is_receiver in (False, True):
            host.probe.set(receiver=is_receiver, **knobs)
            for number, flow in enumerate(flows):
                seq, before = seq + 1, host.counts()
                if is_receiver:
                    host.received(request(flow, seq), "eth0")
                    host.came(request(flow, seq))
                    host.made(reply(flow, seq))
                    host.sent(reply(flow, seq), "eth0")
                else:
                    host.made(request(flow, seq))
                    host.sent(request(flow, seq), "eth0")
                    host.received(reply(flow, seq), "eth0")
                    host.came(reply(flow, seq))
                counted = [now - then for now, then in zip(host.counts(), before, strict=True)]
                assert counted == [int(number in wanted), 0, 0, 0, 0], (knobs, flow)
                record = host.records().get((flow.source, seq))
                assert (record is not None and record["reply_out_ns"] > 0) == (number in wanted)
    host.probe.set(netns=OTHER_NETNS)
    host.made(request(V4, 999), net=host.nets[1])
    host.came(reply(V4, 999), net=host.nets[1])
    record = host.records()[V4.source, 999]
    assert record["request_in_ns"] and record["reply_out_ns"]


@pytest.mark.proves("echo_stack", "knobs.wire_devices")
def test_devices_are_those_of_the_set_after_each_change(load: Load) -> None:
    host = machine(load, FUNCTIONS)
    seq = 0
    for knobs, wanted in (
        ({}, {"eth0", "eth1"}),
        ({"wire_devices": "tap1"}, {"tap1"}),
        ({"wire_devices": "kind:veth e*"}, {"veth0", "eth0", "eth1"}),
        ({"wire_devices": ""}, set()),
        ({"wire_devices": "kind:bridge kind:tap"}, {"br0", "tap0", "tap1"}),
    ):
        for device in host.devices:
            seq, before = seq + 1, host.counts()
            host.probe.set(**knobs)
            host.sent(request(V4, seq), device)
            host.received(reply(V4, seq), device)
            host.probe.set(**knobs, receiver=True)
            host.received(request(V4, seq), device)
            counted = [now - then for now, then in zip(host.counts(), before, strict=True)]
            assert counted == [int(device in wanted), 0, 0, 2 * (device in wanted), 0], (knobs, device)


@pytest.mark.proves("echo_stack", "knobs.keep_ms", "counters.{echoes,repeated}")
def test_an_echo_is_followed_as_long_as_it_is_to_be_kept(load: Load) -> None:
    host = machine(load, FUNCTIONS)
    host.probe.set(keep_ms=30)
    took, seq = (0, 1000 * MS), 0
    while took[1] >= 30 * MS:  # the machine took its time
        seq, before = seq + 1, host.counts()
        began = host.made(request(V4, seq))
        wait(25.5)
        took = elapsed(began, host.made(request(V4, seq)))
    assert host.counts()[:2] == [before[0] + 1, before[1] + 1]
    while time.monotonic_ns() < began[1] + 30 * MS:
        pass
    host.made(request(V4, seq))
    assert host.counts()[:2] == [before[0] + 2, before[1] + 1]
    kept = host.probe.running._maps["echoes"]
    host.probe.set(keep_ms=60_000)
    host.records()
    assert len(list(kept.items())) == seq
    host.probe.set(keep_ms=1)
    wait(1.2)
    host.records()
    assert list(kept.items()) == []


@pytest.mark.proves("echo_stack", "ledger.{map_full,parse_failed}")
def test_what_finds_no_room_or_cannot_be_read_is_counted(load: Load) -> None:
    host = machine(load, FUNCTIONS, echoes=1)
    for seq in (1, 2, 3):
        host.made(request(V4, seq))
    assert len(host.records()) == 1 and host.counts() == [3, 0, 0, 0, 0]
    assert host.probe.ledger() == {"map_full": 2}
    for packet in (b"\x55" + reply(V4, 4)[1:], reply(V4, 5)[:24], b"\x65" + reply(V6, 6)[1:39]):
        host.ran("receive", host.come(V6 if packet[0] >> 4 == 6 else V4, "eth0", packet=packet))
    host.probe.read()
    assert host.probe.ledger() == {"map_full": 2, "parse_failed": 3}


@pytest.mark.parametrize("flow", [V4, V6])
def test_an_echo_whose_headers_are_in_the_first_fragment_is_read_there(load: Load, flow: Flow) -> None:
    """As virtio_net gives them to IP. Where nobody knows where memory is mapped, each is counted as not read."""
    host = machine(load, FUNCTIONS)
    finish = summed if flow is V4 else bytes
    host.probe.set(receiver=True)
    host.probe.running._maps.write("nc_page_map", bytes(16))
    host.ran("receive", host.beyond(finish(request(flow, 1)), "eth0"))
    assert host.records() == {} and host.probe.ledger() == {"parse_failed": 1}
    host.know_pages()
    came = host.ran("receive", host.beyond(finish(request(flow, 2)), "eth0"))
    assert passed(host.records()[flow.source, 2], {"request_in": (came, "eth0")})
    host.ran("receive", host.beyond(finish(reply(flow, 3)), "eth0"))
    if flow is V4:
        host.ran("receive", host.beyond(request(flow, 4), "eth0"))  # the sum is wrong: these are no headers
    else:
        torn = host.beyond(request(flow, 4), "eth0")
        host.memory.change("sk_buff", torn, {"len": 47})
        host.ran("receive", torn)
    no_fragment = host.beyond(finish(request(flow, 5)), "eth0")
    begin, end = host.memory.pointers("sk_buff", no_fragment, "head", "end")
    host.memory.put(begin + end + place_of("skb_shared_info", "nr_frags")[0], b"\0")
    host.ran("receive", no_fragment)
    assert {seq for _, seq in host.records()} == {2} and host.probe.ledger() == {"parse_failed": 2}


@pytest.mark.parametrize("functions", [FUNCTIONS, TRACEPOINTS])
@pytest.mark.parametrize("flow", [V4, V6])
def test_icmp_gets_a_packet_of_which_ip_has_pulled_its_own_header_alone(
    load: Load, functions: dict[str, str], flow: Flow
) -> None:
    host = machine(load, functions)
    host.know_pages()
    finish = summed if flow is V4 else bytes
    points = {"request_in": (host.made(request(flow, 1)), host.made_at)}
    points["reply_in"] = host.ran("receive", host.beyond(finish(reply(flow, 1)), "eth0")), "eth0"
    points["reply_out"] = host.came(reply(flow, 1), pulled=20 if flow is V4 else 40), ""
    record = host.records()[flow.source, 1]
    assert passed(record, points)
    assert host.probe.ledger() == {} and host.counts() == [1, 0, 0, 0, 0]
