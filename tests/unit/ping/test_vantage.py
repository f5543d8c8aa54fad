"""Vantage points as probes: devices, knobs, and what is watched with the attach points of this kernel."""

from __future__ import annotations

import pytest

from netconsole.base.errors import BadInput
from netconsole.ping.capture import ROLES, Role
from netconsole.ping.echo_log import IRQ_POINTS, KICK_POINTS, POINTS
from netconsole.ping.vantage import VANTAGE_POINTS, Between, request_of
from netconsole.ping.visible_points import notes, watched
from netconsole.probes import catalogue

MANIFESTS = catalogue.load_all()
FULL = ["fentry:__ip_local_out", "kprobe:__ip6_local_out", "kprobe:icmp_rcv", "fentry:icmpv6_rcv"]
BARE = ["raw_tracepoint:net_dev_queue", "raw_tracepoint:sk_data_ready"]


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_a_probe_that_keeps_records_of_echoes(role: Role) -> None:
    request = request_of(role, Between(limit_s=2.0), MANIFESTS)
    [records] = MANIFESTS[request.name].records.values()
    stages = (*IRQ_POINTS, *KICK_POINTS) if VANTAGE_POINTS[role].has_inside else ()
    assert [column.name for column in records.value if column.name.endswith("_ns")] == [*POINTS, *stages]
    assert request.knobs["receiver"] is role.startswith("receiver")
    assert request.knobs["keep_ms"] == 3000
    assert request.mode == "summary"  # without details there is no budget of events, and nothing to shed


def test_devices_and_addresses_are_knobs() -> None:
    request = request_of("sender-host", Between(("tap0", "vnet*"), ("eth0",), ("192.0.2.1",), 5), MANIFESTS)
    wanted = {"inside_devices": "tap0 vnet*", "outside_devices": "eth0", "address": "192.0.2.1", "netns": 5}
    assert wanted.items() <= request.knobs.items()
    assert request_of("host", Between(outside=("bond0",)), MANIFESTS).knobs["wire_devices"] == "bond0"


def test_the_hooks_of_vhost_can_be_left_out() -> None:
    with_them, without = (request_of("sender-host", Between(vhost=vhost), MANIFESTS).spec for vhost in (True, False))
    names = [{one["name"] for one in spec["programs"]} for spec in (with_them, without)]  # type: ignore[attr-defined]
    assert names[1] == {"receive", "send"} < names[0]


@pytest.mark.parametrize(
    ("role", "between", "said"),
    [
        ("sender-vm", Between(inside=("tap0",)), "--inside: sender-vm has no inside device"),
        ("host", Between(inside=("tap0",)), "--inside: host has no inside device"),
        ("sender-host", Between(inside=("a", "b", "c", "d", "e")), "--inside: expected at most 4 names"),
        ("sender-host", Between(outside=("a" * 16,)), "--outside: expected at most 4 names"),
    ],
)
def test_what_cannot_be_is_said_by_its_option(role: Role, between: Between, said: str) -> None:
    with pytest.raises(BadInput) as error:
        request_of(role, between, MANIFESTS)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("role", [role for role in ROLES if VANTAGE_POINTS[role].has_inside])
def test_a_host_that_is_crossed_watches_all_points(role: Role) -> None:
    assert watched(role, BARE, 4).points == (True, True, True, True)
    assert notes(role, BARE) == []


@pytest.mark.parametrize("version", [4, 6])
def test_what_a_kernel_without_kprobes_cannot_tell_is_said(version: int) -> None:
    assert watched("receiver-vm", FULL, version).points == (True, True, True, True)
    assert watched("receiver-vm", BARE, version).points == (True, False, True, True)
    assert watched("sender-vm", FULL, version).points == (True, True, True, True)
    assert watched("sender-vm", BARE, version).points == (True, True, True, True)
    assert watched("host", [], version).points == (False, True, True, False)
    assert notes("sender-vm", FULL) == []
    assert len(notes("sender-vm", BARE)) == len(notes("receiver-vm", BARE)) == 2
