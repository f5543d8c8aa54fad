"""Labels that change without a meaning get stable names: taps, processes, threads, namespaces, ports."""

from __future__ import annotations

import pytest

from netconsole.base.fact_keys import FactData, FactValue, key
from netconsole.compare.labels import Names

PLAIN = Names({})
FACTS: dict[tuple[str, ...], FactValue] = {
    ("vm", "web", "net", "0", "tap"): "vnet7",
    ("vm", "web", "pid"): 400,
    ("vm", "web", "vcpu", "1", "tid"): 401,
    ("vm", "web", "vhost", "0", "tid"): 402,
    ("netns", "4026532177", "name"): "blue",
    ("netns", "4026532178", "process"): "dnsmasq",
    ("netns_count",): 3,
    ("nic", "vnet7", "mtu"): 1500,
    ("nic", "eth0", "mtu"): 1500,
    ("sysctl", "net.ipv4.ip_local_port_range"): "40000\t50000",
}
HOST = Names({key(*where): FactData(value) for where, value in FACTS.items()})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("qemu-system-x86/400", "web qemu"),
        ("CPU 1/KVM (401)", "web vcpu1"),
        ("vhost-400/402", "web vhost0"),
        ("vhost-400", "web vhost"),
        ("vhost-999", "vhost"),
        ("sshd (77)", "sshd"),
        ("kworker", "kworker"),
        (None, None),
    ],
)
def test_a_process_is_that_of_its_vm_or_has_no_number(value: str | None, name: str | None) -> None:
    assert HOST.label("process", value) == name


def test_a_thread_without_a_name_is_none() -> None:
    assert [HOST.label("thread", one) for one in (401, 402, 999, "401")] == ["web vcpu1", "web vhost0", None, None]


@pytest.mark.parametrize(
    ("names", "first", "last"), [(PLAIN, 32768, 60999), (HOST, 40000, 50000)], ids=["as Linux has it", "as set"]
)
def test_ports_that_are_given_out_are_one(names: Names, first: int, last: int) -> None:
    found = [names.label("port", port) for port in (first - 1, first, last, last + 1)]
    assert found == [first - 1, "ephemeral", "ephemeral", last + 1]


@pytest.mark.parametrize("bounds", ["1", "1 x", "1 999999", "1 2 3"])
def test_a_range_of_ports_that_is_none_is_not_taken(bounds: str) -> None:
    names = Names({"sysctl/net.ipv4.ip_local_port_range": FactData(bounds)})
    assert names.label("port", 40000) == "ephemeral" and names.label("port", 2) == 2


def test_devices_and_namespaces_are_known_by_their_stable_names() -> None:
    assert HOST.known_devices == {"web net0", "eth0"} and PLAIN.known_devices == frozenset()
    assert HOST.known_namespaces == {"host", "other", "blue", "of dnsmasq"} and PLAIN.known_namespaces == frozenset()
    assert [HOST.label("netns", one) for one in ("4026532177", "4026532178", "4026532179", "red", None)] == [
        "blue", "of dnsmasq", "other", "red", "other",
    ]  # fmt: skip


def test_facts_of_a_tap_are_those_of_its_vm() -> None:
    assert HOST.fact("nic/vnet7/mtu") == "nic/web net0/mtu"
    assert HOST.fact("ovs/br0/port/vnet7/tag") == "ovs/br0/port/web net0/tag"
    assert HOST.fact("cpu/vnet7") == "cpu/vnet7" and HOST.fact("ovs") == "ovs"
