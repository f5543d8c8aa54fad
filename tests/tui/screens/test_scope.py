"""A device or a VM alone: what is shown is narrowed, the header says so once, one key takes it back."""

from __future__ import annotations

import threading

import pytest

from netconsole.base.fact_keys import FactData
from netconsole.findings.incident import Incident
from netconsole.tui.screens.pages.vm import VmScreen
from tests.support.fake_collector import Scenario
from tests.support.tui.running import Running, running
from tests.tui.screens.test_glance import crowded

LIMIT_S = 10.0


async def find(one: Running, text: str) -> str:
    await one.press("colon")
    await one.type(text)
    return await one.press("enter")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_vm_alone_and_all_again(size: tuple[int, int]) -> None:
    async with crowded(size, 40) as one:
        assert "vm-007 vnet7 q2: its ring is full" in one.text()
        text = await find(one, "vm 008")
        assert text.count("only vm vm-008 (Esc)") == 1 and "vm-007" not in text, "the other one's incident is not shown"
        assert "vhost!!" not in text and "FULL_RING" not in text
        text = await one.press("2")
        assert "4 of 160" in text and "vm-009" not in text and "only vm vm-008 (Esc)" in text.splitlines()[0]
        text = await one.press("escape")
        assert "only vm vm-008" not in text and "vm-007" in text and "vhost!!" in text


async def test_a_device_alone_has_its_own_incident() -> None:
    async with crowded((120, 40), 40) as one:
        text = await find(one, "device net7")
        assert "only device vnet7 (Esc)" in text and "vm-007 vnet7 q2: its ring is full" in text
        assert "vm-010" not in await one.press("2")
        await one.press("slash", "x", "y", "enter")
        assert "nothing matches the filter" in one.text()
        assert "only device vnet7" in await one.press("escape"), "first the filter goes, then the scope"
        assert "only device vnet7" not in await one.press("escape")


async def test_what_is_of_the_whole_host_stays_and_other_devices_go() -> None:
    async with running() as one:
        assert "NO_SOCKET" in one.text() and "FULL_RING" in one.text()
        text = await find(one, "device eth1")
        assert "NO_SOCKET" in text and "FULL_RING" not in text
        text = await one.press("6")
        assert "NET_RX" in text, "softirqs are of the host"
        assert "eth0" not in text
        logged = one.app.watched.findings.log
        assert any(isinstance(incident, Incident) and "vnet3" in incident.sentence for incident in logged), (
            "all is kept"
        )


async def test_samples_of_other_devices_go_and_come_back() -> None:
    async with running() as one:
        for device in ("vnet3", "eth1"):
            one.session.play(Scenario().frame("event", "kernel_drops", name="drop", fields={"device": device}).end())
        before = await one.press("8")
        assert "  eth1" in before and "  vnet3" in before
        await find(one, "device eth1")
        inside = await one.press("8")
        assert "  eth1" in inside and "  vnet3" not in inside
        assert "  vnet3" in await one.press("escape")


async def test_at_a_glance_one_vm_alone_has_its_cells() -> None:
    async with crowded((80, 24), 40) as one:
        await find(one, "vm 008")
        text = await one.press("a")
        assert "vm vm-008 at a glance" in text and "Queues of VMs · 4" in text
        assert "vm-008 vnet8 queue 0: " in text and "stuck" not in text


async def test_a_vm_without_a_row_has_the_devices_that_facts_name() -> None:
    """Its port is one of Open vSwitch with DPDK, and its disk lies on a device that another VM uses, too."""
    facts = {
        "vm/web-07/net/0/socket": FactData("/run/vhost0"),
        "vm/web-07/disk/0/on": FactData("sda"),
        "ovs/interface/vhost0/vhost-server-path": FactData("/run/vhost0"),
        "ovs/interface/vhost1/vhost-server-path": FactData("/run/vhost1"),
    }
    async with crowded((120, 40), 4) as one:
        one.app.watched.read_facts = lambda: facts
        text = await find(one, "vm web-07")
        assert "only vm web-07 (Esc)" in text
        scope = one.main.scope
        assert scope is not None
        assert [scope.has_labels("ovs_pmd", {"port": port}) for port in ("vhost0", "vhost1")] == [True, False]
        disks = [("web-07", "sda"), ("db-01", "sda"), ("web-07", "sdb")]
        assert [scope.has_labels("block_path", {"vm": vm, "device": device}) for vm, device in disks] == [
            True, False, True,
        ]  # fmt: skip
        assert [scope.has_labels("block_path", {"device": device}) for device in ("sda", "sdb")] == [True, False]
        await one.press("escape")
        await one.press("colon")
        assert "the VM on one page" in await one.type("web-07")
        await one.press("enter")
        assert isinstance(one.app.screen, VmScreen)


async def test_facts_that_come_late_widen_the_scope_that_is_chosen() -> None:
    told = threading.Event()

    def read() -> dict[str, FactData]:
        assert told.wait(LIMIT_S)
        return {"vm/vm-008/disk/0/on": FactData("sda")}

    async with crowded((80, 24), 40) as one:
        one.app.watched.read_facts = read
        await one.pilot.press("colon", "v", "m", "space", "0", "0", "8", "enter")
        await one.pilot.pause()
        scope = one.main.scope
        assert scope is not None and not scope.has_labels("block_path", {"device": "sda"})
        told.set()
        await one.settled()
        assert one.main.scope is not None and one.main.scope.has_labels("block_path", {"device": "sda"})


async def test_the_names_of_scopes_are_found_after_their_word_alone() -> None:
    async with crowded((80, 24), 40) as one:
        text = await find(one, "vm-008")
        assert "VM vm-008" in text and "only" not in text, "without the word it is the page"
