"""What the samples of a row show, counted by flow, port, process, place and stack; and how long it still runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netconsole.escalation.investigation import MAX_KEYS, Investigation
from netconsole.telemetry import frames
from netconsole.telemetry.state import MAX_EVENTS
from tests.unit.telemetry.test_state import Stream


def sample(**fields: Any) -> frames.Event:
    return frames.Event(seq=1, mono_ns=1, wall_ns=1, probe="p", name="drop", fields=fields)


def shown(*events: frames.Event, labels: Mapping[str, Any] | None = None) -> Investigation:
    one = Investigation("kernel_drops", tuple(sorted((labels or {}).items())), "")
    one.take(events)
    return one


def test_a_sample_is_of_the_row_unless_a_label_says_another_thing() -> None:
    labels = {"device": "tap0", "protocol": "UDP", "vm": None, "netns": ""}
    one = shown(
        sample(device="tap0", protocol="udp"),
        sample(device="tap0"),
        sample(device="tap0", protocol=None, vm="web"),
        sample(device="tap1", protocol="udp"),
        sample(device="tap0", protocol="TCP"),
        labels=labels,
    )
    assert (one.samples, one.others) == (3, 2)
    assert one.name == "kernel_drops.details"
    unconnected = {"port": 53, "peer": None, "peer_port": 0, "queue": 0}
    one = shown(sample(port=53, peer="192.0.2.9", peer_port=4000, queue=0), sample(queue=1), labels=unconnected)
    assert (one.samples, one.others) == (1, 1), "the sample alone knows who sent to a socket without a peer"
    resets = {"inode": 0, "process": "", "address": "192.0.2.1", "port": 443, "peer": None, "peer_port": 0}
    ends = {"address": "192.0.2.1", "peer": "192.0.2.9", "peer_port": 4000}
    one = shown(sample(inode=81, port=443, **ends), sample(inode=82, port=80, **ends), labels=resets)
    assert (one.samples, one.others) == (1, 1), "the row of a service is of all its sockets"


@pytest.mark.parametrize(
    ("fields", "flow", "port"),
    [
        ({"source": "192.0.2.1", "source_port": 9, "target": "192.0.2.2", "target_port": 53, "protocol": "UDP"},
         "192.0.2.1:9 → 192.0.2.2:53", "UDP 53"),
        ({"source": "2001:db8::1", "source_port": 9, "target": "2001:db8::2"}, "[2001:db8::1]:9 → 2001:db8::2", None),
        ({"address": "192.0.2.1", "port": 22, "peer": "192.0.2.9", "peer_port": 4000}, "192.0.2.1:22 → 192.0.2.9:4000",
         "22"),
        ({"address": "192.0.2.1", "port": 53, "peer": "192.0.2.9", "peer_port": 4000, "what": "udp receive"},
         "192.0.2.9:4000 → 192.0.2.1:53", "53"),
        ({"address": "192.0.2.1", "port": 53}, None, "53"),
        ({"peer": "192.0.2.9"}, "? → 192.0.2.9", None),
        ({"device": "lo"}, None, None),
    ],
)  # fmt: skip
def test_a_flow_is_said_from_end_to_end_and_a_port_is_the_servers(
    fields: dict[str, Any], flow: str | None, port: str | None
) -> None:
    groups = shown(sample(**fields)).groups
    assert list(groups.get("flow", ())) == ([flow] if flow else [])
    assert list(groups.get("port", ())) == ([port] if port else [])


def test_stacks_are_told_apart_by_their_four_innermost_frames() -> None:
    stack = ["kfree_skb", "udp_rcv", "ip_rcv", "netif_rx", "tun_get_user"]
    groups = shown(
        sample(stack=stack, process="qemu (1)", location="udp_rcv"),
        sample(stack=[*stack[:4], "other"], process="qemu (1)"),
        sample(stack=["x", *stack], process=""),
        sample(stack=[]),
    ).groups
    assert groups["stack"] == {"kfree_skb < udp_rcv < ip_rcv < netif_rx": 2, "x < kfree_skb < udp_rcv < ip_rcv": 1}
    assert groups["process"] == {"qemu (1)": 2} and groups["location"] == {"udp_rcv": 1}


def test_a_bounded_number_of_different_flows_is_kept_and_those_go_on() -> None:
    one = shown(*(sample(process=f"p{number}") for number in range(MAX_KEYS + 5)), sample(process="p0"))
    assert len(one.groups["process"]) == MAX_KEYS == 2000
    assert one.groups["process"]["p0"] == 2 and one.samples == MAX_KEYS + 6


def test_the_time_that_is_left_counts_from_the_first_figure_on() -> None:
    one = Investigation("p", (), "")
    assert one.left_s == 30.0
    one.began_s, one.now_s = 100.0, 112.0
    assert one.left_s == 18.0
    one.now_s = 200.0
    assert one.left_s == 0.0


def test_only_samples_that_arrived_since_are_taken_and_each_once() -> None:
    from netconsole.telemetry.state import State

    stream = Stream(State())
    stream.hello()
    stream.status()
    probe = stream.state.probes["p"]

    def arrive(count: int) -> None:
        for _ in range(count):
            stream.state.apply(frames.Event(**stream.stamp(), name="drop", fields={"process": "x"}))

    early = Investigation("p", (), "")
    early.begin(None)
    arrive(3)
    early.follow(probe)
    assert early.samples == 3, "it was there before the probe"
    one = Investigation("p", (), "")
    one.begin(probe)
    one.follow(probe)
    assert one.samples == 0
    arrive(2)
    one.follow(probe)
    one.follow(probe)
    assert one.samples == 2
    arrive(MAX_EVENTS + 7)
    one.follow(probe)
    assert one.samples == 2 + MAX_EVENTS, "the others were shed"
    probe.events_arrived = 4  # loaded anew
    one.follow(probe)
    assert one.samples == 2 + MAX_EVENTS + 4
