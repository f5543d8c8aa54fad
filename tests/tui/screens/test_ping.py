"""The wizard for a ping, by keys: from who pings whom to the file with the answer, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from netconsole.base.errors import BadInput
from netconsole.compare import baseline
from netconsole.ping import breakdown, capture
from netconsole.run.ping_plan import NoVantagePoint, PingPlan
from netconsole.snapshot import document
from netconsole.tui.screens.ping_wizard import screen as ping
from netconsole.tui.screens.ping_wizard.screen import PingScreen
from netconsole.tui.screens.ping_wizard.state import traffic_of
from netconsole.tui.widgets.choice import Choice
from tests.support.ping import linked
from tests.support.tui.ping_wizard import CASE_A, DATA, FakeWatch, fill, make_up_places, opened
from tests.support.tui.running import Running, running


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, data of one's own, and places that a test can watch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    make_up_places(monkeypatch)
    return tmp_path


def step(one: Running) -> str:
    """The step in front."""
    screen = one.app.screen
    assert isinstance(screen, PingScreen)
    return screen.state.step


async def test_from_two_names_to_a_page_for_the_ticket_at_80_columns(here: Path) -> None:
    others = {role: CASE_A[role] for role in ("sender-vm", "receiver-vm")}
    async with running(size=(80, 24)) as one:
        text = await opened(one)
        assert "1 of 6: who pings whom" in text and "a VM's name" in text and "Esc leave" in text
        fill(one, **{"from": "web-07", "to": "192.0.2.9", "receiver-host": "ssh://root@b"})
        text = " ".join((await one.press("enter")).split())
        assert (
            "2 of 6" in text
            and "sender-host (here): measures between vnet3 and eth0" in text
            and "cost at each vantage point: about" in text
        )
        assert "receiver-host (ssh://root@b)" in text and "Not reached: sender-vm, receiver-vm." in text
        assert "ping -i 0.05 -c 100 -s 56 192.0.2.9" in text
        text = await one.press("enter")
        assert "3 of 6" in text and "20 answered" in text and "ssh asks for a password" in text and "20 sent" in text
        FakeWatch.made[0].is_over = True
        screen = one.app.screen
        assert isinstance(screen, PingScreen)
        screen._look()
        text = await one.settled()
        assert "4 of 6" in text and "captured: ping-" in text and "20 echoes" in text
        assert "--role receiver-vm --host ssh://root@HOST" in " ".join(text.split())
        [written] = here.glob("ping-*-sender-host.json")
        assert len(capture.load(written).packets) == 20 and written.stat().st_mode & 0o777 == 0o600
        for role, file in others.items():
            fill(one, file=file)
            text = await one.press("enter")
            assert f"ok {role}" in text
        text = await one.press("enter")
        assert "5 of 6" in text and "round trip 226.8" in text
        text = await one.press("end")
        assert "U_receiver = receiver_host" in text and "joining" not in text
        await one.press("enter")
        assert step(one) == "keep"
        fill(one, name="answer.html")
        text = await one.press("enter")
        assert "written to answer.html" in text and (here / "answer.html").read_text().startswith("<!DOCTYPE")
        text = await one.press("enter")
        assert "exists already" in text


@pytest.mark.parametrize("field", ping._HINTS)
def test_every_hint_fits_80_columns(field: str) -> None:
    assert len(ping._HINTS[field]) + 3 <= 80


async def test_what_is_typed_ahead_on_a_slow_host_gets_into_its_own_field() -> None:
    async with running(size=(80, 24)) as one:
        await opened(one)
        for key in ("a", "down", "b", "down", "c", "up", "d"):  # all of it is there before a field gets the first key
            one.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await one.settled()
        values = [one.app.screen.query_one(f"#field-{name}", Input).value for name in ("from", "to", "echoes")]
        assert values[0] == "a" and values[2] == "100 50msc" and "d" in values[1]


async def test_arrows_pressed_before_the_first_picture_are_not_lost() -> None:
    async with running(size=(80, 24)) as one:
        one.app.action_ping()
        for _ in range(2):  # the screen is in front, and has no field yet
            one.app.post_message(events.Key("down", None))
        await one.settled()
        assert one.app.screen.focused is one.app.screen.query_one("#field-echoes")
        await one.press("up", "up", "up")
        assert one.app.screen.focused is one.app.screen.query_one("#field-echoes"), "it goes round"


async def test_most_fields_come_when_they_are_asked_for_or_needed() -> None:
    async with running(size=(80, 24)) as one:
        text = await opened(one)
        assert "sender-host" not in text
        text = await one.press("down", "down")
        assert "↓ more: where each end runs" in text and "sender-host" not in text
        text = await one.press("down")
        assert "sender-host" in text and one.app.screen.focused is one.app.screen.query_one("#field-sender-vm")


async def test_where_no_end_is_found_the_form_asks_where_they_are_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ping, "look_around", lambda *_: None)

    def no_plan(*_: object) -> PingPlan:
        raise NoVantagePoint("192.0.2.1 is nowhere. " * 8)

    monkeypatch.setattr(ping, "plan", no_plan)
    async with running(size=(80, 24)) as one:
        await opened(one)
        fill(one, **{"from": "192.0.2.1", "to": "192.0.2.2"})
        text = await one.press("enter")
        assert one.app.screen.focused is one.app.screen.query_one("#field-sender-host")
        said = " ".join(text.split())
        assert "Neither end was found. Say in sender-host or receiver-host" in said and "--at" not in said
        assert said.count("192.0.2.1 is nowhere.") == 8, "nothing is cut"


async def test_the_cursor_goes_to_the_field_that_is_wrong() -> None:
    async with running(size=(80, 24)) as one:
        await opened(one)
        fill(one, **{"from": "a", "to": "b", "receiver-vm": "ftp://x"})
        assert 'found "ftp://x"' in await one.press("enter")
        assert one.app.screen.focused is one.app.screen.query_one("#field-receiver-vm")


@pytest.mark.parametrize(
    ("text", "count", "is_watch"), [("20 1s", 20, False), ("7", 7, False), ("watch", 100, True), ("watch 30", 30, True)]
)
def test_echoes_are_sent_or_only_watched(text: str, count: int, is_watch: bool) -> None:
    traffic, watch = traffic_of(text)
    assert (traffic.count, watch) == (count, is_watch)
    with pytest.raises(BadInput, match="expected a number and a time"):
        traffic_of(f"{text} x")


async def test_every_step_goes_back_and_what_was_entered_and_captured_stays() -> None:
    async with running(size=(80, 24)) as one:
        await opened(one)
        fill(one, **{"from": "web-07", "to": "192.0.2.9"})
        await one.press("enter", "enter")
        assert step(one) == "watch"
        await one.press("escape")  # ends the watching, and keeps what it saw
        assert step(one) == "files"
        await one.press("enter")
        assert step(one) == "result"
        for expected in ("files", "check", "ends"):
            await one.press("escape")
            assert step(one) == expected
        await one.press("escape")
        assert not isinstance(one.app.screen, PingScreen)
        await opened(one)
        assert one.app.screen.query_one("#field-from", Input).value == "web-07"
        assert len(one.app.screen.state.captures) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"from": "web-07"}, "to: missing: name both ends"),
        ({"from": "web-07", "to": "192.0.2.9", "sender-vm": "there"}, 'expected "here" or ssh://[USER@]HOST'),
        ({"from": "web-07", "to": "192.0.2.9", "echoes": "many"}, 'expected a number and a time such as "100 50ms"'),
        (
            {"from": "nobody", "to": "192.0.2.99"},
            "no QEMU process of this host has the name nobody",
        ),
    ],
)
async def test_a_mistake_is_one_line_and_the_step_stays(fields: dict[str, str], said: str) -> None:
    async with running() as one:
        await opened(one)
        fill(one, **fields)
        text = await one.press("enter")
        assert said in " ".join(text.split()) and step(one) == "ends"


async def test_files_alone_are_a_case_and_what_is_wrong_with_one_is_said(here: Path) -> None:
    (here / "half.json").write_bytes(Path(CASE_A["sender-vm"]).read_bytes()[:300])
    async with running() as one:
        await opened(one)
        await one.press("enter")
        assert step(one) == "files" and "there are none yet" in await one.press("enter")
        for file, said in (
            ("none.json", "no such file"),
            ("half.json", "not a ping capture"),
            ("sender-vm=", "names no"),
        ):
            fill(one, file=file)
            assert said in await one.press("enter") and step(one) == "files"
        for file in CASE_A.values():
            fill(one, file=file)
            await one.press("enter")
        assert "Without them" not in one.text()
        text = await one.press("enter")
        assert "226.8" in text and "-11.1" in text and step(one) == "result"


async def test_with_a_baseline_the_answer_is_the_difference_and_is_kept_in_every_form(here: Path) -> None:
    baseline.save("good", [Path(file) for file in CASE_A.values()])
    for file, one_capture in linked(10):
        (here / file).write_bytes(capture.encode(one_capture))
    (here / "taken.json").write_bytes((DATA / "snapshot-version-1.json").read_bytes())
    async with running() as one:
        await opened(one)
        fill(one, baseline="nothing")
        await one.press("enter")
        for role in CASE_A:
            fill(one, file=f"{role}.json")
            await one.press("enter")
        await one.press("enter")
        assert "no baseline of this name" in one.text() and step(one) == "files"
        await one.press("escape")
        fill(one, baseline="good")
        await one.press("enter")
        text = await one.press("enter")
        assert "COMPARED WITH THE BASELINE" in text and "226.8" in text
        await one.press("enter")
        said: list[str] = []
        for kind, name in (
            ("json", "a.json"),
            ("snapshot", "taken.json"),
            ("baseline", "today"),
            ("baseline", "today"),
            ("md", "a.md"),
        ):
            one.app.screen.query_one("#field-as", Choice).choose(kind)
            fill(one, name=name)
            text = await one.press("enter")
            assert "kept as" in text or "written" in text
            said.append(text)
        assert ["(replaced that of " in text for text in said] == [False, False, False, True, False]
        found = breakdown.load(here / "a.json")
        assert found.comparison is not None and found.comparison.baseline == "good"
        assert document.load(here / "taken.json").ping is not None
        assert len(baseline.load("today").ping) == 4 and (here / "a.md").read_text().startswith("# ")
        assert json.loads((here / "a.json").read_text())["schema"] == breakdown.SCHEMA


async def test_the_end_of_the_console_ends_the_watching() -> None:
    async with running() as one:
        await opened(one)
        fill(one, **{"from": "web-07", "to": "192.0.2.9"})
        await one.press("enter", "enter")
        assert step(one) == "watch"
    assert FakeWatch.made[0].closed
