"""What conntrack and fragments find: one incident for each place, in words that say what was lost and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole_collector.sources.net.protocol_losses import MEANINGS
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PlayedSession

HOST = {"device": "eth0", "netns": "host"}
TABLES = {
    "conntrack": "refused",
    "ip_fragments": "failed",
    "reuseport_skew": "groups",
    "protocol_counters": "conntrack",
}
ENOUGH = 12
"""Intervals after which what lasts is said."""


def said(
    probe: str, labels: dict[str, Any], per_s: int, gauges: Mapping[str, float] | None = None, table: str = ""
) -> list[Incident]:
    """What stands out when so many of a row come each second, or where its gauges are so."""
    session, incidents = PlayedSession(), Incidents({probe: catalogue.shipped(probe)})
    found: list[Incident] = []
    for second in range(ENOUGH):
        scenario = Scenario().hello().status(probe) if not second else Scenario()
        count = {} if gauges else {"count": (per_s, per_s * (second + 1))}
        row = {"labels": labels, "counts": count, "gauges": gauges or {}}
        scenario.table(probe, table or TABLES[probe], [row])
        session.play(scenario.end())
        found = incidents.update(session.state)
    return found


@pytest.mark.proves("conntrack", "findings.refused.count.!.invalid", "findings.refused.count.!!.dropped")
def test_what_conntrack_refuses_is_said_with_its_reason() -> None:
    row = {**HOST, "zone": 0, "protocol": "TCP", "outcome": "invalid", "reason": "bad checksum"}
    assert said("conntrack", row, 9) == []
    (one,) = said("conntrack", row, 200)
    assert (one.level, one.sentence) == ("!", "eth0: bad checksum: 200 TCP packets/s fit no connection")
    row |= {"outcome": "dropped", "reason": "the table is full, or there is no memory"}
    (one,) = said("conntrack", row, 20)
    assert one.level == "!!"
    assert (
        one.sentence == "eth0: conntrack drops them (the table is full, or there is no memory): 20 TCP packets/s lost"
    )


@pytest.mark.proves("ip_fragments", "findings.failed.count.!")
def test_datagrams_that_never_come_whole_are_said_with_what_is_missing() -> None:
    row = {"source": "192.0.2.1", "target": "192.0.2.2", "netns": "host", "protocol": "UDP"}
    row |= {"missing": "first", "how": "timeout", "by": "host"}
    assert said("ip_fragments", row, 0) == []
    (one,) = said("ip_fragments", row, 30)
    assert one.level == "!"
    assert one.sentence == "30 datagrams/s from 192.0.2.1 to 192.0.2.2 never came whole: missing is first"


@pytest.mark.proves("reuseport_skew", "findings.groups.idle.!.UDP", "findings.groups.idle.!.TCP")
def test_idle_sockets_of_a_shared_port_are_said_with_the_flows_behind_it() -> None:
    row = {"address": "0.0.0.0", "netns": "host", "protocol": "UDP", "port": 4789}
    assert said("reuseport_skew", row, 0, {"workers": 4, "busy": 4, "idle": 0, "flows": 70}) == []
    skewed = {"workers": 4, "busy": 2, "idle": 2, "flows": 2}
    (one,) = said("reuseport_skew", row, 0, skewed)
    assert (one.level, one.sentence) == ("!", "UDP port 4789: 4 workers, 2 get everything: 2 outer flows")
    (one,) = said("reuseport_skew", row | {"protocol": "TCP", "port": 80}, 0, skewed)
    assert one.sentence == "TCP port 80: 4 workers, 2 get all connections"


@pytest.mark.proves("reuseport_skew", "findings.groups.moved.!.UDP")
def test_a_socket_that_took_the_place_of_a_closed_one_is_said_as_that() -> None:
    """And not as skew: none of them is idle."""
    row = {"address": "0.0.0.0", "netns": "host", "protocol": "UDP", "port": 4789}
    gauges = {"workers": 4, "busy": 4, "idle": 0, "flows": 70}
    session, incidents = PlayedSession(), Incidents({"reuseport_skew": catalogue.shipped("reuseport_skew")})
    moved = {"labels": row, "counts": {"moved": (1, 1)}, "gauges": gauges}
    session.play(Scenario().hello().status("reuseport_skew").table("reuseport_skew", "groups", [moved]).end())
    (one,) = incidents.update(session.state)
    assert (one.level, one.cause) == ("!", "reuseport-moved")
    assert one.sentence.startswith("UDP port 4789: a socket was closed, and the last of its group took its place")


@pytest.mark.proves("mirror", "findings.numbered.lost.!!")
def test_a_mirror_says_what_was_lost_before_this_host() -> None:
    row = {"source": "192.0.2.1", "target": "192.0.2.2", "tunnel": "ERSPAN", "netns": "host", "vni": 5}
    session, incidents = PlayedSession(), Incidents({"mirror": catalogue.shipped("mirror")})
    counts = {"labels": row, "counts": {"packets": (900, 900), "lost": (40, 40)}, "gauges": {}}
    session.play(Scenario().hello().status("mirror").table("mirror", "numbered", [counts]).end())
    (one,) = incidents.update(session.state)
    assert (one.level, one.cause) == ("!!", "mirror-lost-before")
    assert one.sentence == ("192.0.2.1: ERSPAN 5 has gaps in its numbers: 40 packets/s lost before this host's stack")


@pytest.mark.parametrize(
    ("whole", "missing", "said"),
    [
        (100_000, 2_000, "2.00k bytes/s of TCP inside VXLAN 7 never came: lost before this host's stack (2 % of its"),
        (200_100, 1_001, "1.00k bytes/s of TCP"),
        (1_000_000, 4_990, ""),
        (100_000, 1_000, ""),
    ],
)
@pytest.mark.proves("mirror", "findings.vnis.tcp_missing.!!")
def test_a_mirror_says_what_is_missing_of_tcp_inside(whole: int, missing: int, said: str) -> None:
    """From half a percent on, and above 1 kB/s."""
    labels = {"device": "eth0", "tunnel": "VXLAN", "netns": "host", "vni": 7}
    counts = {"tcp_bytes": (whole, whole), "tcp_missing": (missing, missing)}
    session, incidents = PlayedSession(), Incidents({"mirror": catalogue.shipped("mirror")})
    networks = [{"labels": labels, "counts": counts}]
    session.play(Scenario().hello().status("mirror").table("mirror", "vnis", networks).end())
    found = [(one.cause, one.sentence) for one in incidents.update(session.state)]
    assert [cause for cause, _ in found] == ["mirror-lost-before"] * bool(said)
    assert all(text.startswith(f"eth0: about {said}") and text.endswith(" % of its bytes)") for _, text in found), found


@pytest.mark.proves("mirror", "findings.workers.lost.!!", "findings.malformed.packets.!")
def test_a_mirror_says_which_worker_loses_and_who_sends_wrong_headers() -> None:
    session, incidents = PlayedSession(), Incidents({"mirror": catalogue.shipped("mirror")})
    worker = {
        "inode": 5,
        "process": "probe (7)",
        "address": "0.0.0.0",
        "netns": "host",
        "protocol": "UDP",
        "port": 4789,
    }
    wrong = {"wrong": "cut short", "tunnel": "VXLAN", "source": "192.0.2.1", "netns": "host"}
    found: list[Incident] = []
    for second in range(ENOUGH):
        scenario = Scenario().hello().status("mirror") if not second else Scenario()
        lost = {"labels": worker, "counts": {"lost": (40, 40 * second)}, "gauges": {"buffer_bytes": 212992}}
        scenario.table("mirror", "workers", [lost])
        scenario.table(
            "mirror", "malformed", [{"labels": wrong, "counts": {"packets": (30, 30 * second)}, "gauges": {}}]
        )
        session.play(scenario.end())
        found = incidents.update(session.state)
    assert {(one.level, one.cause, one.sentence) for one in found} == {
        (
            "!!",
            "receive-buffer-full",
            "probe (7) UDP port 4789: a worker of the mirror does not keep up, its buffer of 208 kB is full:"
            " 40 packets/s lost",
        ),
        ("!", "mirror-malformed", "192.0.2.1: sends VXLAN with wrong headers (cut short): 30 packets/s"),
    }


@pytest.mark.proves("protocol_counters", "findings.conntrack.full_pct.!")
def test_a_table_of_conntrack_is_said_before_it_is_full() -> None:
    assert said("protocol_counters", {"netns": "blue"}, 0, {"entries": 800, "limit": 1000, "full_pct": 80}) == []
    (one,) = said("protocol_counters", {"netns": "blue"}, 0, {"entries": 801, "limit": 1000, "full_pct": 80.1})
    assert (one.level, one.sentence) == ("!", "netns blue: conntrack is 80.1 % full: 801 of 1.00k connections")


@pytest.mark.parametrize(
    ("kind", "cause", "says"),
    [
        ("netlink", "netlink-overrun", "does not read its netlink socket (route) in time: 2 messages/s lost"),
        (
            "packet",
            "capture-overrun",
            "does not read its packet socket in time: its process is stopped: 1.80 copies/s of packets missed",
        ),
        (
            "raw",
            "raw-overrun",
            "does not read its raw socket (route) in time: its process is stopped: 1.80 packets/s missed",
        ),
    ],
)
@pytest.mark.proves("protocol_counters", "findings.overruns.drops.!.netlink", "findings.overruns.drops.ok.{packet,raw}")
def test_a_program_that_does_not_read_is_said_with_what_it_misses(kind: str, cause: str, says: str) -> None:
    session, incidents = PlayedSession(), Incidents({"protocol_counters": catalogue.shipped("protocol_counters")})
    labels = {"process": "router/7", "kind": kind, "protocol": "route", "inode": 5, "netns": "host"}
    found: list[Incident] = []
    answer = {"table": "overruns", "labels": labels, "question": "reader", "document": {"does": "stopped", "pid": 7}}
    for second, lost in enumerate((0, *[2] * 9)):
        scenario = Scenario().hello().status("protocol_counters") if not second else Scenario()
        row = {"labels": labels, "counts": {"drops": (lost, 2 * second)}, "gauges": {}}
        session.play(scenario.table("protocol_counters", "overruns", [row]).end())
        found = found or incidents.update(session.state)
        if second == 8 and kind != "netlink":
            assert not found, "who opens such a socket only to send does not read it either"
            session.play(Scenario().frame("answer", "protocol_counters", source="console", **answer))
    (one,) = found
    assert (one.level, one.cause) == ("!", cause)
    assert one.sentence == f"router/7 {says}"


@pytest.mark.proves("protocol_counters", "findings.unread.unread_s.!")
def test_a_program_that_does_not_read_is_said_with_what_waits() -> None:
    row = {"process": "db/7", "port": 9, "peer": "192.0.2.1", "peer_port": 40000, "netns": "host"}
    (one,) = said("protocol_counters", row, 0, {"waiting": 122880, "unread_s": 4}, "unread")
    assert (one.level, one.cause) == ("!", "receiver-does-not-read")
    assert one.sentence == "db/7 does not read at port 9: 120 kB of 192.0.2.1 wait for 4 s"


@pytest.mark.parametrize(
    ("counter", "cause", "level"),
    [
        ("Conntrackdrop", "conntrack-drops", "!!"),
        ("UdpRcvbufErrors", "receive-buffer-full", "!"),
        ("IpInHdrErrors", "protocol-loss", "!"),
        ("UdpSndbufErrors", "udp-send-refused", "!"),
        ("IpOutDiscards", "send-refused", "!"),
        ("TcpExtTCPZeroWindowDrop", "receiver-does-not-read", "!"),
        ("Conntrackearly_drop", "conntrack-filling", "!"),
        ("TcpExtTCPTimeWaitOverflow", "time-wait-full", "!"),
        ("Udp6InCsumErrors", "udp6-checksum", "!"),
    ],
)
@pytest.mark.proves(
    "protocol_counters",
    "findings.counters.count.!!.Conntrackdrop",
    "findings.counters.count.!.TcpExtTCPZeroWindowDrop",
    "findings.counters.count.!.Conntrackearly_drop",
    "findings.counters.count.!.{TcpExtTCPTimeWaitOverflow,Udp6InCsumErrors}",
    "findings.counters.count.!.UdpRcvbufErrors",
    "findings.counters.count.!.UdpSndbufErrors",
    "findings.counters.count.!.loss",
)
def test_a_loss_that_a_protocol_counts_is_said_by_its_meaning(counter: str, cause: str, level: str) -> None:
    kind, meaning = MEANINGS[counter]
    row = {"counter": counter, "class": kind, "netns": "blue", "meaning": meaning}
    assert said("protocol_counters", row, 0, table="counters") == []
    (one,) = said("protocol_counters", row, 40, table="counters")
    assert (one.level, one.cause) == (level, cause)
    assert meaning in one.sentence and "40/s" in one.sentence
    noise = row | {"counter": "Conntrackinvalid", "class": "noise"}
    assert said("protocol_counters", noise, 40, table="counters") == []
