"""A device or a VM alone: what is shown is narrowed, the header says so once, one key takes it back."""

from __future__ import annotations

import pytest

from netconsole.findings.incident import Incident
from tests.support.fake_collector import Scenario
from tests.support.tui.running import Running, running
from tests.tui.screens.test_glance import crowded


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


async def test_the_names_of_scopes_are_found_after_their_word_alone() -> None:
    async with crowded((80, 24), 40) as one:
        text = await find(one, "vm-008")
        assert "VM vm-008" in text and "only" not in text, "without the word it is the page"
