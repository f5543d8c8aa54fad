"""Where a VM's packets pass its host: found in tables of any kind, said step by step, and never made up."""

from __future__ import annotations

import pytest

from netconsole.sources.ping_ends import HostTables, PortLink, find, read_tables

VM_MAC, FAR_MAC = "52:54:00:00:00:07", "52:54:00:00:00:99"


def tables(*links: PortLink, **more: object) -> HostTables:
    return HostTables({link.name: link for link in links}, **more)  # type: ignore[arg-type]


BRIDGED = (
    PortLink("vnet3", "tun", "fe:54:00:00:00:07", "br0"),
    PortLink("vnet4", "tun", "fe:54:00:00:00:08", "br0"),
    PortLink("br0", "bridge"),
    PortLink("eth0", master="br0", is_physical=True),
)
NEIGHBOUR = {"192.0.2.7": VM_MAC, "192.0.2.9": FAR_MAC}
NICS = [("web-07", VM_MAC, "vnet3")]


def test_an_address_by_neighbour_table_and_qemu() -> None:
    end = find("192.0.2.7", tables(*BRIDGED, neighbours=NEIGHBOUR, nics=NICS))
    assert (end.vm, end.taps, end.bridge, end.wires, end.mac) == ("web-07", ["vnet3"], "br0", ["eth0"], VM_MAC)
    assert end.how == [
        f"192.0.2.7 is at {VM_MAC} (neighbour table)",
        f"{VM_MAC} is VM web-07, device vnet3 (QEMU's command line and descriptors)",
        "vnet3 is in br0, which leads to eth0",
    ]


def test_an_address_by_the_forwarding_table_of_its_bridge() -> None:
    known = {VM_MAC: ("vnet3", "the forwarding table of br0")}
    end = find("192.0.2.7", tables(*BRIDGED, neighbours=NEIGHBOUR, forwarding=known))
    assert (end.vm, end.taps, end.wires) == ("", ["vnet3"], ["eth0"])


def test_an_address_behind_the_wire_is_on_another_host() -> None:
    known = {FAR_MAC: ("eth0", "the forwarding table of br0")}
    end = find("192.0.2.9", tables(*BRIDGED, neighbours=NEIGHBOUR, forwarding=known))
    assert not end.is_vm_here
    assert end.how[-1] == "eth0 leads away from this host, so the VM is on another host"


@pytest.mark.parametrize("asked", ["web-07", VM_MAC, VM_MAC.upper(), "vnet3"])
def test_a_name_a_mac_or_a_tap_is_enough(asked: str) -> None:
    end = find(asked, tables(*BRIDGED, neighbours=NEIGHBOUR, nics=NICS))
    assert (end.taps, end.wires) == (["vnet3"], ["eth0"])
    assert end.address == ("" if asked == "vnet3" else "192.0.2.7")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("192.0.2.1", "192.0.2.1 is not in this host's neighbour table"),
        ("192.0.2.9", f"{FAR_MAC} is in no forwarding table of this host"),
        ("db-01", "no QEMU process of this host has the name db-01"),
        ("", "no QEMU process of this host has the name "),
    ],
)
def test_what_is_not_found_is_said(asked: str, said: str) -> None:
    end = find(asked, tables(*BRIDGED, neighbours=NEIGHBOUR, nics=NICS))
    assert not end.is_vm_here
    assert end.how[-1].startswith(said)


def test_an_address_of_the_host_itself() -> None:
    end = find("192.0.2.1", tables(*BRIDGED, own=frozenset({"192.0.2.1"})))
    assert (end.is_host, end.taps) == (True, [])


def test_the_way_to_the_wire_leads_over_bonds_vlans_and_pairs_of_veth() -> None:
    end = find(
        "vnet3",
        tables(
            PortLink("vnet3", "tun", master="qbr1"),
            PortLink("qbr1", "bridge"),
            PortLink("qvb1", "veth", master="qbr1", lower="qvo1"),
            PortLink("qvo1", "veth", master="ovs-system", lower="qvb1"),
            PortLink("ovs-system", "openvswitch"),
            PortLink("vnet9", "tun", master="ovs-system"),
            PortLink("bond0.7", "vlan", master="ovs-system", lower="bond0"),
            PortLink("bond0", "bond"),
            PortLink("eth0", master="bond0", is_physical=True),
            PortLink("eth1", master="bond0", is_physical=True),
            PortLink("eth2", is_physical=True),
            PortLink("vx7", "vxlan", master="ovs-system", lower="eth2"),
        ),
    )
    assert (end.bridge, end.wires) == ("qbr1", ["eth0", "eth1"])


def test_a_port_of_open_vswitch_is_in_its_bridge_and_not_in_the_datapath() -> None:
    ports = PortLink("vnet9", "tun", master="ovs-system"), PortLink("eth2", master="ovs-system", is_physical=True)
    end = find("vnet9", tables(*ports, PortLink("ovs-system", "openvswitch"), bridge_of={"vnet9": "br-int"}))
    assert (end.bridge, end.wires) == ("br-int", ["eth2"])
    assert end.how[-1] == "vnet9 is in br-int, which leads to eth2"


def test_a_loop_of_bridges_ends() -> None:
    end = find(
        "vnet3",
        tables(
            PortLink("vnet3", "tun", master="br0"),
            PortLink("br0", "bridge"),
            PortLink("br1", "bridge"),
            *(PortLink(f"v{n}", "veth", master="br0", lower=f"w{n}") for n in range(3)),
            *(PortLink(f"w{n}", "veth", master="br1", lower=f"v{n}") for n in range(3)),
        ),
    )
    assert end.wires == []
    assert end.how[-1] == "vnet3 is in br0, and no physical device was found behind it"


def test_the_tables_of_this_machine_can_be_read() -> None:
    found = read_tables()
    assert "lo" in found.links
    assert "127.0.0.1" in found.own


def test_a_vm_with_two_devices_is_named_with_both_and_with_no_mac() -> None:
    """Which of them answers is not known."""
    nics = [*NICS, ("web-07", FAR_MAC, "vnet4"), ("other", "52:54:00:00:00:55", "vnet5")]
    end = find("web-07", tables(*BRIDGED, neighbours=NEIGHBOUR, nics=nics))
    assert (end.taps, end.mac, end.address) == (["vnet3", "vnet4"], "", "")
    assert end.how[0] == "VM web-07 has vnet3, vnet4 (QEMU's command line and descriptors)"
