"""conntrack on packets and connections of the test's own: what it makes of each, how long it takes, and why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, NETNS, OTHER_NETNS
from tests.support.live.contexts.packets import IPV4, TCP, Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

PROBE = "conntrack"
Load = Callable[..., UnattachedProbe]

MS = 1_000_000
DROP, ACCEPT = 0, 1
ESTABLISHED, NEW, REPLY, UNTRACKED = 0, 2, 3, 7
TEMPLATE = 1 << 11
NONE, SYN_SENT, SYN_RECV = 0, 1, 2
FULL, UNREAD = "the table is full, or there is no memory", "the headers cannot be read"
NO_CONNECTION = "no connection, and not how one begins"


EARLIER = {
    "began": "began_by_kprobe",
    "ended": "ended_without_arguments",
    "said": "said_earlier",
    "said_of_connection": "said_earlier_of_connection",
}
"""Functions of the programs on kernels that have no fexit, and of before 5.14."""


class Tracking(MadeUpHost):
    """Devices in two namespaces, and what conntrack makes of packets there."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.net_ = self.net(NETNS)
        self.eth0 = self.device("eth0", self.net_, 2)
        self.arriving = self.hook(self.net_, {"in": self.eth0})

    def hook(self, net: int, members: dict[str, int] | None = None) -> int:
        return self.memory.make("nf_hook_state", {"net": net, **(members or {})})

    def connection(self, zone: int = 0, status: int = 0, state: int = NONE) -> int:
        return self.memory.make("nf_conn", {"zone.id": zone, "status": status, "proto.tcp.state": state})

    def found(self, skb: int, connection: int, info: int, verdict: int = ACCEPT, hook: int = 0) -> None:
        """The end of nf_conntrack_in, with what it has found."""
        self.memory.change("sk_buff", skb, {"_nfct": connection | info})
        # The result of a fexit program is behind the arguments of its function, or (EARLIER) of any function.
        self.probe.run("ended", skb, hook or self.arriving, verdict, 0, 0, 0, verdict)

    def tracked(self, skb: int, connection: int = 0, info: int = NEW, verdict: int = ACCEPT, hook: int = 0) -> None:
        self.memory.change("sk_buff", skb, {"_nfct": 0})
        self.probe.run("began", skb, hook or self.arriving)
        self.found(skb, connection, info if connection else 0, verdict, hook)

    def text(self, text: str) -> int:
        return self.memory.keep(text.encode() + b"\0")

    def rows(self, table: str, *labels: str) -> dict[Any, int]:
        self.probe.read()
        return {tuple(row[label] for label in labels): row["count"] for row in self.probe.rows(table)}


def wait(ms: float) -> None:
    end = time.monotonic_ns() + ms * MS
    while time.monotonic_ns() < end:
        pass


@pytest.mark.proves(
    "conntrack", "counters.{packets,refused}", "tables.packets.{netns,outcome,zone,protocol,count}", "modes.summary"
)
def test_each_packet_is_counted_by_what_was_made_of_it(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    udp, tcp = host.packet(Flow(), host.eth0), host.packet(Flow(protocol=TCP), host.eth0)
    here, in_zone = host.connection(), host.connection(zone=77)
    elsewhere = host.hook(host.net(OTHER_NETNS))
    for info in (NEW, ESTABLISHED, REPLY, REPLY):
        host.tracked(udp, here, info)
    host.tracked(tcp, in_zone, NEW)
    host.tracked(tcp, in_zone, NEW, hook=elsewhere)
    host.tracked(udp)
    host.tracked(udp, verdict=DROP)
    for nfct in (here | ESTABLISHED, UNTRACKED):  # it was here before, or a rule says that it shall not be tracked
        host.memory.change("sk_buff", udp, {"_nfct": nfct})
        probe.run("began", udp, host.arriving)
        host.found(udp, nfct, 0)
    host.memory.change("sk_buff", udp, {"_nfct": 0})
    probe.run("began", udp, host.arriving)
    host.found(udp, 0, UNTRACKED)  # as neighbour discovery, which conntrack leaves alone
    template = host.connection(zone=5, status=TEMPLATE)
    host.memory.change("sk_buff", udp, {"_nfct": template | NEW})
    probe.run("began", udp, host.arriving)
    host.found(udp, 0, 0)  # what says the zone of a packet that fits no connection
    one, other = str(NETNS), str(OTHER_NETNS)
    assert host.rows("packets", "netns", "outcome", "zone", "protocol") == {
        (one, "new", 0, "UDP"): 1,
        (one, "established", 0, "UDP"): 1,
        (one, "established reply", 0, "UDP"): 2,
        (one, "new", 77, "TCP"): 1,
        (other, "new", 77, "TCP"): 1,
        (one, "invalid", 0, "UDP"): 1,
        (one, "dropped", 0, "UDP"): 1,
        (one, "tracked before", 0, "UDP"): 1,
        (one, "untracked", 0, "UDP"): 2,
        (one, "invalid", 5, "UDP"): 1,
    }
    assert probe.counters() == {"packets": 12, "refused": 3} and probe.ledger() == {}


@pytest.mark.proves("conntrack", "tables.refused.{device,netns,zone,outcome,protocol,reason,count}")
def test_an_invalid_packet_has_the_reason_that_the_kernel_would_log(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    eth1 = host.device("eth1", host.net_, 3)
    tcp, udp = host.packet(Flow(protocol=TCP), host.eth0), host.packet(Flow(), eth1)
    broken = host.frame(IPV4, b"\x55" + Flow().packet()[1:], host.eth0)
    datapath = host.hook(host.net_)  # without devices, as Open vSwitch calls it
    leaving = host.hook(host.net_, {"out": eth1})
    plain, text = host.text("ICMP type %u ignored"), host.text("bad checksum")
    given, wrapped = host.text("%s"), host.text("%pV")
    window = host.memory.make(
        "va_format", {"fmt": host.text("SEQ is over the upper bound %u, and so on and so on and so on")}
    )

    def invalid(skb: int, hook: int, *told: tuple[str, int, int]) -> None:
        host.memory.change("sk_buff", skb, {"_nfct": 0})
        probe.run("began", skb, hook)
        for program, form, other in told:
            probe.run(program, skb, 0, 0, form, other)
        host.found(skb, 0, 0, hook=hook)

    invalid(tcp, host.arriving, ("said", given, text))
    invalid(tcp, host.arriving, ("said_of_connection", wrapped, window), ("said", given, text))
    invalid(udp, datapath, ("said", plain, 7))
    invalid(tcp, leaving)
    invalid(tcp, leaving)
    invalid(broken, host.arriving)
    host.tracked(udp, verdict=DROP)
    probe.run("said", udp, 0, 0, plain, 7)  # of a packet that is not here
    one = str(NETNS)
    assert host.rows("refused", "device", "netns", "zone", "outcome", "protocol", "reason") == {
        ("eth0", one, 0, "invalid", "TCP", "bad checksum"): 1,
        ("eth0", one, 0, "invalid", "TCP", "SEQ is over the upper bound %u, and so on and s"): 1,
        ("eth1", one, 0, "invalid", "UDP", "ICMP type %u ignored"): 1,
        ("eth1", one, 0, "invalid", "TCP", NO_CONNECTION): 2,
        ("eth0", one, 0, "invalid", "unparsed", UNREAD): 1,
        ("eth0", one, 0, "dropped", "UDP", FULL): 1,
    }
    assert probe.counters()["refused"] == 7


@pytest.mark.proves("conntrack", "counters.{packets,refused}", "tables.packets.outcome", "ledger.join_missed")
@pytest.mark.proves("conntrack", "tables.refused.{device,reason}")
def test_on_earlier_kernels_the_same_is_told_but_of_a_packet_that_was_interrupted(load: Load) -> None:
    probe = load(PROBE, EARLIER)
    host = Tracking(probe)
    udp, tcp = host.packet(Flow(), host.eth0), host.packet(Flow(protocol=TCP), host.eth0)
    here, form, text = host.connection(), host.text("%s"), host.text("bad checksum")
    host.tracked(udp, here, ESTABLISHED)
    host.tracked(udp, verdict=DROP)
    for told in (("said", tcp, 0, 0, 0, form, text), ("said_of_connection", tcp, here, form, text)):
        host.memory.change("sk_buff", tcp, {"_nfct": 0})
        probe.run("began", tcp, host.arriving)
        probe.run(*told)
        host.found(tcp, 0, 0)
    one = str(NETNS)
    assert host.rows("refused", "netns", "device", "reason") == {
        (one, "eth0", FULL): 1,
        (one, "eth0", "bad checksum"): 2,
    }
    assert probe.ledger() == {}
    host.memory.change("sk_buff", udp, {"_nfct": 0})
    probe.run("began", udp, host.arriving)
    host.tracked(tcp, here, NEW)  # by an interrupt
    host.found(udp, here, NEW)
    assert host.rows("packets", "outcome", "protocol") == {
        ("established", "UDP"): 1,
        ("dropped", "UDP"): 1,
        ("invalid", "TCP"): 2,
        ("new", "TCP"): 1,
    }
    assert probe.counters() == {"packets": 5, "refused": 3} and probe.ledger() == {"join_missed": 1}


@pytest.mark.proves("conntrack", "tables.changes.{netns,zone,before,after,count}")
def test_changes_of_tcp_connections_are_counted(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    skb = host.packet(Flow(protocol=TCP), host.eth0)
    for before, after in ((NONE, SYN_SENT), (NONE, SYN_SENT), (SYN_SENT, SYN_RECV), (SYN_RECV, SYN_RECV)):
        connection = host.connection(zone=9, state=before)
        host.memory.change("sk_buff", skb, {"_nfct": 0})
        probe.run("began", skb, host.arriving)
        probe.run("judged", connection, skb)
        host.memory.change("nf_conn", connection, {"proto.tcp.state": after})
        host.found(skb, connection, NEW)
    probe.run("judged", host.connection(), host.packet(Flow(), host.eth0))  # of a packet that is not here
    assert host.rows("changes", "netns", "zone", "before", "after") == {
        (str(NETNS), 9, "NONE", "SYN_SENT"): 2,
        (str(NETNS), 9, "SYN_SENT", "SYN_RECV"): 1,
    }


@pytest.mark.proves("conntrack", "histograms.time", "histograms.time.{netns,zone,protocol}")
def test_the_time_is_that_between_begin_and_end(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    skb, connection = host.packet(Flow(), host.eth0), host.connection(zone=3)
    before = time.monotonic_ns()
    probe.run("began", skb, host.arriving)
    began = time.monotonic_ns()
    wait(3)
    ends = time.monotonic_ns()
    host.found(skb, connection, NEW)
    after = time.monotonic_ns()
    probe.read()
    (found,) = probe.histograms("time")
    assert (found["netns"], found["zone"], found["protocol"]) == (str(NETNS), 3, "UDP")
    assert found["count"] == 1 and ends - began <= found["sum"] <= after - before


@pytest.mark.proves(
    "conntrack",
    "events.packet.{mono_ns,took_ns,device,netns,zone,outcome,reason,source,target,source_port,target_port,ethertype}",
    "events.packet.{vlan,protocol,cpu,before,after}",
    "knobs.threshold_us",
    "modes.details",
)
def test_a_sample_has_the_packet_and_what_was_made_of_it(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    probe.set("details", threshold_us=2000, events_per_s=100_000)
    flow = Flow("2001:db8::1", "2001:db8::2", 53, 4444, TCP, vlan=42)
    slow, refused = host.packet(flow, host.eth0), host.packet(Flow(), host.eth0)
    connection = host.connection(zone=8, state=SYN_SENT)
    with on_cpu(1):
        host.tracked(refused)  # what it has must not be in the next one there
    earliest = time.monotonic_ns()
    probe.run("began", slow, host.arriving)
    latest = time.monotonic_ns()
    probe.run("judged", connection, slow)
    host.memory.change("nf_conn", connection, {"proto.tcp.state": SYN_RECV})
    wait(3)
    before = time.monotonic_ns()
    with on_cpu(1):
        host.found(slow, connection, REPLY)
    after = time.monotonic_ns()
    host.tracked(slow, connection)  # it was fast
    host.tracked(refused)  # so were these two
    host.tracked(refused, verdict=DROP)
    probe.set(threshold_us=0, events_per_s=100_000)
    host.tracked(refused)  # in mode summary
    probe.read()
    _, first, second, third = probe.events()
    assert before <= first["mono_ns"] <= after and before - latest <= first["took_ns"] <= after - earliest
    assert (first["device"], first["netns"], first["zone"], first["outcome"]) == (
        "eth0", str(NETNS), 8, "established reply",
    )  # fmt: skip
    assert (first["source"], first["source_port"], first["target"], first["target_port"]) == (
        "2001:db8::1", 53, "2001:db8::2", 4444,
    )  # fmt: skip
    assert (first["ethertype"], first["vlan"], first["protocol"], first["cpu"]) == ("IPv6", 42, "TCP", 1)
    assert (first["before"], first["after"], first["reason"]) == ("SYN_SENT", "SYN_RECV", "")
    assert (second["outcome"], second["reason"]) == ("invalid", NO_CONNECTION)
    assert (third["outcome"], third["reason"], third["cpu"]) == ("dropped", FULL, 0)
    assert probe.ledger() == {"seen": 4, "submitted": 4}


@pytest.mark.proves("conntrack", "knobs.{device,address,port,protocol,netns,vlan,ethertype,mac}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    packets = [host.packet(flow, host.eth0) for flow in FRAMES]
    for knobs, wanted in FILTERS:
        probe.set(**knobs)
        for number, skb in enumerate(packets[: len(FLOWS)]):
            before = probe.running._maps["nc_counters"].sum_of(0)
            host.tracked(skb)
            passed = probe.running._maps["nc_counters"].sum_of(0) - before
            assert passed == (number in wanted), (knobs, FLOWS[number])
    for knobs, flows in BY_FRAME:
        probe.set(**knobs)
        for flow, skb in zip(FRAMES, packets, strict=True):
            before = probe.running._maps["nc_counters"].sum_of(0)
            host.tracked(skb)
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (flow in flows), (knobs, flow)


@pytest.mark.proves("conntrack", "ledger.{map_full,parse_failed,join_missed}")
def test_what_finds_no_room_is_counted_and_so_is_a_packet_that_was_here_before(load: Load) -> None:
    probe = load(PROBE, packets=1, refused=1, changes=1, time=1)
    host = Tracking(probe)
    skb, connection = host.packet(Flow(), host.eth0), host.connection()
    other = host.hook(host.net(OTHER_NETNS))
    for hook in (host.arriving, other):
        host.tracked(skb, hook=hook)
        for state in (SYN_SENT, SYN_RECV):
            host.memory.change("sk_buff", skb, {"_nfct": 0})
            probe.run("began", skb, hook)
            host.memory.change("nf_conn", connection, {"proto.tcp.state": NONE})
            probe.run("judged", connection, skb)
            host.memory.change("nf_conn", connection, {"proto.tcp.state": state})
            host.found(skb, connection, NEW, hook=hook)
    probe.run("ended", skb, host.arriving, ACCEPT)
    probe.read()
    full = sum(len(probe.rows(table)) for table in ("packets", "refused", "changes")) == 3
    assert full and probe.counters() == {"packets": 6, "refused": 2}
    listed = sum(row["count"] for table in ("packets", "refused", "changes") for row in probe.rows(table))
    timed = sum(one["count"] for one in probe.histograms("time"))
    assert probe.ledger() == {"join_missed": 1, "map_full": 6 + 2 + 4 + 6 - listed - timed}
    host.tracked(host.frame(IPV4, b"\x55" + Flow().packet()[1:], host.eth0))
    probe.read()
    assert probe.ledger()["parse_failed"] == 1


@pytest.mark.proves("conntrack", "knobs.events_per_s", "ledger.{suppressed,breaker,unlisted}")
def test_events_and_rows_keep_their_budgets(load: Load) -> None:
    probe = load(PROBE)
    host = Tracking(probe)
    skb = host.packet(Flow(), host.eth0)
    calls = [probe.prepare("began", skb, host.arriving), probe.prepare("ended", skb, host.arriving, ACCEPT)]
    now = spend_time(probe, calls, spend_events(probe, calls))
    assert probe.row("packets")["count"] + now["unlisted"] == FEW + MANY
    assert now["seen"] == FEW + MANY == probe.counters()["packets"]
