"""A host of 200 VMs with four queues each: each VM and each device is found in six keys at most."""

from __future__ import annotations

from netconsole.tui.screens.find import found
from tests.support.tui.crowd import Crowd
from tests.support.tui.played import PlayedSession
from tests.support.tui.running import Running, running_as

KEYS = 6


async def test_each_vm_and_each_device_is_found_in_six_keys() -> None:
    crowd, session = Crowd(), PlayedSession()
    for _ in range(2):
        session.play(crowd.interval())
    async with running_as(Running, (80, 24), session) as one:
        entries = list(one.app.findable(one.app.screen))
        for vm in range(crowd.vms):
            for text, wanted in ((f"{vm:03}", f"vm-{vm:03}"), (f"t{vm}", f"vnet{vm}")):
                assert len([":", *text, "enter"]) <= KEYS
                first = found(entries, text)[0]
                assert wanted in first.name.split(), text
        text = await one.press("colon", "1", "3", "7", "enter")
        assert "VM vm-137" in text
