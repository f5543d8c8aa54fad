"""What a drop reason means, on kernels that name it and on those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole_collector.names import drop_reasons
from netconsole_collector.names.drop_reasons import DropReasons


def test_kernels_without_reasons_have_them_inferred() -> None:
    described = DropReasons({}).labels(0, "__udp4_lib_rcv")
    assert described == {"reason": "NO_SOCKET", "class": "benign", "provenance": "inferred"}
    assert DropReasons({}).labels(0, "tap_handle_frame")["reason"] == "FULL_RING"
    assert DropReasons({}).labels(0, "nobody_knows") == {
        "reason": "unknown",
        "class": "unknown",
        "provenance": "inferred",
    }


def test_drops_of_open_vswitch_have_a_reason_on_every_kernel() -> None:
    def reason(names: dict[str, str], location: str, value: int = 1) -> str:
        described = DropReasons({"1": "NOT_SPECIFIED", **names}).labels(value, location)
        assert (described["class"], described["provenance"]) == ("suspicious", "inferred")
        return described["reason"]

    assert reason({}, "do_output", 0x7FFF0003) == "OVS_TOO_LARGE"
    assert reason({}, "do_output") == "OVS_NO_PORT"
    assert reason({}, "do_execute_actions") == "OVS_ACTION_FAILED"
    since_6_7 = {"196610": "OVS_DROP_ACTION_ERROR"}
    for function in ("ovs_vport_send", "do_output", "do_execute_actions"):
        assert reason(since_6_7, function) == "OVS_TOO_LARGE"


def test_a_message_between_processes_is_no_loss() -> None:
    """Before 6.14 a connection that nobody takes ends so: whenever a program looks up a user name, and no nscd runs."""
    reasons = DropReasons({"2": "NOT_SPECIFIED"})
    for function in (
        "unix_stream_connect", "__unix_gc", "virtio_transport_recv_pkt", "vsock_release", "ovs_vport_cmd_get",
    ):  # fmt: skip
        assert reasons.labels(2, function) == {"reason": "NOT_SPECIFIED", "class": "benign", "provenance": "kernel"}
    assert reasons.labels(2, "ip_rcv")["class"] == "suspicious"
    assert reasons.labels(2, "virtio_net_hdr_to_skb")["class"] == "suspicious"
    assert DropReasons({}).labels(0, "unix_stream_connect")["class"] == "benign"
    assert DropReasons({"1": "NOT_SPECIFIED"}).labels(1, "ovs_packet_cmd_execute")["class"] == "suspicious"


def test_what_is_freed_with_a_packet_or_a_socket_is_no_loss_of_its_own() -> None:
    """Fragments are freed with their packet, also when a socket has taken it, and unread packets with their socket."""
    for function in ("skb_release_data", "udp_destruct_common"):
        assert DropReasons({"2": "NOT_SPECIFIED"}).labels(2, function)["class"] == "benign"


def test_what_is_for_a_group_that_nobody_joined_is_no_loss() -> None:
    """Each IPv6 host tells its groups to all others when a device comes up, and they throw it away."""
    reasons = DropReasons({"2": "NOT_SPECIFIED", "9": "IP_INADDRERRORS"})
    assert reasons.labels(2, "ip6_mc_input") == {"reason": "NOT_SPECIFIED", "class": "benign", "provenance": "kernel"}
    assert reasons.labels(9, "ip6_mc_input")["class"] == "suspicious"
    assert DropReasons({}).labels(0, "ip6_mc_input")["class"] == "benign"
    assert DropReasons({}).labels(0, "ip6_input")["class"] == "unknown"


@pytest.mark.parametrize(
    "function",
    [
        "ip_rcv_finish_core.isra.0", "__udp4_lib_rcv", "__udp6_lib_rcv", "udp_rcv", "stp_pdu_rcv", "snap_rcv",
        "sk_stream_kill_queues", "skb_queue_purge", "tun_queue_purge", "inet_rtm_getroute",
    ],
)  # fmt: skip
def test_what_a_healthy_network_is_full_of_is_no_loss(function: str) -> None:
    """Broadcasts without a listener, frames of bridges; on 6.1 the last segment of each TCP connection."""
    reasons = DropReasons({"2": "NOT_SPECIFIED", "9": "UDP_CSUM"})
    assert reasons.labels(2, function)["class"] == "benign"
    assert reasons.labels(9, function)["class"] == "suspicious", "a reason says more than the place"


class Enums:
    """The BTF of a kernel that has these enums."""

    def __init__(self, **enums: dict[str, int]) -> None:
        self._enums = enums

    def named(self, name: str, kinds: object) -> list[str]:
        return [name] * 2 if name in self._enums else []

    def enumerators(self, enum: str) -> list[tuple[str, int]]:
        return list(self._enums[enum].items())


def test_reasons_are_the_kernel_s_and_those_of_its_subsystems() -> None:
    reasons_of = {"NO_SOCKET": 3, "MAX": 80, "SUBSYS_MASK": 0xFFFF0000}
    subsystems = {"CORE": 0, "OPENVSWITCH": 3, "NUM": 4}
    kernel: Any = Enums(
        skb_drop_reason={f"SKB_DROP_REASON_{name}": value for name, value in reasons_of.items()},
        skb_drop_reason_subsys={f"SKB_DROP_REASON_SUBSYS_{name}": value for name, value in subsystems.items()},
    )
    names = drop_reasons.from_btf(kernel)
    assert names == {"3": "NO_SOCKET", "subsystem:0": "core", "subsystem:3": "openvswitch"}
    reasons = DropReasons(names)
    assert reasons.labels(3, "x")["reason"] == "NO_SOCKET"
    assert reasons.labels(3 << 16 | 7, "x")["reason"] == "openvswitch reason 7"
    assert reasons.labels(9 << 16 | 7, "x")["reason"] == "9 reason 7"
    assert reasons.labels(77, "x")["reason"] == "reason 77"


def test_reasons_of_a_radio_and_of_a_queue_have_names_and_classes() -> None:
    """What only begins or ends an enum is none. Before 6.15 a radio's is also that it is unusable, and no more."""
    kernel: Any = Enums(
        skb_drop_reason={"SKB_DROP_REASON_NO_SOCKET": 3},
        mac80211_drop_reason={"RX_CONTINUE": 1, "RX_DROP_U_DUP": 0x10004},
        ___mac80211_drop_reason={"___RX_DROP_UNUSABLE": 0x10000, "___RX_DROP_U_DUP": 0x10004},
        qdisc_drop_reason={"__QDISC_DROP_REASON": 0x30000, "QDISC_DROP_OVERLIMIT": 0x30002, "QDISC_DROP_MAX": 0x30003},
    )
    reasons = DropReasons(drop_reasons.from_btf(kernel))
    found = {value: reasons.labels(value, "x") for value in (0x10000, 0x10004, 0x30000, 0x30002, 0x30003)}
    assert {value: (one["reason"], one["class"]) for value, one in found.items()} == {
        0x10000: ("UNUSABLE", "suspicious"),
        0x10004: ("U_DUP", "benign"),
        0x30000: ("3 reason 0", "unknown"),
        0x30002: ("QDISC_DROP_OVERLIMIT", "suspicious"),
        0x30003: ("3 reason 3", "unknown"),
    }
