"""The hosts of a ping are asked for their tables: this one, far ones, and a place that cannot be entered is said."""

from __future__ import annotations

import contextlib
import sys

import pytest

from netconsole.base.errors import BadInput, Unable
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.far.program import Launch
from netconsole.ping.capture import Role
from netconsole.run import ping_places
from netconsole.run.ping_places import HERE, best, find_everywhere, read_places
from netconsole.run.ping_watch import look_around
from netconsole.sources.ping_ends import HostTables, PortLink, own_macs, read_tables
from tests.support.far_host import NearHost


def test_a_far_host_tells_of_its_devices_what_this_one_does() -> None:
    with contextlib.closing(NearHost()) as near:
        found = read_places({"receiver-host": "ssh://near"}, lambda _: near, ("ssh://near",))
    before, far, after = found.tables[HERE], found.tables["ssh://near"], read_tables()
    assert "lo" in far.links and "127.0.0.1" in far.own and not found.unreached
    # Other tests make and remove devices meanwhile.
    links = before.links.items(), after.links.items()
    assert links[0] & links[1] <= far.links.items() <= links[0] | links[1]
    assert before.own & after.own <= far.own <= before.own | after.own


def test_a_vm_says_itself_which_mac_its_address_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody talks to an address of a bridge that has none itself, so the host has no neighbour."""
    monkeypatch.setattr(ping_places, "own_macs", lambda host: {IP: MAC})
    monkeypatch.setattr(ping_places, "read_tables", lambda host=None: HAS_TAP)
    with contextlib.closing(NearHost()) as near:
        found = read_places({"sender-vm": "ssh://vm"}, lambda _: near)
    (end,) = find_everywhere(IP, found.tables).values()
    assert (end.vm, end.taps, end.mac) == ("web", ["vnet3"], MAC)
    assert end.how[0] == f"{IP} is at {MAC} (the VM says so itself)"
    (named,) = find_everywhere("web", found.tables).values()
    assert named.address == IP


def test_what_a_vm_says_of_itself_is_read_from_its_devices() -> None:
    addresses, links = own_macs(THIS_HOST), read_tables().links
    assert "127.0.0.1" not in addresses, "lo has no MAC"
    assert set(addresses.values()) <= {link.mac for link in links.values()}


def test_a_place_that_cannot_be_entered_is_said_and_one_in_a_vm_is_asked_for_its_macs() -> None:
    entered = []

    def enter(place: str) -> AnyHost:
        entered.append(place)
        if place == "ssh://b":
            raise Unable("ssh://b: it asks for a password\nand more")
        return NearHost()

    at: dict[Role, str] = {"sender-vm": "ssh://a", "sender-host": HERE, "receiver-host": "ssh://b"}
    found = read_places(at, enter)
    assert entered == ["ssh://a", "ssh://b"] and list(found.tables) == [HERE]
    assert found.unreached == {"ssh://b": "ssh://b: it asks for a password"}


def test_what_a_host_does_not_let_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AnyHost | None] = []

    def refuses(host: AnyHost | None = None) -> HostTables:
        asked.append(host)
        if host is None and len(asked) > 1:
            raise OSError("odd\x07")
        if host is not None:
            raise PermissionError(13, "Permission denied")
        return HostTables({})

    monkeypatch.setattr(ping_places, "read_tables", refuses)
    with contextlib.closing(NearHost()) as near:
        found = read_places({"sender-host": "ssh://a"}, lambda _: near)
    assert found.unreached == {"ssh://a": "ssh://a: netconsole cannot read the devices of this host: Permission denied"}
    assert list(found.tables) == [HERE]
    with pytest.raises(Unable, match=r"cannot read the devices of this host: odd\\x07"):
        read_places({}, lambda _: near)


MAC, OTHER_MAC = "52:54:00:00:00:07", "52:54:00:00:00:09"
IP, IP6 = "192.0.2.7", "fe80::7"
TAPS = {"vnet3": PortLink("vnet3", "tun", master="br0"), "br0": PortLink("br0", "bridge")}
KNOWS_NEIGHBOUR = HostTables({}, neighbours={"192.0.2.9": OTHER_MAC, IP: MAC})
HAS_TAP = HostTables(TAPS, nics=[("web", MAC, "vnet3")])


def test_a_host_that_answers_nonsense_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(NearHost()) as near:
        code = r"""print('{"answer": %d, "document": {"links": 7}}' % json.loads(input())["id"], flush=True); input()"""
        monkeypatch.setattr(near, "measuring", lambda: Launch([sys.executable, "-c", f"import json; {code}"]))
        found = read_places({"sender-host": "ssh://a"}, lambda _: near)
    assert "cannot read the devices of this host: ping_ends: an answer that makes no" in found.unreached["ssh://a"]


def test_what_one_host_knows_of_an_address_helps_the_others() -> None:
    """This machine has the address in its neighbour table, another one the tap of its MAC."""
    ends = find_everywhere(IP, {HERE: KNOWS_NEIGHBOUR, "ssh://a": HAS_TAP, "ssh://b": HostTables({})})
    here, with_tap, other = ends.values()
    assert (here.mac, here.taps, here.address) == (MAC, [], IP)
    assert (with_tap.asked, with_tap.mac, with_tap.taps, with_tap.vm, with_tap.address) == (
        IP,
        MAC,
        ["vnet3"],
        "web",
        IP,
    )
    assert (other.mac, other.taps, other.address) == ("", [], IP)
    assert best(ends) is with_tap and best({HERE: here, "ssh://b": other}) is here


def test_the_address_of_a_vm_that_was_named_is_from_whoever_knows_its_mac() -> None:
    ends = find_everywhere("web", {HERE: KNOWS_NEIGHBOUR, "ssh://a": HAS_TAP})
    assert [(end.address, end.taps) for end in ends.values()] == [(IP, []), (IP, ["vnet3"])]
    nobody = find_everywhere("web", {HERE: HostTables({}), "ssh://a": HAS_TAP})
    assert [end.address for end in nobody.values()] == ["", ""]
    own = HostTables(TAPS, neighbours={IP6: MAC}, nics=[("web", MAC, "vnet3")])
    assert [end.address for end in find_everywhere("web", {HERE: KNOWS_NEIGHBOUR, "ssh://a": own}).values()] == [
        IP6,
        IP6,
    ]


def test_a_host_that_has_the_address_itself_is_not_asked_for_a_tap_of_another_mac() -> None:
    """Each keeps what it has found by itself."""
    is_host = HostTables(TAPS, own=frozenset({IP}), nics=[("web", MAC, "vnet3")])
    knows_other = HostTables(TAPS, neighbours={IP: OTHER_MAC}, nics=[("web", MAC, "vnet3")])
    for one, mac in ((is_host, ""), (knows_other, OTHER_MAC)):
        ends = find_everywhere(IP, {HERE: KNOWS_NEIGHBOUR, "ssh://a": one})
        assert (ends["ssh://a"].mac, ends["ssh://a"].taps) == (mac, [])
    by_name = find_everywhere("vnet3", {HERE: HAS_TAP, "ssh://a": HAS_TAP})
    assert [(end.mac, end.taps) for end in by_name.values()] == [("", ["vnet3"])] * 2
    assert [end.mac for end in find_everywhere(MAC, {HERE: HostTables({}), "ssh://a": HAS_TAP}).values()] == [MAC] * 2


def test_the_wizard_takes_no_address_that_is_none() -> None:
    with pytest.raises(BadInput, match="expected ssh://"):
        look_around({"receiver-host": "ssh://-oProxyCommand=x"}, {})
