"""The plan of a ping: vantage points that are here, that are reached, and the exact command for those that are not."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from netconsole.base.errors import BadInput
from netconsole.cli.main import app
from netconsole.ping.capture import ROLES, Role
from netconsole.ping.vantage import Between
from netconsole.probes import catalogue
from netconsole.run.ping_places import HERE, PlaceTables
from netconsole.run.ping_plan import PingPlan, PingTraffic, at_of, command_for, described, ping_command, plan
from netconsole.sources.ping_ends import HostTables, PortLink

LINKS = {
    link.name: link
    for link in (
        PortLink("vnet3", "tun", master="br0"),
        PortLink("vnet4", "tun", master="br0"),
        PortLink("br0", "bridge"),
        PortLink("eth0", master="br0", is_physical=True),
    )
}
NEIGHBOURS = {"192.0.2.7": "52:54:00:00:00:07", "192.0.2.8": "52:54:00:00:00:08", "192.0.2.9": "52:54:00:00:00:09"}
NICS = [("web-07", "52:54:00:00:00:07", "vnet3"), ("web-08", "52:54:00:00:00:08", "vnet4")]
TABLES = HostTables(LINKS, neighbours=NEIGHBOURS, nics=NICS)
FAR = "ssh://hv2"
FAR_LINKS = {
    link.name: link
    for link in (
        PortLink("tap9", "tun", master="ovs-system"),
        PortLink("tap10", "tun", master="br7"),
        PortLink("ovs-system", "openvswitch"),
        PortLink("br7", "bridge"),
        PortLink("bond0", "bond", master="ovs-system"),
        PortLink("eno1", master="bond0", is_physical=True),
    )
}
FAR_TABLES = HostTables(
    FAR_LINKS, frozenset({"192.0.2.2"}), nics=[("db-09", NEIGHBOURS["192.0.2.9"], "tap9"), ("db-10", "", "tap10")]
)
"""A host of VMs whose addresses only the other host knows."""


def made(
    sender: str,
    receiver: str,
    at: dict[Role, str] | None = None,
    watch: bool = False,
    far: HostTables | None = None,
    unreached: dict[str, str] | None = None,
    **between: Any,
) -> PingPlan:
    places = PlaceTables({HERE: TABLES, **({FAR: far} if far else {})}, unreached or {})
    traffic = PingTraffic(10, 20_000, 56)
    return plan((sender, receiver), places, at or {}, Between(limit_s=2.0, **between), traffic, "run", watch)


def test_a_vm_here_pings_one_elsewhere() -> None:
    found = made("web-07", "192.0.2.9")
    [point] = found.points
    assert (point.role, point.host) == ("sender-host", HERE)
    assert (point.between.inside, point.between.outside) == (["vnet3"], ["eth0"])
    assert point.between.addresses == ["192.0.2.7", "192.0.2.9"]
    assert point.between.limit_s == 2.0
    assert found.left == ["sender-vm", "receiver-host", "receiver-vm"]
    assert found.sent_at is None


def test_a_vm_elsewhere_pings_one_here() -> None:
    [point] = made("192.0.2.9", "web-07").points
    assert (point.role, point.between.inside, point.between.outside) == ("receiver-host", ["vnet3"], ["eth0"])


def test_two_vms_of_one_host_are_measured_from_tap_to_tap() -> None:
    found = made("web-07", "web-08")
    assert [(one.role, one.between.inside, one.between.outside, one.between.one_host) for one in found.points] == [
        ("sender-host", ["vnet3"], ["vnet4"], True),
        ("receiver-host", ["vnet4"], ["vnet3"], True),
    ]
    assert found.left == ["sender-vm", "receiver-vm"]
    assert found.notes == ["both VMs are on one host (here): measured from tap to tap, with no network between hosts"]
    named = made("web-07", "web-08", outside=["eth0"])  # who names the wire wants it measured
    assert {(one.between.outside[0], one.between.one_host) for one in named.points} == {("eth0", False)}


def test_two_vms_of_one_far_host_whose_bridges_differ() -> None:
    found = made("db-10", "db-09", {"sender-host": FAR}, far=FAR_TABLES)
    assert [(one.role, one.host, one.between.inside) for one in found.points] == [
        ("sender-host", FAR, ["tap10"]),
        ("receiver-host", FAR, ["tap9"]),
    ]
    assert "their bridges differ (br7 and ovs-system)" in found.notes[0]


def test_a_host_pings_its_own_vm() -> None:
    found = made(HERE, "web-07")
    [point] = found.points
    assert (point.role, point.between.outside, point.between.one_host) == ("host", ["vnet3"], True)
    assert found.left == ["receiver-vm"] and "the VM is on the host that pings (here)" in found.notes[0]


def test_devices_of_a_far_host_are_looked_up_there() -> None:
    found = made("web-07", "192.0.2.9", {"receiver-host": FAR}, far=FAR_TABLES)
    [_, point] = found.points
    assert (point.host, point.between.inside, point.between.outside) == (FAR, ["tap9"], ["eno1"])
    told = [line for line in described(found, catalogue.load_all()) if FAR in line]
    assert told[:2] == [
        f"192.0.2.9 ({FAR}): {NEIGHBOURS['192.0.2.9']} is VM db-09, device tap9 (QEMU's command line and descriptors)",
        f"192.0.2.9 ({FAR}): tap9 is in ovs-system, which leads to eno1",
    ]
    # A VM that is only known there is found without saying which vantage point that host is.
    asked = made("web-07", "db-09", far=FAR_TABLES)
    assert [(one.role, one.host) for one in asked.points] == [("sender-host", HERE), ("receiver-host", FAR)]
    assert asked.receiver.address == "192.0.2.9"


def test_a_far_host_pings_from_its_own_address() -> None:
    found = made("192.0.2.2", "192.0.2.7", {"host": FAR}, far=FAR_TABLES)
    assert [(one.role, one.host) for one in found.points] == [("host", FAR), ("receiver-host", HERE)]
    assert found.sent_at == FAR


def test_a_place_that_is_not_reached_is_said_and_the_others_go_on() -> None:
    far: dict[Role, str] = {"receiver-host": FAR, "sender-vm": "ssh://vm"}
    found = made("web-07", "192.0.2.9", far, unreached={FAR: "it asks for a password", "ssh://vm": "no python3"})
    assert [one.role for one in found.points] == ["sender-host"] and found.sent_at is None
    assert found.left == ["sender-vm", "receiver-host", "receiver-vm"]
    assert found.notes == ["sender-vm: no python3", "receiver-host: it asks for a password"]


def test_the_host_itself_pings() -> None:
    found = made(HERE, "192.0.2.9")
    assert [point.role for point in found.points] == ["host"]
    assert found.left == ["receiver-host", "receiver-vm"]
    assert found.sent_at == HERE
    assert made(HERE, "192.0.2.9", watch=True).sent_at is None


def test_other_machines_are_reached_by_their_roles() -> None:
    far: dict[Role, str] = {"sender-vm": "ssh://root@192.0.2.7", "receiver-host": "ssh://hv2"}
    found = made("web-07", "192.0.2.9", far)
    assert [(point.role, point.host) for point in found.points] == [
        ("sender-vm", "ssh://root@192.0.2.7"),
        ("sender-host", HERE),
        ("receiver-host", "ssh://hv2"),
    ]
    # What this host knows of devices is not true of others, and of these nothing was looked up.
    assert [(point.between.inside, point.between.outside) for point in found.points if point.host != HERE] == [
        ((), ())
    ] * 2
    assert found.sent_at == "ssh://root@192.0.2.7"
    assert found.left == ["receiver-vm"]


@pytest.mark.parametrize(
    ("sender", "receiver", "at", "said"),
    [
        (
            "192.0.2.50",
            "192.0.2.51",
            {},
            "no vantage point was found (192.0.2.50 is not in this host's neighbour table",
        ),
        (HERE, "db-01", {}, "the address of this VM is not known"),
        (HERE, "192.0.2.9", {"sender-host": HERE}, "expected one of host, receiver-host, receiver-vm"),
        ("web-07", "192.0.2.9", {"host": HERE}, "expected one of sender-vm, sender-host"),
    ],
)
def test_what_cannot_be_measured_is_said(sender: str, receiver: str, at: dict[Role, str], said: str) -> None:
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        made(sender, receiver, at)


def test_the_command_for_a_vantage_point_can_be_run_as_it_is() -> None:
    command = shlex.split(command_for("receiver-host", made("web-07", "192.0.2.9")))
    assert command[:6] == ["netconsole", "ping", "capture", "--role", "receiver-host", "--host"]
    command[command.index("ssh://root@HOST")] = "no address"
    done = CliRunner().invoke(app, command[1:])
    assert isinstance(done.exception, BadInput)
    assert "--host" in str(done.exception)
    assert shlex.split(ping_command(made("web-07", "192.0.2.9"))) == [
        "ping",
        "-i",
        "0.02",
        "-c",
        "10",
        "-s",
        "56",
        "192.0.2.9",
    ]


def test_the_command_for_a_place_of_this_host_names_its_devices() -> None:
    """For one that could not begin."""
    command = command_for("sender-host", made("web-07", "192.0.2.9"))
    assert "--role sender-host --inside vnet3 --outside eth0 --run" in command and "--host" not in command


def test_the_plan_says_what_is_attached_where_and_what_it_costs() -> None:
    lines = described(made("web-07", "192.0.2.9"), catalogue.load_all())
    assert "web-07: VM web-07 has vnet3 (QEMU's command line and descriptors)" in lines
    hooks = "sender-host (here): measures between vnet3 and eth0; attaches to netif_receive_skb, net_dev_start_xmit"
    assert f"{hooks}, 10 hooks of vhost" in lines
    assert hooks in described(made("web-07", "192.0.2.9", vhost=False), catalogue.load_all())
    assert "echoes: the first 10 that somebody else sends" in lines
    assert lines[-1].startswith("cost at each vantage point: ")


@pytest.mark.parametrize("text", ["sender-vm", "sender-vm=", "sender-vm=root@host", "vm=here", "=here", "host=ssh:/x"])
def test_a_place_has_one_form(text: str) -> None:
    with pytest.raises(BadInput, match="expected ROLE=here or ROLE=ssh"):
        at_of([text], ROLES)


def test_places_by_role() -> None:
    assert at_of(["host=here", "receiver-vm=ssh://b"], ROLES) == {"host": "here", "receiver-vm": "ssh://b"}


def test_a_sender_that_is_only_said_to_be_here_may_be_behind_a_wire() -> None:
    """Its tap was not found: nobody knows that both are on one host. A host that pings needs no tap."""
    found = made("192.0.2.50", "web-08", {"sender-host": HERE})
    assert [point.role for point in found.points] == ["sender-host", "receiver-host"]
    assert not any(point.between.one_host for point in found.points)
    own = made(HERE, "web-08")
    assert [(point.role, point.between.one_host) for point in own.points] == [("host", True)]


def test_the_plan_says_how_many_echoes_a_second_are_sent_and_by_whom() -> None:
    """One in 20 ms, and one in 4 s."""
    manifests = catalogue.load_all()
    found = made(HERE, "192.0.2.9")
    assert "echoes: 10, 50 a second, 56 bytes each; sent by here" in described(found, manifests)
    slow = replace(found, traffic=PingTraffic(3, 4_000_000, 8))
    assert "echoes: 3, 0.25 a second, 8 bytes each; sent by here" in described(slow, manifests)
    assert ping_command(slow) == "ping -i 4 -c 3 -s 8 192.0.2.9"
