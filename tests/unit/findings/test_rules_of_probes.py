"""The rules beside the shipped probes: at the limit nothing is said, one step beyond it is, and how loud.

The limits stand here as figures, not read from the manifests: who changes one of them changes the other. A rate of a
`!!` rule is said after one interval. One of a `!` rule is said at once when it is ten times its limit (or `at_once`),
and after three of ten seconds when it is above it. Some rules also speak of what lasts for a minute.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import index
from netconsole.telemetry.state import State
from netconsole_collector.sources.ovs.trouble import DROPS, MEANINGS
from tests.unit.telemetry.test_state import SECOND, Stream

AT_ONCE, TEN_SECONDS = 1, 10
SAMPLES = 200
MS = 1_000_000
"""In nanoseconds."""
DROP: dict[str, frames.Label] = {
    "device": "uxva",
    "netns": "host",
    "location": "somewhere",
    "protocol": "UDP",
    "ethertype": "IPv4",
    "provenance": "kernel",
}
LONG_S = 10
"""Of an interval: so a rate may be a little above a small limit."""


class Played:
    """One probe, whose frames a test makes."""

    def __init__(self, probe: str) -> None:
        self.probe = probe
        self.stream = Stream(State())
        self.stream.hello()
        self.incidents = Incidents({probe: catalogue.shipped(probe)})
        self.stream.state.apply(frames.Status(**self.stream.stamp(probe), state="attached", mode="summary"))

    def end(self) -> list[Incident]:
        """What goes on after this interval."""
        self.stream.end()
        return [one for one in self.incidents.update(self.stream.state) if one.ended_ns is None]


def of_rate(
    probe: str,
    table: str,
    value: str,
    labels: Mapping[str, frames.Label],
    moved: int,
    seconds: int,
    every_s: int = 1,
    interval_s: float = 1,
    more: int = 0,
) -> list[Incident]:
    """A row moves by so much each `every_s` seconds, for so many seconds, and by ``more`` in the first one."""
    played, total = Played(probe), 0
    found: list[Incident] = []
    for second in range(seconds):
        delta = moved if second % every_s == 0 else 0
        delta += more if second == 0 else 0
        total += delta
        rows = [Row(labels=dict(labels), counts={value: Count(delta=delta, total=total)})] if delta else []
        stamp = played.stream.stamp(probe)
        played.stream.state.apply(
            frames.Table(**stamp, name=table, interval_ns=int(interval_s * SECOND), full=False, rows=rows)
        )
        found = played.end()
    return found


def of_gauge(probe: str, table: str, labels: Mapping[str, frames.Label], gauges: Mapping[str, float]) -> list[Incident]:
    """A row has these gauges."""
    played = Played(probe)
    stamp = played.stream.stamp(probe)
    row = Row(labels=dict(labels), counts={}, gauges=dict(gauges))
    played.stream.state.apply(frames.Table(**stamp, name=table, interval_ns=SECOND, full=True, rows=[row]))
    return played.end()


def of_percentile(
    probe: str, name: str, labels: Mapping[str, frames.Label], value_ns: int, usual_ns: int | None = None
) -> list[Incident]:
    """Two intervals of samples that all took so long; before them some that took the usual time, if one is given."""
    played, slots = Played(probe), dict[int, int]()
    found: list[Incident] = []
    for taken_ns in [*([usual_ns] * 5 if usual_ns else []), value_ns, value_ns]:
        slot = index(taken_ns)
        slots[slot] = slots.get(slot, 0) + SAMPLES
        count = sum(slots.values())
        delta = Buckets(count=SAMPLES, sum=SAMPLES * taken_ns, min=None, max=None, buckets=[(slot, SAMPLES)])
        total = Buckets(count=count, sum=count, min=None, max=None, buckets=list(slots.items()))
        stamp = played.stream.stamp(probe)
        played.stream.state.apply(
            frames.Histogram(
                **stamp, name=name, interval_ns=SECOND, unit="ns", labels=dict(labels), delta=delta, total=total
            )
        )
        found = played.end()
    return found


def said(found: list[Incident], level: str | None, *words: str) -> None:
    """One incident of this level with these words; none for None."""
    assert [one.level for one in found] == ([] if level is None else [level]), [one.sentence for one in found]
    for one in found:
        assert all(word in one.sentence for word in words), one.sentence


@pytest.mark.parametrize(("packets", "level"), [(1, None), (2, "!"), (9, "!"), (10, "!!")])
def test_one_packet_alone_is_no_rate_and_a_handful_is_not_to_act_on(packets: int, level: str | None) -> None:
    labels: dict[str, frames.Label] = {"device": "tap0", "netns": "host", "queue": 0, "carrier": ""}
    said(of_rate("tx_queue_latency", "dropped", "count", labels, packets, AT_ONCE, interval_s=0.9), level)


def of_one_reason(reason: str, moved: int, seconds: int, every_s: int = 1) -> list[Incident]:
    labels = {**DROP, "reason": reason, "class": "suspicious"}
    return of_rate("kernel_drops", "drops", "count", labels, moved, seconds, every_s)


# ---- kernel_drops ----


@pytest.mark.proves("kernel_drops", "findings.drops.count.!!.{shed,full}")
@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("QDISC_DROP", "qdisc-drops"),
        ("QDISC_OVERLIMIT", "qdisc-drops"),
        ("QDISC_CONGESTED", "qdisc-drops"),
        ("SOCKET_RCVBUFF", "receive-buffer-full"),
        ("SOCKET_BACKLOG", "receive-buffer-full"),
        ("FULL_RING", "tap-ring-full"),
        ("CPU_BACKLOG", "backlog-full"),
    ],
)
def test_a_reason_that_always_is_a_loss(reason: str, cause: str) -> None:
    labels = {**DROP, "reason": reason, "class": "suspicious"}
    loud("kernel_drops", "drops", "count", labels, 1)
    said(of_one_reason(reason, 1, TEN_SECONDS), None)
    (one,) = of_one_reason(reason, 2, AT_ONCE)
    assert one.cause == cause


@pytest.mark.proves(
    "kernel_drops",
    "findings.drops.count.!!.{shed,full}",
    "findings.drops.count.!.{fault,refused,unknown}",
)
@pytest.mark.parametrize(("seconds", "level"), [(45, None), (49, "!")])
@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("QDISC_DROP", "qdisc-drops"),
        ("SOCKET_RCVBUFF", "receive-buffer-full"),
        ("FULL_RING", "tap-ring-full"),
        ("CPU_BACKLOG", "backlog-full"),
        ("NEIGH_FAILED", "neighbour-silent"),
        ("NETFILTER_DROP", "firewall-drops"),
        ("unknown", "no-reason"),
    ],
)
def test_thirteen_drops_in_a_minute_are_said_and_twelve_are_not(
    reason: str, cause: str, seconds: int, level: str | None
) -> None:
    """0.2/s, over a minute. The twelfth is in the 45th second, the thirteenth in the 49th."""
    labels = {**DROP, "reason": reason, "class": "unknown" if reason == "unknown" else "suspicious"}
    found = of_rate("kernel_drops", "drops", "count", labels, 1, seconds, every_s=4)
    said(found, level)
    assert {one.cause for one in found} <= {cause}


@pytest.mark.proves("kernel_drops", "findings.drops.count.!!.fault")
@pytest.mark.parametrize(("reason", "cause"), [("IP_RPFILTER", "reverse-path"), ("NEIGH_DEAD", "neighbour-silent")])
def test_more_than_a_thousand_of_what_may_be_harmless(reason: str, cause: str) -> None:
    found = of_one_reason(reason, 1001, AT_ONCE)
    said(found, "!!", "1.00k", "uxva")
    assert [one.cause for one in found] == [cause]
    at_the_limit = of_one_reason(reason, 1000, AT_ONCE)
    assert "!!" not in [one.level for one in at_the_limit]


@pytest.mark.proves("kernel_drops", "findings.drops.count.!.{fault,refused,unknown}")
@pytest.mark.parametrize(
    ("reason", "kind", "at_once", "cause"),
    [
        ("NEIGH_FAILED", "suspicious", 10, "neighbour-silent"),
        ("NEIGH_QUEUEFULL", "suspicious", 10, "neighbour-silent"),
        ("NETFILTER_DROP", "benign", 20, "firewall-drops"),
        ("A_NEW_ONE", "unknown", 100, "unknown-reason"),
    ],
)
def test_a_reason_that_is_said_at_once_when_it_is_large(reason: str, kind: str, at_once: int, cause: str) -> None:
    labels = {**DROP, "reason": reason, "class": kind}

    def drops(moved: int, seconds: int, more: int = 0) -> list[Incident]:
        return of_rate("kernel_drops", "drops", "count", labels, moved, seconds, more=more)

    said(drops(at_once - 1, AT_ONCE), None)
    said(drops(at_once, AT_ONCE), "!", f"{at_once}", "uxva")
    said(drops(1, TEN_SECONDS), None)
    said(drops(1, TEN_SECONDS, more=1), "!", "1.1", "uxva")
    assert [one.cause for one in drops(at_once, AT_ONCE)] == [cause]


# ---- rates of the other probes ----

LINK: dict[str, frames.Label] = {"device": "uxva", "netns": "host", "qdisc": "fq_codel", "shaper": ""}
PORT: dict[str, frames.Label] = {"datapath": "system@ovs-system", "port": "vnet7", "vm": "web", "netns": "host"}
OVS_DROP: dict[str, frames.Label] = {**PORT, "location": "somewhere", "provenance": "kernel"}
SOCKET: dict[str, frames.Label] = {
    "protocol": "UDP",
    "port": 53,
    "process": "named (7)",
    "peer": "192.0.2.9",
    "address": "::",
    "inode": 4711,
}
QUEUE: dict[str, frames.Label] = {"device": "vnet7", "netns": "host", "vm": "web", "queue": 3}
COUNTER: dict[str, frames.Label] = {"netns": "host", "meaning": "Segments were lost", "class": "loss"}


def loud(
    probe: str, table: str, value: str, labels: Mapping[str, frames.Label], limit: int, *words: str, last: str = "!!"
) -> None:
    """A rule `!!`: the limit is nothing, a tenth more is said after one interval."""
    for more, level in ((0, None), (1, last)):
        moved = LONG_S * limit + more
        found = of_rate(probe, table, value, labels, moved, AT_ONCE, interval_s=LONG_S) if moved else []
        said(found, level, f"{moved / LONG_S:.3g}", *words)


def quiet(probe: str, table: str, value: str, labels: Mapping[str, frames.Label], limit: int, *words: str) -> None:
    """A rule `!`: ten times the limit is said after one interval, a tenth more than the limit after ten."""
    said(of_rate(probe, table, value, labels, 10 * limit - 1, AT_ONCE), None)
    said(
        of_rate(probe, table, value, labels, 10 * limit, AT_ONCE),
        "!",
        "1.00k" if limit == 100 else f"{10 * limit}",
        *words,
    )
    said(of_rate(probe, table, value, labels, limit, TEN_SECONDS), None)
    said(of_rate(probe, table, value, labels, limit, TEN_SECONDS, more=limit), "!", *words)


@pytest.mark.proves("link_rates", "findings.links.{rx_errors,tx_errors,rx_drops,tx_drops,qdisc_requeues}.!")
@pytest.mark.parametrize(
    ("value", "limit", "cause"),
    [
        ("rx_errors", 1, "link_rates/links/rx_errors"),
        ("tx_errors", 1, "not-sent"),
        ("rx_drops", 1, "device-drops"),
        ("tx_drops", 1, "tap-ring-full"),
        ("qdisc_requeues", 10, "link_rates/links/qdisc_requeues"),
    ],
)
def test_what_a_device_counts(value: str, limit: int, cause: str) -> None:
    quiet("link_rates", "links", value, LINK, limit, "uxva")
    (one,) = of_rate("link_rates", "links", value, LINK, 10 * limit, AT_ONCE)
    assert one.cause == cause


@pytest.mark.proves("link_rates", "findings.links.tx_drops.!.*")
def test_what_the_other_end_of_a_veth_refuses() -> None:
    sender: dict[str, frames.Label] = {**LINK, "peer": "eth0", "peer_netns": "blue"}
    quiet("link_rates", "links", "tx_drops", sender, 1, "uxva", "its peer eth0 refuses")
    refused: dict[str, frames.Label] = {
        **DROP,
        "reason": "NOT_SPECIFIED",
        "class": "suspicious",
        "location": "__dev_forward_skb2",
    }
    words = ("uxva", "longer than its peer's MTU")
    quiet("kernel_drops", "drops", "count", refused, 1, *words)
    said(of_rate("kernel_drops", "drops", "count", refused, 1000, AT_ONCE), "!", *words)
    said(of_rate("kernel_drops", "drops", "count", refused, 1001, AT_ONCE), "!!", *words)
    (one,) = of_rate("kernel_drops", "drops", "count", refused, 10, AT_ONCE)
    assert one.cause == "peer-refuses"


@pytest.mark.proves("link_rates", "findings.links.tx_drops.!.vxlan")
def test_what_a_tunnel_or_vlan_cannot_send_on() -> None:
    for kind in ("vxlan", "vlan", "macvlan"):
        tunnel: dict[str, frames.Label] = {**LINK, "kind": kind}
        quiet("link_rates", "links", "tx_drops", tunnel, 1, "uxva", "refused below it")
        (one,) = of_rate("link_rates", "links", "tx_drops", tunnel, 10, AT_ONCE)
        assert one.cause == "sent-on-drops"


@pytest.mark.proves("link_rates", "findings.queues.drops.!.htb class")
def test_a_class_that_drops_is_named_and_its_leaf_is_not_said_again() -> None:
    place: dict[str, frames.Label] = {"device": "uxva", "netns": "host", "handle": "1:10", "parent": "1:1"}
    for kind in ("htb", "hfsc", "drr", "qfq", "ets", "prio"):
        labels = {**place, "qdisc": f"{kind} class"}
        quiet("link_rates", "queues", "drops", labels, 1, "uxva")
        (one,) = of_rate("link_rates", "queues", "drops", labels, 10, AT_ONCE)
        assert (one.level, one.sentence) == ("!", f"uxva: {kind} class 1:10 drops 10 packets/s")
        assert one.commands == ("tc -s class show dev uxva",)
    leaf: dict[str, frames.Label] = {**place, "qdisc": "pfifo", "handle": "10:", "parent": "1:10"}
    assert of_rate("link_rates", "queues", "drops", leaf, 1000, AT_ONCE) == []


@pytest.mark.proves("ovs_drops", "findings.drops.count.!.{fault,unwanted+OVS_DROP_LAST_ACTION}")
def test_what_open_vswitch_drops() -> None:
    quiet("ovs_drops", "drops", "count", {**OVS_DROP, "reason": "OVS_DROP_METER", "class": "suspicious"}, 1, "vnet7")
    last_action = {**OVS_DROP, "reason": "OVS_DROP_LAST_ACTION", "class": "benign"}
    quiet("ovs_drops", "drops", "count", last_action, 100, "vnet7", "no output")


@pytest.mark.proves("ovs_flows", "findings.datapaths.lost.!!")
def test_an_upcall_that_a_datapath_loses() -> None:
    loud("ovs_flows", "datapaths", "lost", {"datapath": "system@ovs-system", "kind": "system"}, 0, "system@ovs-system")


ERRORS = {"ENOTCONN": "no handler", "ECONNREFUSED": "handler is gone", "EAGAIN": "queue is full"}


@pytest.mark.proves("ovs_upcalls", "findings.failures.count.!!.{ENOTCONN,ECONNREFUSED,EAGAIN}")
@pytest.mark.parametrize("error", ["ENOTCONN", "ECONNREFUSED", "EAGAIN"])
def test_an_upcall_that_reaches_no_handler(error: str) -> None:
    loud("ovs_upcalls", "failures", "count", {**PORT, "error": error, "kind": "miss"}, 0, ERRORS[error], "vnet7")
    assert not of_rate("ovs_upcalls", "failures", "count", {**PORT, "error": "EMSGSIZE", "kind": "miss"}, 9, AT_ONCE)


@pytest.mark.proves("ovs_upcalls", "findings.upcalls.unanswered.!!.miss")
def test_an_upcall_without_an_answer() -> None:
    loud("ovs_upcalls", "upcalls", "unanswered", {**PORT, "kind": "miss"}, 0, "vnet7")
    assert not of_rate("ovs_upcalls", "upcalls", "unanswered", {**PORT, "kind": "action"}, 9, AT_ONCE)


@pytest.mark.proves("ovs_upcalls", "findings.upcalls.failed.!")
def test_an_upcall_that_failed() -> None:
    said(of_rate("ovs_upcalls", "upcalls", "failed", {**PORT, "kind": "action"}, 1, AT_ONCE), "!", "1", "vnet7")


@pytest.mark.proves(
    "protocol_counters",
    "findings.counters.count.!.{loss,UdpRcvbufErrors,UdpSndbufErrors,IpOutDiscards,TcpExtListenOverflows}",
    "findings.counters.count.!.{TcpExtListenDrops,IpOutNoRoutes}",
)
@pytest.mark.parametrize(
    ("counter", "kind", "cause"),
    [
        ("IpReasmFails", "loss", "protocol-loss"),
        ("UdpRcvbufErrors", "loss", "receive-buffer-full"),
        ("Udp6RcvbufErrors", "loss", "receive-buffer-full"),
        ("UdpSndbufErrors", "loss", "udp-send-refused"),
        ("Ip6OutDiscards", "loss", "send-refused"),
        ("TcpExtListenOverflows", "loss", "listen-queue-full"),
        ("TcpExtListenDrops", "total", "half-open-full"),
        ("TcpExtTCPReqQFullDrop", "loss", "half-open-full"),
        ("IpOutNoRoutes", "loss", "no-route-out"),
    ],
)
def test_a_protocol_counter_that_means_loss(counter: str, kind: str, cause: str) -> None:
    labels = {**COUNTER, "counter": counter, "class": kind}
    quiet("protocol_counters", "counters", "count", labels, 1, "this host: Segments were lost: ")
    (one,) = of_rate("protocol_counters", "counters", "count", labels, 10, AT_ONCE)
    assert one.cause == cause
    assert not of_rate("protocol_counters", "counters", "count", {**labels, "class": "", "counter": "x"}, 99, AT_ONCE)


@pytest.mark.proves("protocol_counters", "findings.counters.count.!!.{Conntrackdrop,Conntrackinsert_failed}")
@pytest.mark.parametrize(
    ("counter", "cause"), [("Conntrackdrop", "conntrack-drops"), ("Conntrackinsert_failed", "conntrack-clash")]
)
def test_a_full_table_of_connections_and_a_clash(counter: str, cause: str) -> None:
    loud("protocol_counters", "counters", "count", {**COUNTER, "counter": counter}, 1)
    (one,) = of_rate("protocol_counters", "counters", "count", {**COUNTER, "counter": counter}, 2, AT_ONCE)
    assert one.cause == cause


@pytest.mark.proves("kernel_drops", "findings.drops.count.!.refused")
@pytest.mark.parametrize("location", ["ip_rcv_finish_core", "ip_rcv_finish_core.isra.0"])
def test_martians_are_said_where_unwanted_multicasts_are_not(location: str) -> None:
    one = {**DROP, "reason": "NOT_SPECIFIED", "class": "benign", "location": location, "hook": "to this host"}
    said(of_rate("kernel_drops", "drops", "count", one, 20, AT_ONCE), "!", "martians")
    assert of_rate("kernel_drops", "drops", "count", {**one, "hook": "none"}, 100, AT_ONCE) == []
    assert of_rate("kernel_drops", "drops", "count", {**one, "location": "br_flood"}, 100, AT_ONCE) == []


@pytest.mark.proves("socket_drops", "findings.sockets.buffer_full.!!.yes")
def test_merged_packets_are_said_to_be_more_datagrams() -> None:
    one = {**SOCKET, "merged": "yes"}
    loud("socket_drops", "sockets", "buffer_full", one, 1, "merged packets/s lost, each of up to 64 datagrams")
    (other,) = of_rate("socket_drops", "sockets", "buffer_full", {**one, "merged": "no"}, 2, AT_ONCE)
    assert "merged" not in other.sentence


@pytest.mark.proves("socket_drops", "findings.sockets.no_memory.!!")
@pytest.mark.proves("socket_groups", "findings.sockets.drops.!!")
def test_what_sockets_lose() -> None:
    loud("socket_drops", "sockets", "no_memory", SOCKET, 1, "53")
    loud("socket_groups", "sockets", "drops", SOCKET, 1, "53", "4711")


@pytest.mark.proves("softirq_health", "findings.exhausted.count.!")
@pytest.mark.proves("softnet", "findings.cpus.dropped.!!", "findings.cpus.time_squeeze.!")
def test_a_cpu_that_gets_more_packets_than_it_can_handle() -> None:
    quiet("softirq_health", "exhausted", "count", {"device": "uxva", "netns": "host", "cpu": 5}, 100, "CPU 5", "uxva")
    quiet("softirq_health", "exhausted", "count", {"device": "", "netns": "host", "cpu": 5}, 100, "CPU 5", "backlog")
    loud("softnet", "cpus", "dropped", {"cpu": 5}, 1, "CPU 5")
    quiet("softnet", "cpus", "time_squeeze", {"cpu": 5}, 10, "CPU 5")


@pytest.mark.proves("tun_queues", "findings.queues.ring_full.!!")
@pytest.mark.proves("vhost_queues", "findings.queues.starved_runs.!")
def test_a_guest_that_does_not_take_its_packets() -> None:
    loud("tun_queues", "queues", "ring_full", QUEUE, 1, "web", "vnet7", "q3")
    quiet("vhost_queues", "queues", "starved_runs", {**QUEUE, "direction": "rx"}, 10, "web", "vnet7", "q3")


@pytest.mark.proves(
    "tx_queue_latency", "findings.dropped.count.{!!,!!.none}", "findings.refused.count.{!!.dropped,!.busy}"
)
def test_what_a_queue_or_its_driver_does_not_take() -> None:
    loud("tx_queue_latency", "dropped", "count", {**QUEUE, "carrier": ""}, 1, "vnet7", "queue 3")
    loud("tx_queue_latency", "dropped", "count", {**QUEUE, "carrier": "none"}, 20, "vnet7", "no carrier")
    loud("tx_queue_latency", "refused", "count", {**QUEUE, "code": "dropped"}, 1, "vnet7", "queue 3")
    quiet("tx_queue_latency", "refused", "count", {**QUEUE, "code": "busy"}, 10, "vnet7", "queue 3")


@pytest.mark.proves("virtio_guest", "findings.devices.refills.!!")
def test_a_receive_ring_that_is_filled_late() -> None:
    """The limit is one in ten seconds: here an interval."""
    device = {"device": "eth0", "netns": "host"}
    said(of_rate("virtio_guest", "devices", "refills", device, 1, AT_ONCE, interval_s=10), None)
    said(of_rate("virtio_guest", "devices", "refills", device, 2, AT_ONCE, interval_s=10), "!!", "eth0", "0.2")


# ---- gauges ----

DATAPATH: dict[str, frames.Label] = {"datapath": "system@ovs-system", "kind": "system"}


@pytest.mark.proves("link_rates", "findings.links.{carrier_lost,carrier_lost_to_peer}.!")
@pytest.mark.parametrize("gauge", ["carrier_lost", "carrier_lost_to_peer"])
def test_a_device_without_a_carrier(gauge: str) -> None:
    said(of_gauge("link_rates", "links", LINK, {gauge: 0}), None)
    said(of_gauge("link_rates", "links", LINK, {gauge: 1}), "!", "uxva", "carrier")


@pytest.mark.proves("ovs_flows", "findings.datapaths.no_handler.!!", "findings.vswitchd.{silent,ended}.!!")
@pytest.mark.proves("ovs_flows", "findings.datapaths.{limit_used_pct,dump_ms,masks_per_packet}.!")
@pytest.mark.parametrize(
    ("gauge", "limit", "beyond", "level", "word"),
    [
        ("no_handler", 0, 1, "!!", "no handler"),
        ("limit_used_pct", 90, 90.5, "!", "90"),
        ("dump_ms", 1000, 1001, "!", "1"),
        ("masks_per_packet", 20, 20.5, "!", "20"),
    ],
)
def test_a_datapath_that_is_full_or_slow(gauge: str, limit: float, beyond: float, level: str, word: str) -> None:
    said(of_gauge("ovs_flows", "datapaths", DATAPATH, {gauge: limit}), None)
    said(of_gauge("ovs_flows", "datapaths", DATAPATH, {gauge: beyond}), level, "system@ovs-system", word)
    process = {"process": "ovs-vswitchd (9)"}
    said(of_gauge("ovs_flows", "vswitchd", process, {"silent": 0}), None)
    said(of_gauge("ovs_flows", "vswitchd", process, {"silent": 1}), "!!", "ovs-vswitchd (9)")
    said(of_gauge("ovs_flows", "vswitchd", process, {"ended": 1}), "!!", "ovs-vswitchd (9) has ended")


PMD: dict[str, frames.Label] = {"datapath": "ovs-netdev", "numa": 0, "core": 3}
PMD_WORDS = "PMD on core 3 (node 0)"


@pytest.mark.proves("ovs_pmd", "findings.threads.{waits_pct,busy_pct,upcall_pct}.!", "findings.threads.waits_pct.!!")
@pytest.mark.parametrize(
    ("gauge", "limit", "beyond", "level", "word"),
    [
        ("waits_pct", 2, 2.5, "!", "2.50 % of its run time waits for the CPU"),
        ("waits_pct", 2, 35, "!!", "35 % of its run time waits for the CPU"),
        ("busy_pct", 95, 95.5, "!", "95.5 % busy"),
        ("upcall_pct", 5, 5.5, "!", "5.50 % of its packets"),
    ],
)
def test_a_pmd_thread_that_is_disturbed_or_full(gauge: str, limit: float, beyond: float, level: str, word: str) -> None:
    said(of_gauge("ovs_pmd", "threads", PMD, {gauge: limit}), None)
    said(of_gauge("ovs_pmd", "threads", PMD, {gauge: beyond}), level, PMD_WORDS, word)


@pytest.mark.proves("ovs_pmd", "findings.threads.involuntary.!", "findings.threads.lost.!!")
def test_what_a_pmd_thread_suffers_and_loses() -> None:
    said(of_rate("ovs_pmd", "threads", "involuntary", PMD, 99, AT_ONCE), None)
    said(of_rate("ovs_pmd", "threads", "involuntary", PMD, 100, AT_ONCE), "!", PMD_WORDS, "100 times/s")
    quiet("ovs_pmd", "threads", "involuntary", PMD, 10, PMD_WORDS)
    loud("ovs_pmd", "threads", "lost", PMD, 0, PMD_WORDS)


@pytest.mark.proves(
    "ovs_pmd",
    "findings.trouble.count.!.{datapath_drop_lock_error,datapath_drop_meter,vhost_tx_contention,upcall_flow_limit_hit}",
)
@pytest.mark.parametrize(
    ("counter", "limit", "word"),
    [
        ("datapath_drop_rx_invalid_packet", 1, "malformed"),
        ("datapath_drop_meter", 1, "over the rate of a meter"),
        ("vhost_tx_contention", 100, "waited for each other"),
        ("upcall_flow_limit_hit", 1, "the flow table is full"),
    ],
)
def test_a_coverage_counter_of_trouble(counter: str, limit: int, word: str) -> None:
    quiet("ovs_pmd", "trouble", "count", {"counter": counter, "meaning": MEANINGS[counter]}, limit, word)


@pytest.mark.proves(
    "ovs_pmd",
    "findings.ports.{rx_missed,rx_no_buffers,rx_policed,tx_full,tx_too_large,tx_policed,tx_refused}.!",
    "findings.ports.down.!.dpdk", "findings.rxqs.remote.!",
)  # fmt: skip
@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("rx_missed", "polled too late"), ("rx_no_buffers", "no buffers"), ("rx_policed", "from it are over"),
        ("tx_full", "its queue is full"), ("tx_too_large", "larger than its MTU"), ("tx_policed", "to it are over"),
        ("tx_refused", "an offload that it cannot do"),
    ],
)  # fmt: skip
def test_what_a_polled_port_loses(value: str, word: str) -> None:
    port: dict[str, frames.Label] = {"port": "dpdk0", "type": "dpdk"}
    quiet("ovs_pmd", "ports", value, port, 1, "dpdk0", word)
    said(of_gauge("ovs_pmd", "ports", port, {"down": 1}), "!", "dpdk0: no link")
    said(of_gauge("ovs_pmd", "ports", {"port": "vm", "type": "dpdkvhostuserclient"}, {"down": 1}), None)
    queue: dict[str, frames.Label] = {"datapath": "ovs-netdev", "port": "dpdk0", "queue": 1}
    said(of_gauge("ovs_pmd", "rxqs", queue, {"remote": 0, "core": 3}), None)
    said(of_gauge("ovs_pmd", "rxqs", queue, {"remote": 1, "core": 3}), "!", "dpdk0, queue 1: polled on core 3")


def test_each_coverage_counter_of_a_lost_packet_is_a_fault() -> None:
    rules = [one for one in catalogue.shipped("ovs_pmd").findings if one.table == "trouble"]
    assert rules[0].where["counter"] == tuple(DROPS)
    assert {name for one in rules for name in one.where["counter"]} == MEANINGS.keys()


# ---- block devices ----

ASKED: dict[str, frames.Label] = {"device": "sdb", "operation": "write", "process": "qemu", "pid": 77, "vm": "web-07"}


@pytest.mark.proves("block_path", "findings.ios.errors.!!", "findings.ios.{refused,requeues}.!")
def test_what_a_block_device_fails_refuses_and_puts_back() -> None:
    loud("block_path", "ios", "errors", ASKED, 0, "sdb", "qemu", "end with an error")
    quiet("block_path", "ios", "refused", ASKED, 1, "sdb", "refused before they reach it")
    quiet("block_path", "ios", "requeues", ASKED, 1, "sdb", "its driver puts back")


FLUSHED: dict[str, frames.Label] = {**ASKED, "operation": "flush", "stage": "whole"}
PASSED_ON: dict[str, frames.Label] = {**ASKED, "device": "dm-3", "stage": "whole"}
LIMITED: dict[str, frames.Label] = {"vm": "web-07", "device": "sdb", "what": "reads", "group": "/machine/web-07"}


@pytest.mark.proves("io_limits", "findings.limits.used_pct.!")
def test_a_vm_that_uses_up_its_own_limit() -> None:
    said(of_gauge("io_limits", "limits", LIMITED, {"used_pct": 90.0, "limit_per_s": 20}), None)
    used = of_gauge("io_limits", "limits", LIMITED, {"used_pct": 97.5, "limit_per_s": 20})
    said(used, "!", "web-07: reaches its own limit of reads on sdb", "97.5 % of 20 per second")


# ---- percentiles ----

ENDS: dict[str, frames.Label] = {"direction": "in", "from": "eth0", "to": "vnet7"}


CALLS: dict[str, frames.Label] = {
    "device": "sdb", "file_system": "ext4", "way": "direct", "process": "qemu", "pid": 77, "vm": "web-07"
}  # fmt: skip
TRIP: dict[str, frames.Label] = {
    "vm": "web-07", "thread": "IO iothread1", "tid": 78, "device": "sdb", "operation": "write"
}  # fmt: skip


def test_a_late_transmit_queue_has_the_command_that_names_its_shaper() -> None:
    [found] = of_percentile("tx_queue_latency", "wait", QUEUE, 200 * MS)
    assert [line.replace("'", "") for line in found.commands] == ["tc -s qdisc show dev vnet7"]


@pytest.mark.proves("block_path", "findings.times.p99.!.{device,queue,whole+flush,whole+read}")
@pytest.mark.proves("fs_path", "findings.times.p99.!.{read,fsync}")
@pytest.mark.proves("host_path", "findings.crossing.p99.!")
@pytest.mark.proves("local_path", "findings.crossing.p99.!")
@pytest.mark.proves("ovs_upcalls", "findings.latency.p99.!.miss", "findings.scheduled.p99.!")
@pytest.mark.proves("softirq_health", "findings.late.p99.!!")
@pytest.mark.proves("tx_kick_path", "findings.stages.p99.!.total")
@pytest.mark.proves("tx_queue_latency", "findings.wait.p99.{!,!!}")
@pytest.mark.proves("virtio_blk", "findings.stages.p99.!.{kick,B2-B3}")
@pytest.mark.parametrize(
    ("probe", "name", "labels", "limit_ms", "below", "beyond", "word"),
    [
        # Ten times the limit is late whatever was usual before.
        ("host_path", "crossing", ENDS, 10, None, "!", "eth0 → vnet7"),
        ("local_path", "crossing", ENDS, 10, None, "!", "eth0 → vnet7"),
        ("ovs_upcalls", "scheduled", {"handler": "handler7", "tid": 8}, 50, None, "!", "handler7"),
        ("tx_kick_path", "stages", {**QUEUE, "stage": "total"}, 10, None, "!", "vnet7 q3"),
        ("ovs_upcalls", "latency", {**PORT, "kind": "miss"}, 10, None, "!", "vnet7"),
        ("softirq_health", "late", {"cpu": 5, "softirq": "NET_RX"}, 10, None, "!!", "CPU 5"),
        ("tx_queue_latency", "wait", QUEUE, 5, None, "!", "queue 3"),
        ("tx_queue_latency", "wait", QUEUE, 100, "!", "!!", "queue 3"),
        ("block_path", "times", {**ASKED, "stage": "device"}, 200, None, "!", "sdb: slow device"),
        ("block_path", "times", {**ASKED, "stage": "queue"}, 200, None, "!", "sdb: its queue grows"),
        ("block_path", "times", FLUSHED, 200, None, "!", "sdb: writes its cache out slowly"),
        ("block_path", "times", PASSED_ON, 200, None, "!", "dm-3: slow, with all that is below it"),
        (
            "virtio_blk",
            "stages",
            {**TRIP, "stage": "kick"},
            10,
            None,
            "!",
            "web-07: QEMU's thread for its disks",
        ),
        (
            "virtio_blk",
            "stages",
            {**TRIP, "stage": "B4-B5"},
            10,
            None,
            "!",
            "web-07: QEMU's thread for its disks",
        ),
        ("virtio_blk", "stages", {**TRIP, "stage": "B2-B3"}, 50, None, "!", "web-07: QEMU holds its I/O back"),
        ("fs_path", "times", {**CALLS, "call": "read"}, 200, None, "!", "sdb: qemu waits, 1 read in 100"),
        ("fs_path", "times", {**CALLS, "call": "fsync"}, 200, None, "!", "sdb: qemu waits in fsync"),
    ],
)
def test_what_is_late_for_one_in_a_hundred(
    probe: str,
    name: str,
    labels: Mapping[str, frames.Label],
    limit_ms: int,
    below: str | None,
    beyond: str,
    word: str,
) -> None:
    """Values of a histogram are known to an eighth: a tenth beside the limit is clear, and a fifth would be too far."""
    said(of_percentile(probe, name, labels, limit_ms * MS * 85 // 100), below)
    said(of_percentile(probe, name, labels, limit_ms * MS * 115 // 100), beyond, word)


@pytest.mark.proves("block_path", "findings.times.p99.!.{device,queue,whole+flush,whole+read}")
@pytest.mark.proves("fs_path", "findings.times.p99.!.{read,fsync}")
@pytest.mark.proves("host_path", "findings.crossing.p99.!")
@pytest.mark.proves("local_path", "findings.crossing.p99.!")
@pytest.mark.proves("ovs_upcalls", "findings.scheduled.p99.!")
@pytest.mark.proves("softirq_health", "findings.late.p99.!")
@pytest.mark.proves("tx_kick_path", "findings.stages.p99.!.total")
@pytest.mark.parametrize(
    ("probe", "name", "labels", "limit_ms", "word"),
    [
        ("host_path", "crossing", ENDS, 1, "eth0 → vnet7"),
        ("local_path", "crossing", ENDS, 1, "eth0 → vnet7"),
        ("ovs_upcalls", "scheduled", {"handler": "handler7", "tid": 8}, 5, "handler7"),
        ("softirq_health", "late", {"cpu": 5, "softirq": "NET_RX"}, 1, "CPU 5"),
        ("tx_kick_path", "stages", {**QUEUE, "stage": "total"}, 1, "vnet7 q3"),
        ("block_path", "times", {**ASKED, "stage": "device"}, 20, "sdb: slow device"),
        ("block_path", "times", {**ASKED, "stage": "queue"}, 20, "sdb: its queue grows"),
        ("block_path", "times", FLUSHED, 20, "sdb: writes its cache out slowly"),
        ("block_path", "times", PASSED_ON, 20, "dm-3: slow, with all that is below it"),
        ("virtio_blk", "stages", {**TRIP, "stage": "kick"}, 1, "web-07: QEMU's thread for its disks"),
        ("virtio_blk", "stages", {**TRIP, "stage": "B2-B3"}, 5, "web-07: QEMU holds its I/O back"),
        ("fs_path", "times", {**CALLS, "call": "write"}, 20, "sdb: qemu waits, 1 write in 100"),
        ("fs_path", "times", {**CALLS, "call": "fsync"}, 20, "sdb: qemu waits in fsync"),
    ],
)
def test_what_is_far_later_than_usual_is_late_from_a_lower_limit(
    probe: str, name: str, labels: Mapping[str, frames.Label], limit_ms: int, word: str
) -> None:
    """Ten times the usual time and above the limit. What is usual there is not late."""
    beyond, usual = limit_ms * MS * 115 // 100, limit_ms * MS // 50
    said(of_percentile(probe, name, labels, limit_ms * MS * 85 // 100, usual), None)
    said(of_percentile(probe, name, labels, beyond, usual), "!", word)
    said(of_percentile(probe, name, labels, beyond, beyond // 8), None)
    said(of_percentile(probe, name, labels, beyond, beyond // 12), "!", word)
