"""Which rows and percentiles stand out by the rules of shipped probes, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from netconsole.base import figure
from netconsole.findings.incidents import Incidents
from netconsole.findings.of_rules import HISTORY
from netconsole.findings.rules import commands
from netconsole.findings.share import Packets, _between, _Span
from netconsole.findings.windows import LONG, PAUSE, SHORT
from netconsole.probes import catalogue
from netconsole.probes.manifest import FindingSpec, Manifest
from netconsole.snapshot.passing import RECEIVED, SENT, passing
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import index
from netconsole.telemetry.series import SAMPLES
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream


def links(
    stream: Stream,
    gauges: dict[str, int],
    counts: dict[str, int],
    qdisc: str | None = None,
    total: int = 1_000_000,
    device: str = "uxva",
) -> None:
    """The row of a link in the namespace blue, where so many have come of each count."""
    shaper = f"{qdisc} of 5 Mbit/s" if qdisc in ("tbf", "htb") else None
    labels: dict[str, frames.Label] = {"device": device, "netns": "blue", "qdisc": qdisc, "shaper": shaper}
    deltas = {name: Count(delta=delta, total=total) for name, delta in counts.items()}
    row = Row(labels=labels, counts=deltas, gauges={**gauges})
    stream.state.apply(frames.Status(**stream.stamp("link_rates"), state="attached", mode="summary"))
    stamp = stream.stamp("link_rates")
    stream.state.apply(frames.Table(**stamp, name="links", interval_ns=SECOND, full=False, rows=[row]))


GONE = {"no_carrier": 1, "carrier_lost": 1}
TO_PEER = {**GONE, "peer_down": 1, "carrier_lost_to_peer": 1}


@pytest.mark.parametrize(
    ("gauges", "counts", "sentence"),
    [
        ({"no_carrier": 1, "peer_down": 1, "carrier_lost": 0, "carrier_lost_to_peer": 0}, {}, None),
        ({"admin_down": 1}, {}, None),
        ({"no_carrier": 1}, {"lost_without_carrier": 1, "tx_drops": 1}, None),
        (GONE, {}, "uxva (netns blue): lost its carrier"),
        (TO_PEER, {}, "uxva (netns blue): no carrier: its peer is down"),
        (
            {"no_carrier": 1},
            {"tx_drops": 500, "lost_without_carrier": 500},
            "uxva (netns blue): no carrier, 500 packets/s sent to it are lost",
        ),
        (
            TO_PEER,
            {"tx_drops": 500, "lost_without_carrier": 500, "lost_to_peer": 500},
            "uxva (netns blue): no carrier: its peer is down, 500 packets/s sent to it are lost",
        ),
        ({"flaps": 2}, {}, "uxva (netns blue): its carrier was lost and came back (×2 in the last minute)"),
    ],
)
@pytest.mark.proves(
    "link_rates", "findings.links.lost_without_carrier.!!", "findings.links.lost_to_peer.!!", "findings.links.flaps.!"
)
def test_a_link_without_a_carrier_is_said_when_it_was_lost_or_is_used(
    stream: Stream, gauges: dict[str, int], counts: dict[str, int], sentence: str | None
) -> None:
    findings = Incidents({"link_rates": catalogue.shipped("link_rates")})
    links(stream, gauges, counts)
    stream.end()
    assert [one.sentence for one in findings.update(stream.state)] == ([] if sentence is None else [sentence])


def test_a_carrier_that_stays_away_is_one_incident_with_or_without_packets(stream: Stream) -> None:
    findings = Incidents({"link_rates": catalogue.shipped("link_rates")})
    lost, peak = 0, 300
    for second in range(60):
        delta = peak * (second < 3) + 2 * (20 <= second < 40)
        lost += delta
        links(
            stream, TO_PEER if second < 50 else {}, {"lost_to_peer": delta, "lost_without_carrier": delta}, total=lost
        )
        stream.end()
        (one,) = findings.update(stream.state)
        if second in (0, 10, 25, 45):
            packets = ", 300 packets/s sent to it are lost" if second == 0 else ""
            assert one.sentence == f"uxva (netns blue): no carrier: its peer is down{packets}"
            assert (one.total, one.ended_ns, one.peak, one.unit) == (lost, None, peak, "packets")
    assert one.ended_ns is not None
    assert (one.total, one.peak) == (940, 300)


@pytest.mark.parametrize(
    ("qdisc", "sentence"),
    [("tbf", "tbf of 5 Mbit/s drops 498 packets/s"), ("fq_codel", "fq_codel drops 498 packets/s")],
)
@pytest.mark.proves("link_rates", "findings.links.qdisc_drops.!", "findings.links.qdisc_drops.!.*")
def test_a_shaper_is_said_with_its_rate(stream: Stream, qdisc: str, sentence: str) -> None:
    findings = Incidents({"link_rates": catalogue.shipped("link_rates")})
    links(stream, {}, {"qdisc_drops": 498}, qdisc)
    stream.end()
    (one,) = findings.update(stream.state)
    assert one.sentence == f"uxva (netns blue): {sentence}"


def test_a_small_loss_is_a_share_of_the_packets_of_the_same_time(stream: Stream) -> None:
    """One percent of a flow that has just begun is one percent."""
    manifests = {name: catalogue.shipped(name) for name in ("kernel_drops", "link_rates")}
    findings = Incidents(manifests)
    labels: dict[str, frames.Label] = {"device": "uxva", "netns": "blue", "reason": "NETFILTER_DROP", "protocol": "UDP"}
    for second in range(20):
        links(stream, {}, {"rx_packets": 1000 * (second >= 10)})
        drop = Row(labels=labels, counts={"count": Count(delta=10, total=100 + 10 * second)})
        stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary"))
        stamp, drops_seen = stream.stamp("kernel_drops"), [drop] if second >= 10 else []
        stream.state.apply(frames.Table(**stamp, name="drops", interval_ns=SECOND, full=False, rows=drops_seen))
        stream.end()
        said = findings.update(stream.state)
        assert [one.cause for one in said] == ([] if second < 12 else ["firewall-drops"])
    assert said[0].share_pct == pytest.approx(1.0)


UDP: dict[str, frames.Label] = {"device": "uxva", "netns": "blue", "protocol": "UDP", "class": "suspicious"}


@pytest.mark.parametrize(
    ("labels", "received", "sent", "lost", "share"),
    [
        ({"reason": "NO_SOCKET"}, 900, 9000, 900, 100),
        ({"reason": "NO_SOCKET"}, 900, 9000, 450, 50),
        ({"reason": "NO_SOCKET"}, 900, 9000, 9, 1),
        ({"reason": "NO_SOCKET"}, 3, 900, 3, 100),
        ({"reason": "NO_SOCKET", "device": "lo"}, 1800, 1800, 900, 100),  # half of them are the answers
        ({"reason": "NO_SOCKET", "device": "lo"}, 1500, 1500, 500, 50),
        ({"reason": "NETFILTER_DROP", "device": "lo", "hook": "input"}, 900, 900, 900, 100),
        ({"reason": "NETFILTER_DROP", "hook": "input"}, 900, 9000, 9, 1),
        ({"reason": "NETFILTER_DROP", "hook": "postrouting"}, 9000, 450, 450, 50),
        ({"reason": "IP_RPFILTER", "location": "ip_rcv_finish_core"}, 900, 9000, 900, 100),
        ({"reason": "QDISC_DROP", "location": "__dev_queue_xmit"}, 9000, 0, 900, 100),
        ({"reason": "QDISC_DROP", "location": "__tcf_kfree_skb_list"}, 9000, 990, 10, 1),
        ({"reason": "FULL_RING", "location": "tun_net_xmit"}, 9000, 0, 900, 100),
        ({"reason": "NEIGH_FAILED", "location": "neigh_invalidate"}, 9000, 450, 450, 50),
        ({"reason": "CPU_BACKLOG", "location": "enqueue_to_backlog"}, 450, 9000, 450, 50),
        ({"class": "unknown", "location": "veth_xdp_rcv_skb"}, 900, 9000, 900, 100),
    ],
)
@pytest.mark.parametrize("gone_s", [0, 12])
def test_a_share_is_of_all_that_came_to_the_place(
    stream: Stream, labels: dict[str, frames.Label], received: int, sent: int, lost: int, share: float, gone_s: int
) -> None:
    """In its own direction, and when it is over as it was then, though other packets go on."""
    manifests = {name: catalogue.shipped(name) for name in ("kernel_drops", "link_rates")}
    findings, place = Incidents(manifests), {**UDP, **labels}
    device, total = str(place["device"]), 7
    for second in range(40 + gone_s):
        part = 1.0 if 15 < second < 35 else 0.0 if not 15 <= second <= 35 else 0.4  # of the first and the last interval
        others = {"rx_packets": 50, "tx_packets": 70} if part == 0.0 else {}
        counts = {"rx_packets": round(received * part), "tx_packets": round(sent * part)} if part else others
        links(stream, {}, counts, device=device)
        total += round(lost * part)
        row = Row(labels=place, counts={"count": Count(delta=round(lost * part), total=total)})
        stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary"))
        stamp, rows = stream.stamp("kernel_drops"), [row] if part and round(lost * part) else []
        stream.state.apply(frames.Table(**stamp, name="drops", interval_ns=SECOND, full=False, rows=rows))
        stream.end()
        said = findings.update(stream.state)
        if 25 < second < 35:
            assert said[0].share_pct == pytest.approx(share, rel=0.001)
    assert said[0].share_pct == pytest.approx(share, rel=0.01)
    assert f"({figure.share(said[0].share_pct, 'its packets')})" in said[0].sentence


@pytest.mark.parametrize("share", [50, 1, 100])
def test_a_share_is_of_the_very_same_time_however_uneven_the_intervals_are(share: int) -> None:
    """The two sources are read at other moments, late now and then, while the traffic comes in waves."""
    manifests = {name: catalogue.shipped(name) for name in ("kernel_drops", "link_rates")}
    findings, state = Incidents(manifests), State()
    drops, devices = Stream(state), Stream(state, "console")
    drops.hello()
    labels: dict[str, frames.Label] = {**UDP, "reason": "NETFILTER_DROP", "hook": "input"}

    def arrived(at_s: float) -> int:
        """So many packets until then: 2 000 and 6 000 a second by turns, each for three seconds."""
        rounds, rest = divmod(at_s, 6.0)
        return round(24_000 * rounds + 2000 * min(rest, 3.0) + 6000 * max(0.0, rest - 3.0))

    def read(stream: Stream, probe: str, name: str, counts: dict[str, Count], place: dict[str, frames.Label]) -> None:
        row = Row(labels=place, counts=counts)
        state.apply(frames.Status(**stream.stamp(probe), state="attached", mode="summary"))
        state.apply(frames.Table(**stream.stamp(probe), name=name, interval_ns=length_ns, full=False, rows=[row]))
        state.apply(frames.Cost(**stream.stamp(None), interval_ns=length_ns))

    read_s = {"collector": 0.0, "console": 0.0}
    late_s = {"collector": (1.0, 1.0, 1.6, 0.4), "console": (0.9, 1.5, 0.6, 1.0)}
    for second in range(24):
        for stream in (drops, devices):
            before_s = read_s[stream.source]
            now_s = read_s[stream.source] = before_s + late_s[stream.source][second % 4]
            length_ns, stream.mono_ns = round((now_s - before_s) * SECOND), 100 * SECOND + round(now_s * SECOND)
            before, total = arrived(before_s), arrived(now_s)
            if stream is drops:
                lost_before, lost = before * share // 100, total * share // 100
                count = Count(delta=lost - lost_before, total=lost)
                read(stream, "kernel_drops", "drops", {"count": count}, labels)
            else:
                counts = {"rx_packets": Count(delta=total - before, total=total)}
                read(stream, "link_rates", "links", counts, {"device": "uxva", "netns": "blue"})
        said = findings.update(state)
        if second >= 10:
            assert said[0].share_pct == pytest.approx(share, rel=0.02), second


@pytest.mark.parametrize(
    ("every_s", "early_s", "share"),
    [(1.0, 0.0, pytest.approx(100, rel=0.01)), (1.0, 0.4, 100), (3.3, 0.0, None), (2.6, 0.0, None)],
    ids=["each second", "early", "3", "2"],
)
def test_what_share_a_burst_is_whose_device_was_read_at_other_times(
    every_s: float, early_s: float, share: float | None
) -> None:
    """All of four seconds is lost. What a device received before and in them is one figure where it is read rarely.

    On a busy host it is now and then read long before its table ends.
    """
    findings = Incidents({name: catalogue.shipped(name) for name in ("kernel_drops", "link_rates")})
    state = State()
    drops, devices = Stream(state), Stream(state, "console")
    drops.hello()
    labels: dict[str, frames.Label] = {**UDP, "reason": "NETFILTER_DROP", "hook": "input"}
    totals = {drops: 0, devices: 0}

    def read(
        stream: Stream, name: tuple[str, str], column: str, place: Mapping[str, frames.Label], at: float, early_s: float
    ) -> None:
        before, total = totals[stream], round(300 * min(4.0, max(0.0, at - early_s - 30.4)))
        totals[stream] = total
        probe, table = name
        length_ns = round((1.0 if stream is drops else every_s) * SECOND)
        stream.mono_ns = 100 * SECOND + round(at * SECOND)
        row = Row(labels=dict(place), counts={column: Count(delta=total - before, total=total)})
        state.apply(frames.Status(**stream.stamp(probe), state="attached", mode="summary"))
        state.apply(frames.Table(**stream.stamp(probe), name=table, interval_ns=length_ns, full=False, rows=[row]))
        state.apply(frames.Cost(**stream.stamp(None), interval_ns=length_ns))

    readings = 0
    for second in range(50):
        read(drops, ("kernel_drops", "drops"), "count", labels, second, 0.0)
        while readings * every_s <= second:
            where: dict[str, frames.Label] = {"device": "uxva", "netns": "blue"}
            early = early_s if readings % 4 == 0 else 0.0
            read(devices, ("link_rates", "links"), "rx_packets", where, readings * every_s, early)
            readings += 1
        findings.update(state)
    (one,) = findings.log
    assert (one.total, one.share_pct) == (1200, share), one.sentence


@pytest.mark.parametrize(("known_s", "came"), [(0.2, None), (1.9, None), (2.0, 1200.0), (4.0, 1200.0)])
def test_what_a_device_received_is_not_taken_from_a_small_part_of_the_time(known_s: float, came: float | None) -> None:
    """Its next reading is late: in one of a fifth of a second there may have been much more, or nothing."""
    spans = [_Span(0, round((6.0 + known_s) * SECOND), 300.0)]
    assert _between(spans, 6 * SECOND, 10 * SECOND) == (came if came is None else pytest.approx(came))


@pytest.mark.parametrize(
    ("sent_per_s", "again_per_s", "since"), [(500_000, 200, None), (20_000, 200, 1), (2_000, 15, 6), (0, 15, 6)]
)
@pytest.mark.proves("socket_drops", "findings.sockets.retransmits.!")
def test_segments_sent_again_are_a_share_of_those_of_their_connection(
    stream: Stream, sent_per_s: int, again_per_s: int, since: int | None
) -> None:
    """A connection that fills its path loses a few on purpose."""
    findings = Incidents({"socket_drops": catalogue.shipped("socket_drops")})
    labels: dict[str, frames.Label] = {"process": "backup (7)", "peer": "192.0.2.2", "peer_port": 5001}
    first = None
    for second in range(20):
        again = again_per_s * (second + 1)
        gauges: dict[str, int | float | None] = {"segments_sent": (sent_per_s + again_per_s) * (second + 1)}
        row = Row(labels=labels, counts={"retransmits": Count(delta=again_per_s, total=again)}, gauges=gauges)
        stream.state.apply(frames.Status(**stream.stamp("socket_drops"), state="attached", mode="summary"))
        stamp = stream.stamp("socket_drops")
        stream.state.apply(frames.Table(**stamp, name="sockets", interval_ns=SECOND, full=False, rows=[row]))
        stream.end()
        if findings.update(stream.state) and first is None:
            first = second
    assert first == since


@pytest.mark.proves("block_path", "findings.devices.full.!")
@pytest.mark.parametrize(("full_per_s", "is_said"), [(0, False), (8, False), (499, False), (501, True), (1000, True)])
def test_a_queue_is_full_where_every_other_request_takes_its_last_place(
    stream: Stream, full_per_s: int, is_said: bool
) -> None:
    """Of 1 000 a second. A burst that fills it now and then is usual."""
    findings = Incidents({"block_path": catalogue.shipped("block_path")})
    for second in range(12):
        counts = {
            name: Count(delta=one, total=one * (second + 1)) for name, one in (("full", full_per_s), ("started", 1000))
        }
        gauges: dict[str, int | float | None] = {"in_flight": 64, "most": 64}
        row = Row(labels={"device": "sdb"}, counts=counts, gauges=gauges)
        stream.state.apply(frames.Status(**stream.stamp("block_path"), state="attached", mode="summary"))
        stamp = stream.stamp("block_path")
        stream.state.apply(frames.Table(**stamp, name="devices", interval_ns=SECOND, full=False, rows=[row]))
        stream.end()
        found = findings.update(stream.state)
    assert [one.cause for one in found] == (["disk-full"] if is_said else [])
    assert all(one.sentence.startswith("sdb: its queue is full, ") for one in found)


def test_what_is_new_stands_out_whatever_its_share() -> None:
    """Five a second of 10 000 are no share worth a word, but a firewall that did not drop any before drops them now."""
    manifests = {name: catalogue.shipped(name) for name in ("kernel_drops", "link_rates")}
    labels: dict[str, frames.Label] = {"device": "uxva", "netns": "blue", "reason": "NETFILTER_DROP", "protocol": "UDP"}

    def listed(begin: int, intervals: int) -> list[str]:
        """The causes that are said, of drops that begin with a second."""
        stream, findings = Stream(State()), Incidents(manifests)
        stream.hello()
        for second in range(intervals):
            links(stream, {}, {"rx_packets": 10_000})
            drop = Row(labels=labels, counts={"count": Count(delta=5, total=5 * (second + 1))})
            stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary"))
            stamp, rows = stream.stamp("kernel_drops"), [drop] if second >= begin else []
            stream.state.apply(frames.Table(**stamp, name="drops", interval_ns=SECOND, full=False, rows=rows))
            stream.end()
            said = findings.update(stream.state)
        return [one.cause for one in said]

    assert listed(begin=0, intervals=80) == []
    assert listed(begin=80, intervals=83) == ["firewall-drops"]
    assert listed(begin=30, intervals=80) == []  # it was not looked at for long enough


@pytest.mark.proves("irq_path", "findings.stages.p99.!.total")
def test_a_percentile_is_late_by_its_own_past() -> None:
    """What takes 3 ms from the start is usual there. What took 0.1 ms before is late for as long as it lasts."""
    manifests = {"irq_path": catalogue.shipped("irq_path")}
    labels: dict[str, frames.Label] = {"device": "vnet0", "netns": "host", "vm": "web", "queue": 0, "stage": "total"}

    def listed(*values_ns: int) -> list[int]:
        """How many incidents there are after each interval, of 200 samples of this value."""
        stream, findings, slots = Stream(State()), Incidents(manifests), dict[int, int]()
        stream.hello()
        counts = []
        for value_ns in values_ns:
            slots[index(value_ns)] = slots.get(index(value_ns), 0) + 200
            count = sum(slots.values())
            delta = Buckets(count=200, sum=200 * value_ns, min=None, max=None, buckets=[(index(value_ns), 200)])
            total = Buckets(count=count, sum=count, min=None, max=None, buckets=list(slots.items()))
            stream.state.apply(frames.Status(**stream.stamp("irq_path"), state="attached", mode="summary"))
            stream.state.apply(
                frames.Histogram(
                    **stream.stamp("irq_path"), name="stages", interval_ns=SECOND, unit="ns", labels=labels,
                    delta=delta, total=total,
                )
            )  # fmt: skip
            stream.end()
            counts.append(sum(one.ended_ns is None for one in findings.update(stream.state)))
        return counts

    usual, late = 100_000, 3_000_000
    assert listed(*[late] * 20) == [0] * 20
    assert listed(*[usual] * 5, *[late] * 20) == [0] * 6 + [1] * 19
    assert listed(*[700_000_000] * 3) == [0, 1, 1]


@pytest.mark.parametrize(
    ("device", "hook", "sentence"),
    [
        ("eth0", "input", "eth0: conntrack, NAT or iptables-legacy drops them (input hook): 300 TCP packets/s refused"),
        (
            "",
            "output",
            "this host: conntrack, NAT or iptables-legacy drops them (output hook): 300 TCP packets/s refused",
        ),
        ("eth0", "none", "eth0: the firewall drops them: 300 TCP packets/s refused"),
    ],
)
def test_a_firewalls_drops_are_said_with_their_hook(stream: Stream, device: str, hook: str, sentence: str) -> None:
    findings = Incidents({"kernel_drops": catalogue.shipped("kernel_drops")})
    labels: dict[str, frames.Label] = {"device": device, "netns": "host", "reason": "NETFILTER_DROP", "protocol": "TCP"}
    row = Row(
        labels={**labels, "hook": hook, "location": "nf_hook_slow"}, counts={"count": Count(delta=300, total=300)}
    )
    stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary"))
    stamp = stream.stamp("kernel_drops")
    stream.state.apply(frames.Table(**stamp, name="drops", interval_ns=SECOND, full=False, rows=[row]))
    stream.end()
    assert [one.sentence for one in findings.update(stream.state)] == [sentence]


def test_replies_to_a_ping_of_a_raw_socket_are_no_incident(stream: Stream) -> None:
    """The socket got its copy. No ping socket waits for them, so the kernel reports them as dropped."""
    findings = Incidents({"kernel_drops": catalogue.shipped("kernel_drops")})
    said = {}
    for protocol in ("ICMP", "ICMPv6", "UDP"):
        labels: dict[str, frames.Label] = {"device": "eth0", "netns": "host", "reason": "NO_SOCKET", "class": "benign"}
        row = Row(labels={**labels, "protocol": protocol}, counts={"count": Count(delta=300, total=300)})
        stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary"))
        stamp = stream.stamp("kernel_drops")
        stream.state.apply(frames.Table(**stamp, name="drops", interval_ns=SECOND, full=False, rows=[row]))
        stream.end()
        said[protocol] = len(findings.update(stream.state))
    assert said == {"ICMP": 0, "ICMPv6": 0, "UDP": 1}


PLACE: dict[str, frames.Label] = {"device": "uxva", "netns": "blue"}


def crossing(stream: Stream, *of_intervals: tuple[int, int]) -> Packets:
    """So many packets that came and went in each interval."""
    for received, sent in of_intervals:
        links(stream, {}, {"rx_packets": received, "tx_packets": sent})
        stream.end()
    return Packets(stream.state)


def test_packets_of_a_device_are_those_of_one_direction(stream: Stream) -> None:
    packets = crossing(stream, *[(400, 100)] * 4, *[(100, 250)] * 4)
    assert (packets.per_s(PLACE, RECEIVED, 1), packets.per_s(PLACE, SENT, 1)) == (100, 250)
    assert (packets.per_s(PLACE, RECEIVED, 8), packets.per_s(PLACE, SENT, 8)) == (250, 175)
    assert packets.per_s(PLACE, RECEIVED, 2, before=4) == 400
    assert packets.per_s({**PLACE, "device": "eth0"}, RECEIVED, 8) is None
    assert packets.per_s({**PLACE, "netns": "host"}, RECEIVED, 1) is None


def test_intervals_without_packets_lower_the_mean(stream: Stream) -> None:
    assert crossing(stream, (400, 10), *[(0, 0)] * 7).per_s(PLACE, RECEIVED, 8) == 50


@pytest.mark.parametrize(
    ("cause", "counter"), [("qdisc-drops", SENT), ("tap-ring-full", SENT), ("nobody-listens", RECEIVED)]
)
def test_the_direction_is_that_of_the_cause_where_a_row_tells_none(cause: str, counter: str) -> None:
    assert passing(cause, "drops", {"device": "eth0", "queue": 0}).counter == counter


def test_intervals_before_a_device_was_read_are_not_known(stream: Stream) -> None:
    for _ in range(10):
        stream.end()
    assert crossing(stream, *[(400, 10)] * 5).per_s(PLACE, RECEIVED, 15) == 400


def test_packets_are_new_when_there_are_ten_times_as_many_as_in_the_minute_before(stream: Stream) -> None:
    for before, is_new in ((99, True), (101, False)):
        one = Stream(State())
        one.hello()
        packets = crossing(one, *[(before, 0)] * (LONG - SHORT), *[(1000, 0)] * SHORT)
        assert packets.are_new(PLACE, RECEIVED) == is_new
    assert Packets(State()).are_new(PLACE, RECEIVED)


def test_the_history_of_an_incident_is_the_last_minute(stream: Stream) -> None:
    findings = Incidents({"link_rates": catalogue.shipped("link_rates")})
    for number in range(70):
        links(stream, {}, {"qdisc_drops": 400 + number})
        stream.end()
        (one,) = findings.update(stream.state)
    assert one.history == tuple(float(400 + number) for number in range(10, 70)) and HISTORY == 60


def case_of(manifest: Manifest, cause: str) -> FindingSpec:
    """What is said of this cause."""
    return next(case for rule in manifest.findings for case in rule.cases.values() if case.cause == cause)


def test_commands_are_filled_in_and_quoted() -> None:
    manifest = catalogue.shipped("kernel_drops")
    rule = case_of(manifest, "qdisc-drops")
    assert commands(rule, {"device": "vnet7"}) == ("tc -s qdisc show dev vnet7",)
    assert commands(rule, {"device": "a; rm -rf /\x1b"}) == ("tc -s qdisc show dev 'a; rm -rf /\\x1b'",)
    assert commands(rule, {"device": ""}) == ()


def test_commands_for_another_namespace_are_run_inside_it() -> None:
    manifest = catalogue.shipped("kernel_drops")
    rule = case_of(manifest, "qdisc-drops")
    asks = "tc -s qdisc show dev eth0"
    assert commands(rule, {"device": "eth0", "netns": "host"}) == (asks,)
    assert commands(rule, {"device": "eth0", "netns": "web 1"}) == (f"ip netns exec 'web 1' {asks}",)
    inside = 'nsenter -n -t "$(lsns -rno PID 4026532177 | head -n 1)"'
    assert commands(rule, {"device": "eth0", "netns": "4026532177"}) == (f"{inside} {asks}",)
    assert commands(rule, {"device": "eth0", "netns": "42"}) == (f"ip netns exec 42 {asks}",), "a name of digits"
    first, second = commands(case_of(manifest, "neighbour-table-full"), {"device": "eth0", "netns": "blue"})
    assert first == "sysctl net.ipv4.neigh.default.gc_thresh3", "there is one for all"
    assert second == "ip netns exec blue ip neighbour show nud all"


def rows_of(stream: Stream, probe: str, table: str, labels: dict[str, frames.Label], value: str, delta: int) -> None:
    """A row of a table that has counted so many in this interval."""
    row = Row(labels=labels, counts={value: Count(delta=delta, total=1_000_000)})
    stream.state.apply(frames.Status(**stream.stamp(probe), state="attached", mode="summary"))
    stamp, rows = stream.stamp(probe), [row] if delta else []
    stream.state.apply(frames.Table(**stamp, name=table, interval_ns=SECOND, full=False, rows=rows))


@pytest.mark.parametrize(("dropped", "causes"), [(2, []), (40, ["device-drops"])])
@pytest.mark.proves("kernel_drops", "findings.drops.count.ok.harmless")
def test_a_counter_of_what_nobody_speaks_here_is_no_fault(stream: Stream, dropped: int, causes: list[str]) -> None:
    """LLDP is in the device's counter of drops. Twenty times as much is something else."""
    findings = Incidents({name: catalogue.shipped(name) for name in ("kernel_drops", "link_rates")})
    labels: dict[str, frames.Label] = {
        "device": "uxva",
        "netns": "blue",
        "reason": "UNHANDLED_PROTO",
        "class": "benign",
    }
    for _ in range(30):
        links(stream, {}, {"rx_packets": 50, "rx_drops": dropped})
        rows_of(stream, "kernel_drops", "drops", labels, "count", 2)
        stream.end()
        said = findings.update(stream.state)
    assert [one.cause for one in said] == causes
    assert [one.cause for one in findings.log] == causes


@pytest.mark.parametrize(
    ("discarded", "seen", "causes"), [(3, 3, []), (5, 0, []), (40, 3, ["ipv6-discards"]), (40, 0, ["ipv6-discards"])]
)
@pytest.mark.proves("kernel_drops", "findings.drops.count.ok.harmless")
@pytest.mark.proves("protocol_counters", "findings.counters.count.!.Ip6InDiscards")
def test_what_neighbours_announce_where_ipv6_is_off_is_no_fault(
    stream: Stream, discarded: int, seen: int, causes: list[str]
) -> None:
    """``seen``: by kernel_drops; 0 where it does not run."""
    findings = Incidents({name: catalogue.shipped(name) for name in ("kernel_drops", "protocol_counters")})
    drop: dict[str, frames.Label] = {"device": "uxva", "netns": "blue", "reason": "IPV6DISABLED", "class": "benign"}
    counter: dict[str, frames.Label] = {
        "netns": "blue",
        "counter": "Ip6InDiscards",
        "class": "noise",
        "meaning": "no use",
    }
    for _ in range(30):
        if seen:
            rows_of(stream, "kernel_drops", "drops", drop, "count", seen)
        rows_of(stream, "protocol_counters", "counters", counter, "count", discarded)
        stream.end()
        said = findings.update(stream.state)
    assert [one.cause for one in said] == causes


@pytest.mark.parametrize(
    ("counted", "dropped", "causes"), [(5, 0, []), (40, 0, ["protocol-loss"]), (40, 40, ["forwarding-off"])]
)
@pytest.mark.proves("protocol_counters", "findings.counters.count.!.IpInAddrErrors")
def test_broadcasts_of_other_subnets_are_no_fault_without_kernel_drops(
    stream: Stream, counted: int, dropped: int, causes: list[str]
) -> None:
    findings = Incidents({name: catalogue.shipped(name) for name in ("kernel_drops", "protocol_counters")})
    drop: dict[str, frames.Label] = {"device": "uxva", "netns": "blue", "reason": "IP_INADDRERRORS", "class": "unknown"}
    drop |= {"location": "ip_error", "hook": "none", "protocol": "UDP", "ethertype": "IPv4"}
    counter: dict[str, frames.Label] = {"netns": "blue", "counter": "IpInAddrErrors", "class": "noise", "meaning": "x"}
    for _ in range(30):
        if dropped:
            rows_of(stream, "kernel_drops", "drops", drop, "count", dropped)
        rows_of(stream, "protocol_counters", "counters", counter, "count", counted)
        stream.end()
        said = findings.update(stream.state)
    assert [one.cause for one in said] == causes


@pytest.mark.parametrize(
    ("reason", "location"),
    [("QUEUE_PURGE", "x"), ("NOT_SPECIFIED", "sk_stream_kill_queues"), ("NOT_SPECIFIED", "skb_queue_purge")],
)
@pytest.mark.proves("kernel_drops", "findings.drops.count.ok.harmless")
def test_closing_1400_connections_a_second_is_no_flood(stream: Stream, reason: str, location: str) -> None:
    findings = Incidents({"kernel_drops": catalogue.shipped("kernel_drops")})
    closed: dict[str, frames.Label] = {"reason": reason, "location": location, "class": "benign", "device": "eth0"}
    for _ in range(12):
        rows_of(stream, "kernel_drops", "drops", closed, "count", 1400)
        stream.end()
        assert findings.update(stream.state) == []


@pytest.mark.parametrize(
    ("protocol", "late", "causes"),
    [("TCP", 30, []), ("TCP", 900, ["nobody-listens"]), ("UDP", 30, ["nobody-listens"])],
)
@pytest.mark.proves("protocol_counters", "findings.counters.count.ok.TcpEstabResets")
def test_what_comes_for_a_connection_that_was_reset_is_no_closed_port(
    stream: Stream, protocol: str, late: int, causes: list[str]
) -> None:
    findings = Incidents({name: catalogue.shipped(name) for name in ("kernel_drops", "protocol_counters")})
    drop: dict[str, frames.Label] = {"device": "uxva", "netns": "blue", "reason": "NO_SOCKET", "protocol": protocol}
    counter: dict[str, frames.Label] = {"netns": "blue", "counter": "TcpEstabResets", "class": "noise", "meaning": "?"}
    for _ in range(30):
        rows_of(stream, "kernel_drops", "drops", drop, "count", late)
        rows_of(stream, "protocol_counters", "counters", counter, "count", 300)
        stream.end()
        said = findings.update(stream.state)
    assert [one.cause for one in said] == causes


@pytest.mark.parametrize("seconds", [300, 700])
def test_what_is_over_keeps_all_that_it_was(stream: Stream, seconds: int) -> None:
    """Ten minutes at most, up to its end: the history of its row goes on, and may be given up for another one's."""
    findings = Incidents({"link_rates": catalogue.shipped("link_rates")})
    for number in range(20 + seconds + 40):
        moving = 20 <= number < 20 + seconds
        links(stream, {}, {"qdisc_drops": 400 + number} if moving else {"qdisc_drops": 0})
        stream.end()
        found = findings.update(stream.state)
    (one,) = found
    assert one.ended_ns is not None
    kept = min(seconds, SAMPLES - PAUSE)  # of the last ten minutes when it was seen to be over
    assert one.past == [float(400 + number) for number in range(20, 20 + seconds)][-kept:]
    assert len(one.kept) == 4 * kept, "bytes, of each of a thousand incidents"
