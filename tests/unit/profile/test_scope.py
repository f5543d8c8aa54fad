"""A scope leaves out what is outside, for all readers; what cannot be narrowed is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.profile.profile import Profile
from netconsole.profile.scope import RunScope, host_wide, said, words
from netconsole.telemetry.frames import Buckets, Event, Histogram, Label, Row, Scalar, Table

MANIFESTS = load_all()
INODE = 4026532469
FILTERS: dict[str, Scalar] = {"netns": INODE}


def scope(filters: Mapping[str, Scalar] = FILTERS, **given: str) -> RunScope:
    return RunScope(filters, MANIFESTS, given)


def table(probe: str, *rows: dict[str, Label]) -> Table:
    listed = [Row(labels=labels, counts={}) for labels in rows]
    return Table(seq=1, mono_ns=1, wall_ns=1, probe=probe, name="t", interval_ns=1, full=True, rows=listed)


def kept(of: RunScope, probe: str, *rows: dict[str, Label], knobs: Mapping[str, Scalar] | None = None) -> list[object]:
    """Places of the rows that are left."""
    frame = of.narrowed(table(probe, *rows), knobs or {})
    assert isinstance(frame, Table)
    return [rows.index(row.labels) for row in frame.rows]


def test_rows_of_other_namespaces_are_left_out() -> None:
    of = scope(netns="uxb")
    rows: list[dict[str, Label]] = [{"device": "a", "netns": name} for name in ("uxb", "mfa", "host", None, str(INODE))]
    assert kept(of, "link_rates", *rows) == [0, 4]
    assert kept(of, "protocol_counters", {"netns": "mfa"}, {"netns": "uxb"}) == [1]


def test_a_namespace_is_known_by_each_of_its_names() -> None:
    of = scope(netns="uxb")
    of.learn({str(INODE), "uxb", "second"}, False)
    rows: list[dict[str, Label]] = [{"device": "a", "netns": name} for name in ("second", "uxb", "mfa")]
    assert kept(of, "link_rates", *rows) == [0, 1]


@pytest.mark.parametrize("labels", [{"device": "eth0", "counter": "x"}, {"vm": "web", "process": "q/1"}, {"port": "p"}])
def test_rows_without_a_namespace_are_of_the_console_s_own(labels: dict[str, Label]) -> None:
    of = scope(netns="uxb")
    assert kept(of, "nic_counters", labels) == []
    of.learn({"host"}, True)
    assert kept(of, "nic_counters", labels) == [0]


def test_rows_of_cpus_are_of_the_whole_host_and_stay() -> None:
    assert kept(scope(), "softnet", {"cpu": 0}, {}, {"cpu": 1, "softirq": "NET_RX"}) == [0, 1, 2]


def test_what_the_probe_narrows_itself_is_not_looked_at() -> None:
    assert kept(scope(), "host_path", {"direction": "in"}, knobs={"netns": INODE}) == [0]
    assert kept(scope(), "host_path", {"direction": "in"}, knobs={"netns": 0}) == []


def test_histograms_and_samples_are_narrowed_too() -> None:
    empty = Buckets(count=0, sum=0, min=None, max=None, buckets=[])
    stamp: dict[str, Any] = {"seq": 1, "mono_ns": 1, "wall_ns": 1, "probe": "link_rates", "name": "n"}
    for netns, is_left in (("uxb", True), ("mfa", False)):
        labels: dict[str, Label] = {"netns": netns}
        histogram = Histogram(**stamp, interval_ns=1, unit="ns", labels=labels, delta=empty, total=empty)
        event = Event(**stamp, fields={**labels})
        assert [scope(netns="uxb").narrowed(one, {}) is one for one in (histogram, event)] == [is_left, is_left]


def test_a_device_leaves_out_others_and_their_vms() -> None:
    of = scope({"device": "tap0"}, vm="web")
    rows: list[dict[str, Label]] = [{"device": "tap0", "vm": "web"}, {"device": "tap1", "vm": "db"}, {"cpu": 0}]
    assert kept(of, "vhost_queues", *rows) == [0, 2]
    assert kept(of, "vm_states", {"vm": "web", "process": "q"}, {"vm": "db", "process": "q"}) == [0]
    assert kept(of, "ovs_flows", {"bridge": "br0", "port": "tap1"}, {"bridge": "br0", "port": "tap0"}) == [1]
    assert kept(of, "socket_drops", {"port": 53, "process": "dns"}) == [0], "a port of UDP is no device"


def test_the_vm_of_a_device_is_learned_from_its_rows() -> None:
    of = scope({"device": "tap0"})
    assert kept(of, "vm_states", {"vm": "web"}) == []
    kept(of, "tun_queues", {"device": "tap0", "vm": "web"}, {"device": "tap1", "vm": "db"})
    assert kept(of, "vm_states", {"vm": "web"}, {"vm": "db"}) == [0]


@pytest.mark.parametrize(
    ("fact", "is_inside", "is_own"),
    [
        ("nic/eth0/mtu", False, True),
        ("tc/eth0/qdisc/root", False, True),
        ("vm/web/pid", False, True),
        ("ovs/port/tap0/tag", False, True),
        (f"netns/{INODE}/name", True, True),
        ("netns/4026531840/name", False, False),
        ("namespace/4026532469/firewall", True, True),
        ("namespace/mfa/firewall", False, False),
        ("kernel/release", True, True),
        ("netns_count", True, True),
    ],
)
def test_facts_are_narrowed(fact: str, is_inside: bool, is_own: bool) -> None:
    of = scope(netns="uxb")
    assert of.has_fact(fact) == is_inside
    of.learn({str(INODE)}, True)
    assert of.has_fact(fact) == is_own


def test_facts_of_other_devices_are_left_out() -> None:
    of = scope({"device": "tap0"}, vm="web")
    facts = ("nic/tap0/mtu", "nic/tap1/mtu", "ovs/port/tap1/tag", "ovs/bridge/br0/ports", "vm/web/pid", "vm/db/pid")
    assert [of.has_fact(one) for one in facts] == [True, False, False, True, True, False]


def test_sysctls_of_other_devices_are_left_out() -> None:
    names = ("tap0", "all", "tap1", "a.b")
    facts = [f"namespace/host/sysctl/net.ipv4.conf.{name}.rp_filter" for name in names]
    assert [scope({"device": "tap0"}).has_fact(one) for one in facts] == [True, True, False, False]
    assert scope({"device": "a.b"}).has_fact(facts[3])


def test_every_probe_is_narrowed_or_named_as_host_wide() -> None:
    """A new probe without a namespace or a device in its labels comes up here."""
    netns = host_wide(Profile("p", filters=FILTERS), MANIFESTS, MANIFESTS)
    titles = {one.title: name for name, one in MANIFESTS.items()}
    of_no_namespace = {"block_path", "fs_path", "kvm_irqs", "mirror_xdp", "softirq_health", "softnet", "virtio_blk"}
    assert {titles[one] for one in netns} == of_no_namespace
    device = host_wide(Profile("p", filters={"device": "tap0"}), MANIFESTS, MANIFESTS)
    of_no_device = {"socket_drops", "socket_groups", "reuseport_skew", "protocol_counters", "ip_fragments"}
    of_many = {"host_path", "local_path", "echo_host", "echo_stack", "ovs_flows", "ovs_pmd"}
    assert {titles[one] for one in device} == {
        "kvm_irqs",
        "softirq_health",
        "softnet",
        "virtio_blk",
    } | of_no_device | of_many
    assert host_wide(Profile("p"), MANIFESTS, MANIFESTS) == []


def test_a_scope_is_said_as_it_was_given() -> None:
    assert words(said(Profile("p", filters=FILTERS, given={"netns": "uxb"}))) == "netns uxb"
    assert words(said(Profile("p", filters={"device": "tap0"}, given={"vm": "web"}))) == "device tap0"
    assert words(said(Profile("p", filters={"device": "", "netns": 0, "port": 53}))) == ""
