"""The plan of a ping: vantage points that are here, that are reached, and the exact command for those that are not."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from netconsole.base.errors import BadInput
from netconsole.cli.main import app
from netconsole.ping.capture import ROLES, Role
from netconsole.ping.vantage import Between
from netconsole.probes import catalogue
from netconsole.run.ping_plan import HERE, PingPlan, PingTraffic, at_of, command_for, described, ping_command, plan
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


def made(
    sender: str, receiver: str, at: dict[Role, str] | None = None, watch: bool = False, vhost: bool = True
) -> PingPlan:
    between, traffic = Between(limit_s=2.0, vhost=vhost), PingTraffic(10, 20_000, 56)
    return plan((sender, receiver), TABLES, at or {}, between, traffic, "run", watch)


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


def test_two_vms_of_one_host_have_one_vantage_point_between_them() -> None:
    found = made("web-07", "web-08")
    [point] = found.points
    assert (point.role, point.between.inside, point.between.outside) == ("sender-host", ["vnet3"], ["vnet4"])
    assert found.left == ["sender-vm", "receiver-vm"]
    assert found.notes == ["both VMs are on this host: sender-host sees the whole way between their taps"]


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
    # What this host knows of devices is not true of others.
    assert [(point.between.inside, point.between.outside) for point in found.points if point.host != HERE] == [
        ((), ())
    ] * 2
    assert found.sent_at == "ssh://root@192.0.2.7"
    assert found.left == ["receiver-vm"]


@pytest.mark.parametrize(
    ("sender", "receiver", "at", "said"),
    [
        ("192.0.2.50", "192.0.2.51", {}, "no vantage point here (192.0.2.50 is not in this host's neighbour table"),
        (HERE, "db-01", {}, "its address is not known"),
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


def test_the_plan_says_what_is_attached_where_and_what_it_costs() -> None:
    lines = described(made("web-07", "192.0.2.9"), catalogue.load_all())
    assert "web-07: VM web-07 has vnet3 (QEMU's command line and descriptors)" in lines
    hooks = "sender-host (here): between vnet3 and eth0; attaches to netif_receive_skb, net_dev_start_xmit"
    assert f"{hooks}, 10 hooks of vhost" in lines
    assert hooks in described(made("web-07", "192.0.2.9", vhost=False), catalogue.load_all())
    assert "echoes: 10, 50 a second, 56 bytes each; somebody else pings" in lines
    assert lines[-1].startswith("cost: ")


@pytest.mark.parametrize("text", ["sender-vm", "sender-vm=", "sender-vm=root@host", "vm=here", "=here", "host=ssh:/x"])
def test_a_place_has_one_form(text: str) -> None:
    with pytest.raises(BadInput, match="expected ROLE=here or ROLE=ssh"):
        at_of([text], ROLES)


def test_places_by_role() -> None:
    assert at_of(["host=here", "receiver-vm=ssh://b"], ROLES) == {"host": "here", "receiver-vm": "ssh://b"}
