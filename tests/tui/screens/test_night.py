"""The way of someone who was woken: see, investigate, copy, write the ticket, leave. Every key is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netconsole.escalation.investigation import Investigation
from netconsole.snapshot import document
from netconsole.telemetry import frames
from netconsole.telemetry.tables import RowKey
from tests.support.tui.running import Running, running


class Asked:
    """Investigates by three samples that it has already."""

    investigation: Investigation | None = None

    def investigate(self, probe: str, labels: RowKey) -> str:
        one = self.investigation = Investigation(probe, labels, "device=vnet3", began_s=0.0)
        fields: dict[str, frames.Scalar | list[str]]
        fields = {"source": "192.0.2.9", "source_port": 4, "target_port": 53, "protocol": "UDP", "reason": "FULL_RING"}
        for number in range(3):
            flow: dict[str, frames.Scalar | list[str]] = {**fields, "target": "192.0.2.1" if number else "\x1b[2Jx"}
            event = frames.Event(seq=number, wall_ns=1, mono_ns=1, probe=probe, name="drop", fields=flow)
            one.take([event])
        return "30 s, at most 50 samples/s and 1 % of a core: investigating device=vnet3; i ends it"


class Counting(Running):
    """Counts the keys."""

    pressed = 0

    async def press(self, *keys: str) -> str:
        self.pressed += len(keys)
        return await super().press(*keys)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_from_the_finding_to_the_ticket_in_under_thirty_keys(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Asked()
    async with running(size, investigator=asked) as plain:
        one = Counting(plain.app, plain.pilot, plain.session)
        assert "FULL_RING" in one.text()
        text = await one.press("down", "i")
        assert "30 s, at most 50 samples/s and 1 % of a core: investigating device=vnet3" in text
        text = await one.play()
        assert "device=vnet3; 30 s left" in text and "3 samples, not all that happened" in text
        assert re.search(r" 2 +66.7 ?%  192.0.2.9:4 → 192.0.2.1:53", text) and "UDP 53" in text
        assert "\x1b" not in text
        await one.press("y")
        assert "FULL_RING" in one.app.clipboard
        await one.press("s")
        await one.type("ring full")
        await one.press("enter")
        await one.play(11)
        assert "snapshot written to netconsole-" in one.text(), "the page below the dialog says it"
        (file,) = tmp_path.glob("*.json")
        taken = document.load(file)
        assert taken.note == "ring full" and taken.incidents
        await one.press("q", "q", "q")  # back, then twice: the investigation goes on
        assert not one.app.is_running and one.app.return_code in (None, 0)
        assert one.pressed < 30


async def test_where_no_probe_samples_it_says_so() -> None:
    async with running(investigator=Asked()) as one:
        assert "i investigate" in await one.press("4")
        one.session.state.probes["kernel_drops"].mode = "details"
        assert "its probe samples already: see Events (8)" in await one.press("4", "i")
        await one.press("6")
        one.main.turn_to(one.table("link_rates-links"))
        assert "no probe that shows this can sample it" in await one.press("i")
        assert "i investigate" not in await one.press("down"), "nor is it offered"
        assert "i investigate" not in await one.press("enter")


async def test_where_there_is_no_row_it_says_so_until_the_next_key() -> None:
    async with running((80, 24), investigator=Asked()) as one:
        await one.press("4", "slash", *"zzz", "enter")
        assert "choose a row first" in (await one.press("i")).splitlines()[-1]
        assert "s snapshot" in (await one.press("down")).splitlines()[-1]


async def test_a_message_on_a_page_goes_with_the_next_key_too() -> None:
    async with running(investigator=Asked()) as one:
        assert "copied" in (await one.press("enter", "y")).splitlines()[-1]
        assert "Esc q back" in (await one.press("down")).splitlines()[-1]
