"""The hosts of a ping are asked for their tables: this one, far ones, and a place that cannot be entered is said."""

from __future__ import annotations

import contextlib

import pytest

from netconsole.base.errors import BadInput, Unable
from netconsole.far.host import AnyHost
from netconsole.ping.capture import Role
from netconsole.run.ping_places import HERE, read_places
from netconsole.run.ping_watch import look_around
from tests.support.far_host import NearHost


def test_a_far_host_tells_of_its_devices_what_this_one_does() -> None:
    with contextlib.closing(NearHost()) as near:
        found = read_places({"receiver-host": "ssh://near"}, lambda _: near, ("ssh://near",))
    here, far = found.tables[HERE], found.tables["ssh://near"]
    assert "lo" in far.links and "127.0.0.1" in far.own
    assert (far.links, far.own) == (here.links, here.own) and not found.unreached


def test_a_place_that_cannot_be_entered_is_said_and_one_in_a_vm_is_only_entered() -> None:
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


def test_the_wizard_takes_no_address_that_is_none() -> None:
    with pytest.raises(BadInput, match="expected ssh://"):
        look_around({"receiver-host": "ssh://-oProxyCommand=x"}, {})
