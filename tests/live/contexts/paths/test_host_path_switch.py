"""host_path in Open vSwitch's kernel datapath, on packets of the test's own: lookup, upcall, conntrack and actions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.modules import COMMAND_AT, CONNTRACK, FOR_USER_SPACE, MISS, OUTPUT
from tests.support.live.contexts.moments import Span, elapsed, lies, wait
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import FLOW6, Ways

PROBE = "host_path"
Load = Callable[..., UnattachedProbe]

STAGES = {
    "forward": "forward_ns",
    "lookup": "lookup_ns",
    "upcall": "upcall_ns",
    "actions": "actions_ns",
    "ct": "ct_ns",
    "devices": "devices_ns",
    "qdisc": "qdisc_ns",
}
"""And the fields of an event."""
AS_TRACEPOINTS = {"action": "on_action", "upcall": "on_upcall"}
AS_FUNCTIONS = {"action": "on_actions", "upcall": "on_upcall_function"}


class Switch(Ways):
    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe)
        self.actions = {kind: self.memory.make("nlattr", {"nla_type": kind}) for kind in (OUTPUT, CONNTRACK)}
        self.upcalls = {
            command: self.memory.keep(bytes(COMMAND_AT) + bytes([command]).ljust(8, b"\0"))
            for command in (MISS, FOR_USER_SPACE)
        }

    def received(self, flow: Flow) -> tuple[int, Span]:
        """By tap0; in the datapath its data begin with the link header again."""
        skb = self.come(flow, "tap0")
        span = self.ran("receive", skb)
        return self.leaving(skb, self.devices["tap0"]), span

    def acted(self, skb: int, kind: int = OUTPUT) -> Span:
        return self.ran("action", 0, skb, 0, self.actions[kind])

    def asked(self, skb: int, command: int = MISS) -> Span:
        return self.ran("upcall", 0, skb, 0, self.upcalls[command])

    def from_user_space(self, flow: Flow, device: str = "tap0", identity: int = 1) -> int:
        """The packet that comes back: it was received by nobody, and its length and checksum may be others."""
        packet = bytearray(flow.packet())
        at = 20
        if flow.ethertype == 0x0800:
            packet[2:4], packet[4:6], packet[10:12] = b"\x01\x02", identity.to_bytes(2, "big"), b"\x03\x04"
        else:
            packet[3], packet[4:6], at = identity - 1, b"\x01\x02", 40
        packet[at + 4 : at + 8] = b"\x05\x06\x07\x08"
        skb = self.leaving(self.come(flow, device, packet=bytes(packet)), self.devices[device])
        self.memory.change("sk_buff", skb, {"skb_iif": 0})
        return skb

    def left(self, skb: int, by: str = "eth0") -> tuple[Span, Span]:
        """Queued, and after 2 ms sent."""
        self.memory.change("sk_buff", skb, {"dev": self.devices[by]})
        queued = self.ran("queue", skb)
        wait(2)
        return queued, self.ran("send", skb, self.devices[by])


def loaded(load: Load, functions: dict[str, str]) -> Switch:
    probe = load(PROBE, functions)
    probe.set("details", events_per_s=1e6)
    return Switch(probe)


@pytest.mark.proves(
    "host_path",
    "counters.{asked,returned}",
    "events.slow.{lookup_ns,upcall_ns,actions_ns,ct_ns,qdisc_ns,forward_ns,devices_ns,total_ns}",
    "histograms.stages",
    "histograms.stages.{direction,stage}",
)
@pytest.mark.parametrize("functions", [AS_TRACEPOINTS, AS_FUNCTIONS])
@pytest.mark.parametrize("flow", [Flow(), FLOW6])
def test_each_stage_in_the_switch_takes_as_long_as_it_took(load: Load, functions: dict[str, str], flow: Flow) -> None:
    host = loaded(load, functions)
    known, received = host.received(flow)
    wait(3)
    acted = host.acted(known)
    wait(1.5)
    host.acted(known)
    queued, sent = host.left(known)
    looked_up = {
        "lookup": elapsed(received, acted),
        "actions": elapsed(acted, queued),
        "qdisc": elapsed(queued, sent),
        "total": elapsed(received, sent),
    }
    unknown, received = host.received(flow)
    wait(1)
    asked = host.asked(unknown)
    wait(4)
    back = host.from_user_space(flow)
    answered = host.acted(back)
    wait(1.5)
    queued, sent = host.left(back)
    upcalled = {
        "lookup": elapsed(received, asked),
        "upcall": elapsed(asked, answered),
        "actions": elapsed(answered, queued),
        "qdisc": elapsed(queued, sent),
        "total": elapsed(received, sent),
    }
    host.probe.read()
    counters = host.probe.counters()
    assert (counters["asked"], counters["returned"], counters["crossed"], counters["received"]) == (1, 1, 2, 2)
    for event, took in zip(host.probe.events(), (looked_up, upcalled), strict=True):
        assert (event["from"], event["to"], event["direction"]) == ("tap0", "eth0", "out")
        for stage, name in STAGES.items():
            assert lies(event[name], took.get(stage, (0, 0))), name
        assert sum(event[name] for name in STAGES.values()) == event["total_ns"]
        assert lies(event["total_ns"], took["total"])
    stages = {one["stage"]: one for one in host.probe.histograms("stages")}
    assert {name: one["count"] for name, one in stages.items()} == {
        "lookup": 2, "upcall": 1, "actions": 2, "qdisc": 2
    }  # fmt: skip
    for name, one in stages.items():
        assert lies(one["sum"], *(took[name] for took in (looked_up, upcalled) if name in took))
    assert {"seen", "submitted"} == host.probe.ledger().keys()


@pytest.mark.proves("host_path", "events.slow.{ct_ns,actions_ns}", "histograms.stages")
def test_conntrack_is_what_lies_between_its_action_and_the_next(load: Load) -> None:
    host = loaded(load, AS_TRACEPOINTS)
    skb, received = host.received(Flow())
    spans = [received]
    for kind, ms in ((OUTPUT, 1), (CONNTRACK, 3), (CONNTRACK, 2), (OUTPUT, 1.5)):
        spans.append(host.acted(skb, kind))
        wait(ms)
    queued, _ = host.left(skb)
    host.probe.read()
    (event,) = host.probe.events()
    assert lies(event["ct_ns"], elapsed(spans[2], spans[4]))
    assert lies(event["actions_ns"], elapsed(spans[1], spans[2]), elapsed(spans[4], queued))
    assert lies(event["lookup_ns"], elapsed(received, spans[1]))
    (ct,) = [one for one in host.probe.histograms("stages") if one["stage"] == "ct"]
    assert (ct["count"], ct["sum"]) == (1, event["ct_ns"])


@pytest.mark.proves("host_path", "counters.{asked,returned,crossed}", "ledger.unlisted")
@pytest.mark.parametrize("functions", [AS_TRACEPOINTS, AS_FUNCTIONS])
def test_in_a_storm_the_switch_s_packets_are_counted_as_exactly(load: Load, functions: dict[str, str]) -> None:
    """Those of known flows, those that come back from user space, and those at the address of one that is gone."""
    host = Switch(load(PROBE, functions))
    host.use_up()
    known, _ = host.received(Flow())
    host.acted(known, CONNTRACK)
    host.acted(known)
    host.left(known)
    unknown, _ = host.received(Flow())
    host.asked(unknown)
    back = host.from_user_space(Flow())
    host.acted(back)
    host.left(back)
    assert host.counted("received", "asked", "returned", "crossed", "from_host") == [2, 1, 1, 2, 0]
    asked, _ = host.received(Flow())
    host.asked(asked)
    content = host.memory.bytes_of("sk_buff", host.from_user_space(Flow()))
    gone, _ = host.received(Flow(source_port=7))  # dropped before its flow acted
    host.memory.put(gone, content)
    host.acted(gone)
    host.left(gone)
    host.probe.read()
    assert host.counted("received", "asked", "returned", "crossed", "from_host") == [4, 2, 2, 3, 0]
    assert host.probe.ledger() == {"unlisted": 3}
    assert host.probe.histograms("stages") == host.probe.rows("flows") == []


@pytest.mark.proves("host_path", "counters.{asked,returned,reused,crossed}")
def test_only_the_packet_that_was_asked_about_comes_back(load: Load) -> None:
    host = loaded(load, AS_TRACEPOINTS)
    skb, _ = host.received(Flow())
    host.asked(skb)
    for other in (
        host.from_user_space(Flow(), identity=7),
        host.from_user_space(Flow(source_port=7)),
        host.from_user_space(Flow("192.0.2.77")),
        host.from_user_space(Flow(), "tap1"),
        host.from_user_space(FLOW6),
    ):
        host.acted(other)
        host.left(other)
    host.left(skb)  # it is no more on its way itself
    assert host.counted("crossed", "asked", "returned") == [0, 1, 0]
    skb, _ = host.received(Flow())
    host.asked(skb)  # cannot be told from the first one
    back = host.from_user_space(Flow())
    host.acted(back)
    host.left(back)
    host.received(Flow(source_port=99))  # or it would pass for a copy of the one before it
    late = host.from_user_space(Flow())
    host.acted(late)
    host.left(late)
    assert host.counted("crossed", "asked", "returned", "reused") == [1, 2, 1, 1]
    skb, _ = host.received(FLOW6)
    host.asked(skb, FOR_USER_SPACE)  # a sample for user space: the packet goes on
    host.acted(skb)
    host.left(skb)
    assert host.counted("crossed", "asked", "returned") == [2, 3, 1]
    host.probe.read()
    assert [event["upcall_ns"] > 0 for event in host.probe.events()] == [True, False]


@pytest.mark.proves("host_path", "events.slow.{lookup_ns,upcall_ns,actions_ns,ct_ns}", "counters.{asked,returned}")
def test_what_was_done_before_the_question_is_part_of_the_lookup(load: Load) -> None:
    """A packet is asked about after conntrack, by an sk_buff whose address was used before."""
    host = loaded(load, AS_TRACEPOINTS)
    lost, _ = host.received(Flow(source_port=7))
    host.asked(lost)
    back = host.from_user_space(Flow(source_port=7))
    host.acted(back)  # and dropped: nobody sees it end
    content = host.memory.bytes_of("sk_buff", host.from_user_space(Flow()))
    skb, received = host.received(Flow())
    host.acted(skb, CONNTRACK)
    wait(2)
    host.acted(skb)
    wait(1)
    asked = host.asked(skb)
    wait(3)
    host.memory.put(back, content)
    answered = host.acted(back)
    wait(1)
    queued, sent = host.left(back)
    host.probe.read()
    (event,) = host.probe.events()
    assert lies(event["lookup_ns"], elapsed(received, asked)) and lies(event["upcall_ns"], elapsed(asked, answered))
    assert lies(event["actions_ns"], elapsed(answered, queued)) and event["ct_ns"] == 0
    assert lies(event["total_ns"], elapsed(received, sent)) and event["source_port"] == 1111
    assert host.counted("crossed", "asked", "returned") == [1, 2, 2]


@pytest.mark.proves("host_path", "histograms.stages.stage", "events.slow.{lookup_ns,forward_ns}")
def test_the_switch_may_have_another_packet_first(load: Load) -> None:
    """Packets out of a tunnel wait, and the host's own begin at the switch's port."""
    host = loaded(load, AS_TRACEPOINTS)
    (first, came), (second, _) = host.received(Flow()), host.received(FLOW6)
    wait(1)
    acted = host.acted(first)
    host.left(first)
    own = host.leaving(host.come(Flow(source_port=9), "own0"), host.devices["own0"])
    host.memory.change("sk_buff", own, {"skb_iif": 0})
    began = host.ran("send", own, host.devices["own0"])
    wait(1)
    looked_up = host.acted(own)
    host.left(own)
    host.memory.change("sk_buff", second, {"dev": 0})
    host.memory.put(*other_packet(host, second))
    host.acted(second)  # its address holds another one by now
    host.probe.read()
    events = host.probe.events()
    assert [event["from"] for event in events] == ["tap0", "own0"]
    assert lies(events[0]["lookup_ns"], elapsed(came, acted)) and events[0]["forward_ns"] == 0
    assert lies(events[1]["lookup_ns"], elapsed(began, looked_up)) and events[1]["forward_ns"] == 0
    host.left(second)
    assert host.counted("crossed", "exchanged") == [2, 1]


def other_packet(host: Switch, skb: int) -> tuple[int, bytes]:
    """Where the packet of an sk_buff lies, and one with another flow label and payload."""
    (data,) = host.memory.pointers("sk_buff", skb, "data")
    packet = bytearray(FLOW6.packet())
    packet[3], packet[48] = 77, 77
    return data + 14, bytes(packet)


OTHERS6 = (
    Flow("2001:db8:0:1::1", FLOW6.target, 5, 6),
    Flow("2001:db8::9", FLOW6.target, 5, 6),
    Flow(FLOW6.source, "2001:db8:0:1::2", 5, 6),
    Flow(FLOW6.source, "2001:db8::9", 5, 6),
    Flow(FLOW6.source, FLOW6.target, 9, 6),
    Flow(FLOW6.source, FLOW6.target, 5, 9),
)
OTHERS4 = (Flow(target="192.0.2.9"), Flow(target_port=9), Flow(source="192.0.9.1"), Flow(source_port=2))


@pytest.mark.proves("host_path", "counters.{asked,returned}", "events.slow.{actions_ns,devices_ns,qdisc_ns}")
@pytest.mark.parametrize(("flow", "others"), [(Flow(), OTHERS4), (FLOW6, OTHERS6)])
def test_an_answer_is_that_of_the_same_flow_and_begins_anew(load: Load, flow: Flow, others: tuple[Flow, ...]) -> None:
    """A packet was queued to another port before user space was asked for a sample of it."""
    host = loaded(load, AS_TRACEPOINTS)
    skb, _ = host.received(flow)
    host.acted(skb)
    host.ran("queue", skb)
    host.asked(skb, FOR_USER_SPACE)
    for other in others:
        host.acted(host.from_user_space(other))
    assert host.counted("asked", "returned") == [1, 0]
    back = host.from_user_space(flow)
    answered = host.acted(back)
    wait(1)
    queued, sent = host.left(back)
    host.probe.read()
    (event,) = host.probe.events()
    assert lies(event["actions_ns"], elapsed(answered, queued)) and event["devices_ns"] == 0
    assert lies(event["qdisc_ns"], elapsed(queued, sent))
    assert host.counted("asked", "returned", "crossed") == [1, 1, 1]
