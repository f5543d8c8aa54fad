"""One cause is one incident, by the rules beside the shipped probes: whatever else counts the same packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.findings.open_incident import LEAVES_AFTER
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream

Moves: TypeAlias = Sequence[tuple[tuple[str, str, str], Mapping[str, Any], int]]
"""Probe, table and value; the labels of a row of it; and by how much it moves."""
DROPS = ("kernel_drops", "drops", "count")
QDISC = ("link_rates", "links", "qdisc_drops")
SENT = ("link_rates", "links", "tx_drops")
RECEIVED = ("link_rates", "links", "rx_drops")
COUNTERS = ("protocol_counters", "counters", "count")
BACKLOG = ("softnet", "cpus", "dropped")
SQUEEZES = ("softnet", "cpus", "time_squeeze")
BEHIND = ("softirq_health", "exhausted", "count")
REFUSED = {"counter": "UdpSndbufErrors", "class": "loss", "netns": "red", "meaning": "not sent: no room"}
SENDER = {"device": "veth-a", "netns": "red", "peer": "veth-b", "peer_netns": "host", "qdisc": "noqueue"}
PEER = {"device": "veth-b", "netns": "host", "peer": "veth-a", "peer_netns": "red", "qdisc": "noqueue"}
DROP = {"protocol": "UDP", "ethertype": "IPv4", "provenance": "kernel", "class": "suspicious"}
TOO_LONG = {**DROP, "device": "veth-a", "netns": "red", "reason": "NOT_SPECIFIED", "location": "__dev_forward_skb2"}
FULL = {**DROP, "device": "veth-b", "netns": "host", "reason": "CPU_BACKLOG", "location": "enqueue_to_backlog"}
NIC = ("nic_counters", "losses", "count")
SOCKETS = ("socket_drops", "sockets", "no_memory")
PROBES = (
    "kernel_drops", "link_rates", "nic_counters", "ovs_drops", "protocol_counters", "socket_drops", "softirq_health",
    "softnet",
)  # fmt: skip


class Watched:
    """A stream of what these probes count, and its incidents."""

    def __init__(self) -> None:
        self._stream = Stream(State())
        self._stream.hello()
        for probe in PROBES:
            self._stream.state.apply(frames.Status(**self._stream.stamp(probe), state="attached", mode="summary"))
        self._incidents = Incidents({probe: catalogue.shipped(probe) for probe in PROBES})
        self._totals: Counter[tuple[Any, ...]] = Counter()

    def interval(
        self,
        *moves: tuple[tuple[str, str, str], Mapping[str, Any], int],
        gauges: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
        one_in: int = 1,
    ) -> list[Incident]:
        """The incidents after a second in which these rows moved; ``gauges`` of all rows of a probe's table."""
        tables = {(probe, table) for (probe, table, _), _, _ in moves}
        for probe, table in tables:
            rows: dict[tuple[Any, ...], tuple[Mapping[str, Any], dict[str, Count]]] = {}
            for family, labels, delta in moves:
                if family[:2] == (probe, table):
                    key = tuple(labels.items())
                    self._totals[family, key] += delta
                    counts = rows.setdefault(key, (labels, {}))[1]
                    counts[family[2]] = Count(delta=delta, total=self._totals[family, key])
            more: dict[str, int | float | None] = dict((gauges or {}).get((probe, table), {}))
            listed = [Row(labels=dict(labels), counts=counts, gauges=more) for labels, counts in rows.values()]
            stamp = self._stream.stamp(probe)
            of_what: dict[str, Any] = {"interval_ns": SECOND, "full": False, "one_in": one_in}
            self._stream.state.apply(frames.Table(**stamp, name=table, rows=listed, **of_what))
        self._stream.end()
        return self._incidents.update(self._stream.state)


def told(found: Sequence[Incident]) -> dict[str, tuple[str, int | None]]:
    """By sentence: cause and total."""
    return {one.sentence: (one.cause, one.total) for one in found}


def test_what_a_peer_refuses_is_one_incident_though_both_ends_and_the_sender_count_it() -> None:
    watched, ends = Watched(), ((SENT, SENDER, 60), (RECEIVED, PEER, 60), (COUNTERS, REFUSED, 60))
    for _ in range(3):
        (one,) = watched.interval(*ends, (DROPS, TOO_LONG, 60))
    assert one.sentence.startswith(
        "veth-a (netns red): longer than its peer's MTU, or the peer is down: 60 UDP packets/s lost"
    )
    assert (one.cause, one.total, one.peak) == ("peer-refuses", 180, 60.0)
    assert {proof.probe for proof in one.evidence} == {"kernel_drops", "link_rates", "protocol_counters"}
    watched = Watched()
    (one,) = watched.interval(*ends)
    assert told([one]) == {"veth-a (netns red): its peer veth-b refuses 60 packets/s": ("peer-refuses", 60)}


def test_a_bridge_without_ports_is_one_incident_though_nobody_answers_its_questions() -> None:
    at = {**DROP, "device": "br0", "netns": "red"}
    asked = {**at, "protocol": "not IP", "ethertype": "ARP", "reason": "NO_TX_TARGET", "location": "br_dev_xmit"}
    waited = {**at, "reason": "NEIGH_FAILED", "location": "neigh_invalidate"}
    refused = {**REFUSED, "counter": "IpOutDiscards", "meaning": "not sent"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, asked, 48), (DROPS, waited, 55), (COUNTERS, refused, 35))
        assert [one.cause for one in found] == ["no-port"], told(found)


def test_neighbours_that_do_not_answer_are_one_incident_though_what_waits_for_them_fills_the_senders_buffer() -> None:
    waited = {**DROP, "device": "br0", "netns": "red", "reason": "NEIGH_FAILED", "location": "neigh_invalidate"}
    discards = {**REFUSED, "counter": "IpOutDiscards", "meaning": "not sent"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, waited, 55), (COUNTERS, discards, 50), (COUNTERS, REFUSED, 50))
        assert [one.cause for one in found] == ["neighbour-silent"], told(found)


def test_a_full_backlog_behind_a_veth_is_one_incident() -> None:
    """One packet moves five counters, and the CPU stays behind."""
    of_ip = {**REFUSED, "counter": "IpOutDiscards", "meaning": "not sent"}
    ends = ((SENT, SENDER, 60), (RECEIVED, PEER, 60), (COUNTERS, REFUSED, 60), (COUNTERS, of_ip, 60))
    cpu = ((BACKLOG, {"cpu": 1}, 60), (SQUEEZES, {"cpu": 1}, 500), (BEHIND, {"cpu": 1, "device": ""}, 2000))
    watched = Watched()
    for _ in range(2):
        found = watched.interval(*ends, (DROPS, FULL, 60), *cpu)
        assert [one.cause for one in found] == ["backlog-full"], told(found)
    (one,) = found
    assert one.sentence.startswith("CPU 1: its backlog is full: 60 packets/s lost") and one.total == 120


def test_a_full_backlog_is_one_incident_though_its_devices_are_read_later() -> None:
    """What the CPU itself counts meanwhile does not tell which devices it is about."""
    cpu, ends = (BACKLOG, {"cpu": 1}), ((SENT, SENDER, 40), (RECEIVED, PEER, 40))
    watched = Watched()
    watched.interval((DROPS, FULL, 160), (*cpu, 160))
    found = watched.interval((*cpu, 3), *ends)
    assert [one.cause for one in found] == ["backlog-full"], told(found)


@pytest.mark.proves("nic_counters", "findings.losses.count.!.loss+rx_queue_N_xdp_tx_errors")
def test_what_xdp_sends_back_in_vain_is_told_once_though_the_other_end_counts_it_too() -> None:
    errors = {"device": "veth-b", "counter": "rx_queue_N_xdp_tx_errors", "class": "loss", "meaning": "not sent back"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((NIC, errors, 60), (RECEIVED, SENDER, 60))
        assert [one.cause for one in found] == ["xdp-tx-refused"], told(found)
    (one,) = found
    assert (
        one.sentence.startswith("veth-b: its XDP program sends 60 packets/s back, which the other end")
        and one.total == 180
    )
    other = {**SENDER, "device": "veth-c", "peer": "veth-d"}
    assert {one.cause for one in watched.interval((NIC, errors, 60), (RECEIVED, other, 60))} == {
        "xdp-tx-refused",
        "device-drops",
    }


def test_what_another_link_refuses_is_another_incident() -> None:
    other = {**PEER, "device": "veth-d", "peer": "veth-c"}
    found = Watched().interval((DROPS, TOO_LONG, 60), (RECEIVED, other, 60))
    assert sorted(one.cause for one in found) == ["device-drops", "peer-refuses"]


def shaped(device: str) -> dict[str, Any]:
    return {"device": device, "netns": "red", "qdisc": "tbf", "shaper": f"tbf of {device}"}


@pytest.mark.parametrize("order", [("eth0", "eth1"), ("eth1", "eth0")])
def test_devices_of_one_namespace_do_not_share_what_its_protocols_count(order: tuple[str, str]) -> None:
    """The protocols cannot tell the devices apart: their count belongs to no device's total, nor keeps one alive."""
    watched = Watched()
    both = [(QDISC, shaped(name), 40 if name == "eth0" else 70) for name in order]
    for _ in range(2):
        found = watched.interval(*both, (COUNTERS, REFUSED, 110))
    assert told(found) == {
        "eth1 (netns red): tbf of eth1 drops 70 packets/s": ("qdisc-drops", 140),
        "eth0 (netns red): tbf of eth0 drops 40 packets/s": ("qdisc-drops", 80),
    }
    for _ in range(LEAVES_AFTER + 1):
        found = watched.interval((QDISC, shaped("eth1"), 70), (COUNTERS, REFUSED, 70))
    assert {one.where["device"]: (one.total, one.ended_ns is None) for one in found} == {
        "eth0": (80, False),
        "eth1": (140 + 70 * (LEAVES_AFTER + 1), True),
    }


def test_what_a_tunnel_cannot_send_on_is_folded_below_its_cause_wherever_that_is() -> None:
    """At another device of its namespace; what is much more than all causes there is an incident of its own."""
    tunnel = {"device": "vx0", "netns": "red", "kind": "vxlan", "qdisc": "noqueue"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, TOO_LONG, 60), (SENT, tunnel, 60))
        assert [one.cause for one in found] == ["peer-refuses"]
    elsewhere = {**tunnel, "netns": "blue"}
    for moves in ([(SENT, tunnel, 600)], [(SENT, elsewhere, 60)]):
        watched = Watched()
        for _ in range(3):
            found = watched.interval((DROPS, TOO_LONG, 60), *moves)
        assert {one.cause for one in found} == {"peer-refuses", "sent-on-drops"}


def tracked(counter: str) -> dict[str, Any]:
    return {"counter": f"Conntrack{counter}", "class": "loss", "netns": "red", "meaning": counter}


def test_what_conntrack_drops_is_not_called_a_firewall() -> None:
    freed = {**DROP, "device": "veth-a", "netns": "red", "reason": "NETFILTER_DROP", "location": "nf_hook_slow"}
    freed |= {"class": "benign", "hook": "input"}
    both = [(COUNTERS, tracked(name), 40) for name in ("drop", "insert_failed")]
    for some in (both, both[::-1]):
        (one,) = Watched().interval(*some, (DROPS, freed, 40))
        assert told([one]) == {"netns red: drop: 40/s": ("conntrack-drops", 40)}
        assert {proof.probe for proof in one.evidence} == {"kernel_drops", "protocol_counters"}
    (one,) = Watched().interval(both[1], (DROPS, freed, 40))
    assert told([one]) == {"netns red: insert_failed: 40/s": ("conntrack-clash", 40)}


@pytest.mark.proves("kernel_drops", "findings.drops.count.!.refused")
@pytest.mark.parametrize("hook", ["output", "postrouting"])
def test_what_a_firewall_drops_of_what_the_host_sends_is_one_incident(hook: str) -> None:
    """IP counts it, too, as not sent. What comes in and is dropped it does not."""
    freed = {**DROP, "device": "veth-a", "netns": "red", "reason": "NETFILTER_DROP", "location": "nf_hook_slow"}
    freed |= {"class": "benign", "hook": hook}
    of_ip = {**REFUSED, "counter": "IpOutDiscards", "meaning": "not sent"}
    watched = Watched()
    for _ in range(2):
        found = watched.interval((DROPS, freed, 40), (COUNTERS, of_ip, 40))
        assert [(one.cause, one.peak) for one in found] == [("firewall-drops", 40.0)], told(found)
    assert found[0].total == 80
    found = Watched().interval((DROPS, {**freed, "hook": "input"}, 40), (COUNTERS, of_ip, 40))
    assert sorted(one.cause for one in found) == ["firewall-drops", "send-refused"]


def test_what_no_device_explains_is_said_of_its_namespace_and_counted_once() -> None:
    of_ip = {**REFUSED, "counter": "IpOutDiscards", "meaning": "not sent"}
    watched = Watched()
    for _ in range(2):
        (one,) = watched.interval((COUNTERS, REFUSED, 70), (COUNTERS, of_ip, 75))
    assert told([one]) == {"netns red: not sent: 75/s": ("send-refused", 150)}
    (one,) = Watched().interval((COUNTERS, REFUSED, 70))
    assert told([one]) == {"netns red: not sent: no room: 70/s": ("udp-send-refused", 70)}


def causes(found: Sequence[Incident]) -> set[str]:
    return {one.cause for one in found if one.ended_ns is None}


@pytest.mark.parametrize(("refused", "expected"), [(200, {"qdisc-drops"}), (201, {"qdisc-drops", "udp-send-refused"})])
def test_a_cause_explains_up_to_twice_what_it_counts_and_no_more(refused: int, expected: set[str]) -> None:
    watched, lost = Watched(), [(QDISC, shaped("eth0"), 100), (COUNTERS, REFUSED, refused)]
    assert causes(watched.interval(*lost)) == {"qdisc-drops"}, "sources are not read in the same moment"
    for _ in range(2):
        found = watched.interval(*lost)
        assert causes(found) == expected
    assert {one.cause: one.total for one in found} == {
        cause: 300 if cause == "qdisc-drops" else 3 * refused for cause in expected
    }


def test_several_causes_explain_together_what_none_of_them_does() -> None:
    watched = Watched()
    for _ in range(3):
        found = watched.interval((QDISC, shaped("eth0"), 100), (QDISC, shaped("eth1"), 100), (COUNTERS, REFUSED, 400))
    assert causes(found) == {"qdisc-drops"} and [one.total for one in found] == [300, 300]


def test_what_was_larger_than_a_cause_that_comes_later_stays() -> None:
    watched = Watched()
    for _ in range(3):
        watched.interval((COUNTERS, REFUSED, 10_000))
    both = [(QDISC, shaped("eth0"), 100), (COUNTERS, REFUSED, 100)]
    found = watched.interval(*both)
    assert {one.cause: one.total for one in found} == {"qdisc-drops": 100, "udp-send-refused": 30_100}
    for _ in range(LEAVES_AFTER + 1):
        found = watched.interval((QDISC, shaped("eth0"), 100), (COUNTERS, REFUSED, 0))
    assert {one.cause: one.ended_ns is None for one in found} == {"qdisc-drops": True, "udp-send-refused": False}


def test_a_large_effect_that_becomes_as_small_as_its_cause_keeps_what_it_lost() -> None:
    watched = Watched()
    for _ in range(3):
        watched.interval((QDISC, shaped("eth0"), 100), (COUNTERS, REFUSED, 5000))
    found = watched.interval((QDISC, shaped("eth0"), 100), (COUNTERS, REFUSED, 100))
    assert {one.cause: one.total for one in found} == {"qdisc-drops": 400, "udp-send-refused": 15_100}


def test_memory_that_udp_lacks_is_one_incident_though_its_socket_counts_it_too() -> None:
    """It was seen on 6.12: from 6.18 on no tracepoint tells the socket."""
    dropped = {**DROP, "device": "veth-b", "netns": "red", "reason": "PROTO_MEM", "location": "udp_queue_rcv_one_skb"}
    socket = {"netns": "red", "protocol": "UDP", "port": 9, "process": "reader (7)", "inode": 5, "merged": "no"}
    watched = Watched()
    for _ in range(3):
        listed = watched.interval((DROPS, dropped, 900), (SOCKETS, socket, 900))
    (one,) = listed
    assert one.cause == "protocol-memory" and one.total == 2700
    assert "all memory that UDP may take on this host is taken" in one.sentence


@pytest.mark.parametrize(("protocol", "causes"), [("OSPF", {"receive-buffer-full"}), ("UDP", set())])
@pytest.mark.proves("socket_drops", "findings.sockets.buffer_full.ok.0", "findings.sockets.buffer_full.!!.0+OSPF")
def test_a_raw_socket_without_room_is_one_incident_where_nobody_else_takes_its_packets(
    protocol: str, causes: set[str]
) -> None:
    """It was seen on 5.10 and 6.1: its socket, its place in the kernel and its own counter told it."""
    of = {"netns": "red", "protocol": protocol}
    socket = {**of, "port": 0, "process": "ospfd (7)", "inode": 5, "merged": "no"}
    counter = {**of, "kind": "raw", "process": "ospfd/7", "inode": 5}
    dropped = {**DROP, **of, "device": "eth0", "reason": "SOCKET_RCVBUFF", "location": "raw_rcv"}
    watched = Watched()
    for _ in range(3):
        listed = watched.interval(
            (DROPS, dropped, 300), (("socket_drops", "sockets", "buffer_full"), socket, 300),
            (("protocol_counters", "overruns", "drops"), counter, 300),
        )  # fmt: skip
    assert {one.cause for one in listed} == causes
    (one,) = (one for one in watched._incidents._open if one.cause in ("receive-buffer-full", "raw-overrun"))
    assert "ospfd" in one.told().sentence, "the host may raise it"


def test_a_lost_carrier_explains_any_number_of_packets() -> None:
    """It is a state, and what is counted without it may only just have begun."""
    link = {**shaped("eth0"), "qdisc": "noqueue"}
    lost = (("link_rates", "links", "lost_without_carrier"), link, 10)
    watched = Watched()
    for _ in range(3):
        found = watched.interval((QDISC, link, 300), lost, gauges={("link_rates", "links"): {"carrier_lost": 1}})
    assert [one.cause for one in found] == ["no-carrier"]


def test_a_lost_carrier_is_why_no_neighbour_answers() -> None:
    link = {**shaped("eth0"), "qdisc": "noqueue"}
    silent = {**DROP, "device": "eth0", "netns": "red", "reason": "NEIGH_QUEUEFULL", "location": "__neigh_event_send"}
    lost = (("link_rates", "links", "lost_without_carrier"), {**link, "netns": "red"}, 0)
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, silent, 300), lost, gauges={("link_rates", "links"): {"carrier_lost": 1}})
    assert [one.cause for one in found] == ["no-carrier"]


def test_questions_that_do_not_leave_are_no_other_fault_than_the_silent_neighbour() -> None:
    """A device without carrier drops them. What else its queue drops is another fault."""
    silent = {**DROP, "device": "eth0", "netns": "red", "reason": "NEIGH_QUEUEFULL", "location": "__neigh_event_send"}
    at_queue = {**silent, "reason": "QDISC_DROP", "location": "__tcf_kfree_skb_list"}
    questions = {**at_queue, "protocol": "not IP", "ethertype": "ARP"}
    for dropped, others in ((questions, set()), (at_queue, {"qdisc-drops"})):
        watched = Watched()
        for _ in range(4):
            found = watched.interval((DROPS, silent, 300), (DROPS, dropped, 2))
        assert {one.cause for one in found} == {"neighbour-silent", *others}


@pytest.mark.parametrize("provenance", ["inferred", "kernel"])
def test_udp_of_ipv6_without_a_checksum_that_nobody_takes_is_one_incident(provenance: str) -> None:
    """Before 5.17 no reason tells the two apart."""
    place = {"device": "eth0", "netns": "red", "reason": "NO_SOCKET", "location": "__udp6_lib_rcv"}
    dropped = {**DROP, **place, "ethertype": "IPv6", "provenance": provenance}
    counter = {"counter": "Udp6InCsumErrors", "class": "loss", "netns": "red", "meaning": "a wrong checksum"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, dropped, 300), (COUNTERS, counter, 300))
    assert [one.cause for one in found] == ["nobody-listens"]


@pytest.mark.parametrize(("reason", "cause"), [("OVS_NO_PORT", "ovs-no-port"), ("OVS_TOO_LARGE", "ovs-too-large")])
def test_what_a_port_of_open_vswitch_does_not_take_is_one_incident(reason: str, cause: str) -> None:
    """Before 6.7 the kernel tells one place of the datapath too few: seen of a VM that had died, 75 packets/s each."""
    place = {**DROP, "netns": "host", "provenance": "inferred"}
    coarse = {**place, "device": "vnet0", "reason": "OVS_ACTION_FAILED", "location": "do_execute_actions"}
    fine = {**place, "port": "vnet0", "reason": reason, "location": "do_output"}
    watched = Watched()
    for _ in range(3):
        (one,) = watched.interval((DROPS, coarse, 76), (("ovs_drops", "drops", "count"), fine, 75))
    assert (one.cause, one.total) == (cause, 225)
    alone = Watched()
    for _ in range(3):
        (one,) = alone.interval((DROPS, coarse, 76))
    assert one.cause == "ovs-not-sent"


def test_what_a_macvtap_does_not_take_is_one_incident_though_it_counts_it_as_received() -> None:
    full = {**DROP, "device": "macvtap0", "netns": "red", "reason": "FULL_RING", "location": "tap_handle_frame"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, full, 300), (RECEIVED, {"device": "macvtap0", "netns": "red"}, 300))
    assert [(one.cause, one.total) for one in found] == [("tap-ring-full", 900)]


@pytest.mark.parametrize("location", ["ip_fragment.constprop.0", "ip6_fragment"])
def test_what_a_tunnel_may_not_cut_is_one_incident_though_the_tunnel_counts_it_too(location: str) -> None:
    """Seen of a VXLAN with df: the device below did not say why, and the tunnel was another incident."""
    long = {**DROP, "device": "eth0", "netns": "red", "reason": "NOT_SPECIFIED", "location": location}
    tunnel = {"device": "vx", "netns": "red", "kind": "vxlan", "qdisc": "noqueue"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, long, 300), (SENT, tunnel, 300))
    assert [(one.cause, one.total) for one in found] == [("too-big", 900)]


def test_what_counts_the_end_of_a_loss_does_not_take_the_lead_from_what_named_it() -> None:
    """Seen on 5.10: the device's own counter was read last, and the sentence no longer said that a ring was full."""
    full = {**DROP, "device": "vnet0", "netns": "red", "reason": "FULL_RING", "location": "tun_net_xmit"}
    tap = {"device": "vnet0", "netns": "red", "qdisc": "noqueue"}
    watched = Watched()
    watched.interval((DROPS, full, 400), (SENT, tap, 200))
    watched.interval((DROPS, full, 500), (SENT, tap, 600))
    for _ in range(3):
        (one,) = watched.interval((DROPS, full, 0), (SENT, tap, 100))
        assert one.sentence.startswith("vnet0 (netns red): its ring is full")


def test_what_rp_filter_refuses_is_one_incident_where_no_reason_tells_it() -> None:
    place = {"device": "eth0", "netns": "red", "hook": "to this host", "reason": "NOT_SPECIFIED"}
    martian = {**DROP, **place, "location": "ip_rcv_finish_core"}
    counter = {"counter": "TcpExtIPReversePathFilter", "class": "loss", "netns": "red", "meaning": "another way"}
    watched = Watched()
    for _ in range(3):
        found = watched.interval((DROPS, martian, 300), (COUNTERS, counter, 300))
    assert [one.cause for one in found] == ["martians"]
