"""The ledger of a mirror names the stage, the worker and the share that is lost, and never says more than it knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from netconsole.base import figure
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import shipped
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import mirror
from netconsole.tui.scene.scene import Scene
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession

NIC = "nic_counters"
MANIFESTS = {name: shipped(name) for name in ("mirror", NIC, "softnet")}
QUEUE = {"device": "eth0", "netns": "host", "queue": 0, "cpu": 1}
WORKER = {"process": "probe (7)", "address": "0.0.0.0", "netns": "host", "protocol": "UDP", "port": 4789}
NOTHING = dict.fromkeys(("lost_backlog", "lost_stack", "lost_socket"), (0, 0))
SENDERS = (("192.0.2.1", 3), ("192.0.2.2", 4))
COUNTERS = ("arrived", "lost_backlog", "lost_stack", "lost_socket", "queued", "received")


def row(labels: dict[str, Any], **counts: int) -> dict[str, Any]:
    return {"labels": labels, "counts": {name: (count, count) for name, count in counts.items()}}


def interval(
    has_nic: bool = True, ledger: dict[str, int] | None = None, has_softnet: bool = True, **counts: int
) -> Scenario:
    made = Scenario().hello().status("mirror")
    if has_nic:
        made.status(NIC)
        lost = {"counter": "rx_missed_errors", "class": "loss", "meaning": "no room in the ring"}
        made.table(
            NIC, "losses", [row({"device": "eth1", **lost}, count=900), row({"device": "eth0", **lost}, count=30)]
        )
    if has_softnet:
        cpus = [row({"cpu": cpu}, dropped=lost) for cpu, lost in ((1, 2), (3, 70))]
        made.status("softnet").table("softnet", "cpus", cpus)
    made.counters("mirror", **{name: (counts.get(name, 0), counts.get(name, 0)) for name in COUNTERS})
    queues = {0: 4 * counts.get("arrived", 0) // 5, 1: counts.get("arrived", 0) // 5}
    made.table("mirror", "queues", [row({**QUEUE, "queue": number}, packets=many) for number, many in queues.items()])
    senders = [{**row({"source": source}, packets=9), "gauges": {"tuples": tuples}} for source, tuples in SENDERS]
    made.table("mirror", "senders", senders)
    workers = [row({"inode": 5, **WORKER}, queued=90, lost=0), row({"inode": 6, **WORKER}, queued=5, lost=41)]
    made.table("mirror", "workers", workers if counts.get("lost_socket") else workers[:1])
    losses = {"NETFILTER_DROP": counts.get("lost_stack", 0), "CPU_BACKLOG": counts.get("lost_backlog", 0)}
    made.table(
        "mirror",
        "losses",
        [
            row({"location": "f", "device": "eth0", "netns": "host", "reason": why}, packets=n)
            for why, n in losses.items()
        ],
    )
    if ledger:
        lacks = {name: {"delta": count, "total": count} for name, count in ledger.items()}
        made.frame("cost", "mirror", interval_ns=10**9, ledger=lacks)
    return made.end()


def played(
    has_nic: bool = True, ledger: dict[str, int] | None = None, has_softnet: bool = True, **counts: int
) -> Scene:
    session = PlayedSession(interval(has_nic, ledger, has_softnet, **counts))
    return Scene(session.state, MANIFESTS, PROFILE, Connection("live"))


def shown(scene: Scene) -> dict[str, tuple[str, ...]]:
    return {
        one.cells["stage"].text: tuple(one.cells[name].text for name in ("passed", "lost", "total", "where"))
        for one in mirror.rows(scene)
    }


def test_what_is_lost_is_said_by_stage_with_who_loses_most() -> None:
    scene = played(arrived=950, lost_backlog=50, lost_stack=9, lost_socket=41, queued=900, received=899)
    assert shown(scene) == {
        "NIC, driver": ("", "30", "30", "eth0: no room in the ring (of all its packets)"),
        "backlog": ("", "50", "50", "CPU 3: its backlog is full"),
        "arrived": ("950", "–", "", "80 % by queue 0 of eth0, at CPU 1"),
        "firewall, IP, UDP": ("", "9", "9", "eth0: the firewall drops them"),
        "socket": ("", "41", "41", "probe (7) port 4789, socket 6: its buffer is full"),
        "queued": ("900", "–", "", "2 workers, fed by 7 outer tuples"),
        "received": ("899", "–", "", ""),
    }
    assert mirror.title(scene) == (
        "Mirror: from NIC to worker · loses 10 % on this host, most at its backlog · CPU 3: its backlog is full"
        " · what is lost before the NIC is not seen"
    )


def test_where_few_outer_tuples_feed_the_workers_that_lose_it_is_said() -> None:
    assert "socket 6: its buffer is full · 7 outer tuples feed 2 workers" in mirror.title(
        played(arrived=950, lost_socket=41)
    )
    assert "feed" not in mirror.title(played(arrived=950, lost_stack=41))


def test_no_more_is_lost_than_came() -> None:
    """Though what was lost is counted from a moment earlier on."""
    assert "loses 100 % on this host" in mirror.title(played(arrived=950, lost_stack=990))


def test_where_an_incident_knows_the_cause_the_ledger_says_it() -> None:
    scene = played(arrived=950, lost_backlog=50, lost_socket=41)
    found = shown(replace(scene, findings=Incidents(MANIFESTS).update(scene.state), made={}))
    assert found["socket"][3].startswith("probe (7) UDP port 4789: a worker of the mirror does not keep up")
    assert found["backlog"][3].startswith("CPU 3: its backlog is full: 70 packets/s lost")
    assert found["NIC, driver"][3] == "eth0: no room in the ring: 30/s (of all its packets)"


def test_without_softnet_the_cpu_of_a_full_backlog_is_not_known() -> None:
    scene = played(has_softnet=False, arrived=950, lost_backlog=50)
    assert shown(scene)["backlog"][3] == "not known of which CPU: softnet does not run"


def test_a_mirror_that_loses_nothing_here_is_whole_on_this_host_and_no_more() -> None:
    scene = played(has_nic=False, arrived=950, queued=950)
    assert mirror.title(scene) == (
        "Mirror: from NIC to worker · whole on this host: nothing of 950 packets/s is lost"
        " · what is lost before the NIC is not seen"
    )
    assert shown(scene)["NIC, driver"] == ("", "–", "", "not watched: nic_counters does not run")
    assert "nothing comes" in mirror.title(played())


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (2, "whole on this host: at least 99.998 % of 100k packets/s, the rest is lost at its socket · "),
        (3, "loses < 0.01 % on this host, most at its socket"),
    ],
)
def test_a_mirror_that_loses_next_to_nothing_is_whole(lost: int, said: str) -> None:
    assert said in mirror.title(played(arrived=100_000, lost_socket=lost))


def test_each_stage_leads_to_the_page_of_who_loses() -> None:
    scene = played(arrived=950, lost_stack=9, lost_socket=41)
    found = {one.cells["stage"].text: one.key for one in mirror.rows(scene)}
    assert [found[name].name for name in ("NIC, driver", "socket", "firewall, IP, UDP")] == [  # type: ignore[attr-defined]
        "losses",
        "workers",
        "losses",
    ]
    assert (found["arrived"].name, found["queued"].kind) == ("queues", "probe")  # type: ignore[attr-defined]


def test_what_may_be_too_low_is_marked() -> None:
    scene = played(ledger={"missed": 3}, arrived=950, lost_socket=41)
    assert shown(scene)["socket"][1:3] == (figure.number(41, True), figure.count(41, True))
    assert shown(scene)["arrived"][0] == figure.number(950, True)


def test_gaps_in_numbers_stand_before_the_nic() -> None:
    gaps = row({"source": "192.0.2.9", "target": "192.0.2.1", "tunnel": "ERSPAN", "netns": "host", "vni": 5}, lost=7)
    made = Scenario().hello().status("mirror").counters("mirror", arrived=(5, 5), **NOTHING)
    made.table("mirror", "numbered", [gaps])
    scene = Scene(PlayedSession(made.end()).state, MANIFESTS, PROFILE, Connection("live"))
    first, *_ = mirror.rows(scene)
    assert [first.cells[name].text for name in ("stage", "lost", "where")] == [
        "before this host",
        "7",
        "gaps in the numbers of 192.0.2.9 ERSPAN 5",
    ]
    assert mirror.title(scene).endswith("lost on this host · before it 7 packets/s are missing by their numbers")


@pytest.mark.parametrize(
    ("whole", "missing", "lost", "where", "said"),
    [
        (10_000, 500, "≈50", "≈5 % of TCP inside is missing, most in VXLAN 7", "≈5 % of TCP inside is lost"),
        (10_000, 0, "≈0", "", "nothing of TCP inside is missing"),
        (10_000, 10_000, "–", "≈100 % of TCP inside is missing, most in VXLAN 7", "≈100 % of TCP inside is lost"),
    ],
)
def test_what_is_missing_of_tcp_inside_is_estimated(whole: int, missing: int, lost: str, where: str, said: str) -> None:
    networks = [
        row({"tunnel": "VXLAN", "vni": vni, "netns": "host", "device": "eth0"}, tcp_bytes=part, tcp_missing=gone)
        for vni, part, gone in ((5, 0, 0), (7, whole, missing))
    ]
    made = Scenario().hello().status("mirror").counters("mirror", arrived=(950, 950), **NOTHING)
    made.table("mirror", "vnis", networks)
    scene = Scene(PlayedSession(made.end()).state, MANIFESTS, PROFILE, Connection("live"))
    assert shown(scene)["before this host"] == ("", lost, "", where)
    here = (
        "nothing of 950 packets/s is lost on this host"
        if missing
        else "whole on this host: nothing of 950 packets/s is lost"
    )
    assert mirror.title(scene) == f"Mirror: from NIC to worker · {here} · before it {said}"
    told = replace(scene, findings=Incidents(MANIFESTS).update(scene.state), made={})
    assert shown(told)["before this host"][3].startswith("eth0: about " if missing >= 1000 else where)


def test_workers_that_read_copies_stand_at_the_end_once_one_misses_some() -> None:
    sockets = [
        row({"process": f"sniffer ({n})", "kind": kind, "protocol": "all", "inode": n, "netns": "host"}, drops=drops)
        for n, kind, drops in ((8, "packet", 5), (9, "packet", 700), (10, "netlink", 9_000), (11, "raw", 6))
    ]
    made = Scenario().hello().status("mirror").counters("mirror", arrived=(950, 950)).status("protocol_counters")
    scene = Scene(PlayedSession(made.end()).state, MANIFESTS, PROFILE, Connection("live"))
    assert "copies" not in shown(scene)
    made.table("protocol_counters", "overruns", sockets)
    scene = Scene(PlayedSession(made.end()).state, MANIFESTS, PROFILE, Connection("live"))
    assert list(shown(scene))[-1] == "copies"
    assert shown(scene)["copies"] == ("", "700", "700", "sniffer (9), packet socket 9")
    assert "nothing comes" not in mirror.title(scene)


def test_what_the_driver_handed_over_stands_before_the_backlog() -> None:
    made = Scenario().hello().status("mirror").counters("mirror", arrived=(950, 950))
    made.status("mirror_xdp", attach=["xdp:native:eth0"]).counters("mirror_xdp", arrived=(1000, 1000))
    scene = Scene(PlayedSession(made.end()).state, MANIFESTS, PROFILE, Connection("live"))
    assert shown(scene)["at the driver"] == ("1.00k", "–", "", "native XDP at eth0")
    assert list(shown(scene))[:4] == ["NIC, driver", "at the driver", "backlog", "arrived"]


@pytest.mark.parametrize(
    ("attach", "where"), [([], "its device is gone"), (["xdp:native"], "native XDP at "), (["x"], " XDP at ")]
)
def test_where_a_far_host_says_the_driver_is_breaks_nothing(attach: list[str], where: str) -> None:
    made = Scenario().hello().status("mirror").counters("mirror", arrived=(950, 950))
    made.status("mirror_xdp", attach=attach).counters("mirror_xdp", arrived=(1000, 1000))
    scene = Scene(PlayedSession(made.end()).state, MANIFESTS, PROFILE, Connection("live"))
    assert shown(scene)["at the driver"][3] == where


def test_nothing_is_shown_before_it_counted() -> None:
    empty = Scene(PlayedSession(Scenario().hello().end()).state, MANIFESTS, PROFILE, Connection("live"))
    assert mirror.rows(empty) == [] and mirror.title(empty) == "Mirror: from NIC to worker"
