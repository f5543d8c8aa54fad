"""The bridge of Open vSwitch for a calibration's load: what it has made, and what it says where it cannot be made."""

from __future__ import annotations

import pytest

from netconsole_collector import load_switch
from netconsole_collector.load_switch import BEHIND, BRIDGE, DROPPED, LOCAL, OVER, PORT, UPCALLED, LoadSwitch


def test_each_address_has_a_flow_and_upcalls_come_to_a_socket_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(load_switch, "is_loaded", lambda module: module == "openvswitch")
    made = LoadSwitch(lambda program, package, *words: ran.append((program, *words)), 7)
    port = made._upcalls.getsockname()[0]
    assert port > 0
    assert ran[0] == ("ip", "link", "add", PORT, "type", "veth", "peer", "name", BEHIND, "netns", "7")
    flows = {words[-2]: words[-1] for words in ran if words[:3] == ("ovs-dpctl", "add-flow", BRIDGE)}
    assert flows == {
        f"in_port(0),eth(),eth_type(0x0800),ipv4(dst={OVER})": "1",
        f"in_port(1),eth(),eth_type(0x0800),ipv4(dst={LOCAL})": "0",
        f"in_port(0),eth(),eth_type(0x0800),ipv4(dst={UPCALLED})": f"userspace(pid={port})",
        f"in_port(0),eth(),eth_type(0x0800),ipv4(dst={DROPPED})": "",
    }


def test_without_the_module_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(load_switch, "is_loaded", lambda module: False)
    with pytest.raises(RuntimeError, match="the kernel module openvswitch is not loaded"):
        LoadSwitch(lambda *words: ran.extend(words), 7)
    assert not ran
