"""A namespace or VM that is named for another host is the one there, for every probe that can be narrowed to it."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.base.errors import BadInput
from netconsole.base.fact_keys import FactData
from netconsole.cli.measuring import Filters, Measuring
from netconsole.host import door
from netconsole.profile.scope import scope_of
from netconsole.run.named_there import inode_there, located
from netconsole.run.preflight import RunPlan
from tests.support.local_line import host

INODE = 4026532007


def planned(filters: Filters) -> RunPlan:
    return Measuring("drops", filters=filters, host=["hv"]).plan()


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A far host with one named namespace."""
    monkeypatch.setattr(door, "namespace_inode", lambda _, name: INODE if name == "blue" else None)
    return host()


def test_probes_and_scope_are_narrowed_to_the_namespace_of_the_host(there: Any) -> None:
    plan = planned(Filters(netns="blue"))
    narrowed = located(plan, there)
    netns = {one.name: one.knobs["netns"] for one in narrowed.requests if "netns" in one.knobs}
    assert set(netns) >= {"kernel_drops", "socket_drops"} and set(netns.values()) == {INODE}
    scope = scope_of(narrowed.profile, plan.manifests)
    assert scope is not None and scope.netns == INODE and narrowed.profile.given == {"netns": "blue"}
    assert [one.name for one in narrowed.requests] == [one.name for one in plan.requests]


def test_a_name_that_nothing_has_there_is_one_line(there: Any) -> None:
    plan = planned(Filters(netns="red\x1b[2J"))
    with pytest.raises(BadInput, match=r"--netns: no .* is named .* on ssh://me@hv:2222: see ip netns"):
        located(plan, there)


@pytest.mark.parametrize("filters", [Filters(netns=str(INODE)), Filters(port="53")])
def test_an_inode_is_not_asked_for(filters: Filters, there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(filters)
    monkeypatch.delattr(door, "namespace_inode")
    assert located(plan, there) is plan


def test_here_no_host_is_said() -> None:
    with pytest.raises(BadInput, match=r"named \"no-such\": see ip netns list$"):
        inode_there("no-such")


TAPS = {"web-07": ["vnet7"], "two": ["vnet1", "vnet2"], "dpdk": []}


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A far host with these VMs."""
    facts = {f"vm/{vm}/pid": FactData(1) for vm in TAPS}
    facts |= {
        f"vm/{vm}/net/{number}/tap": FactData(tap) for vm, taps in TAPS.items() for number, tap in enumerate(taps)
    }
    monkeypatch.setattr("netconsole.sources.facts.collect", lambda _: facts)


@pytest.mark.usefixtures("machines")
def test_a_vm_of_the_host_stands_for_its_one_device_there() -> None:
    plan = planned(Filters(vm="web-07"))
    narrowed = located(plan, host())
    devices = {one.name: one.knobs["device"] for one in narrowed.requests if "device" in one.knobs}
    assert set(devices) >= {"kernel_drops", "tun_queues"} and set(devices.values()) == {"vnet7"}
    scope = scope_of(narrowed.profile, plan.manifests)
    assert scope is not None and scope.has("link_rates", {"device": "vnet7"})
    assert not scope.has("link_rates", {"device": "vnet1"}) and narrowed.profile.given == {"vm": "web-07"}


@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize(
    ("vm", "says"),
    [
        ("two", "has 2: vnet1, vnet2; give"),
        ("dpdk", "has none"),
        ("web-7", "did you mean"),
        ("\x1b[2J", "no running VM"),
    ],
)
def test_a_vm_that_is_not_there_or_has_no_one_device_is_one_line(vm: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        located(planned(Filters(vm=vm)), host())
