"""The dialogs over the main screen: snapshot, facts, choice of a baseline."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from netconsole.compare import baseline
from netconsole.snapshot import document
from netconsole.tui.screens.baselines import BaselinesScreen
from netconsole.tui.screens.pages.facts import FactsScreen
from netconsole.tui.screens.snapshot import SnapshotScreen, default_file
from netconsole.tui.widgets.choice import Choice
from tests.support.tui.played import PlayedSession
from tests.support.tui.running import Running, running
from tests.support.tui.scenes import host


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, and data of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def fill(one: Running, **values: str) -> None:
    """Put texts into the fields of the snapshot dialog."""
    for name, value in values.items():
        field = one.app.screen.query_one(f"#field-{name}")
        if isinstance(field, Input):
            field.value = value
        elif isinstance(field, Choice):
            field.choose(value)


async def test_what_is_typed_at_once_after_an_arrow_belongs_into_the_next_field() -> None:
    """As on a slow host or line: all keys are there before the first field has seen one."""
    async with running() as one:
        await one.press("s")
        for key in ("a", "up", "0", "down", "b", "down", "up", "c"):
            one.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await one.settled()
        values = [one.app.screen.query_one(f"#field-{name}", Input).value for name in ("time", "note")]
        assert values == ["10s0", "abc"]


async def test_a_snapshot_is_measured_from_now_with_a_note_and_the_time_that_remains() -> None:
    async with running() as one:
        await one.press("s")
        await one.type("slow since 9")
        fill(one, time="5s")
        file = Path(one.app.screen.query_one("#field-file", Input).value)
        assert file.name.startswith("netconsole-hv-017-") and file.suffix == ".json"
        await one.press("enter")
        text = await one.play(3)
        assert "measuring" in text and " %, " in text and "s left" in text
        assert not file.exists()
        text = await one.play(2)
        assert f"snapshot written to {file.name}" in text
        taken = document.load(file)
        assert (taken.note, taken.duration_s) == ("slow since 9", 5.0)
        assert taken.facts["cpu/governor"].why == "no frequency scaling here"
        assert file.stat().st_mode & 0o777 == 0o600
        assert one.app.watched.snapshots == [file.absolute()]


class ReadsWholeLater(PlayedSession):
    """Has counters that are read less often, and reads all of them when the test says so."""

    def __init__(self) -> None:
        super().__init__(host(12))
        self.read = threading.Event()

    def read_whole(self) -> threading.Event:
        return self.read


async def test_a_snapshot_begins_when_all_counters_were_read_once(here: Path) -> None:
    session = ReadsWholeLater()
    async with running(session=session) as one:
        await one.press("s")
        fill(one, time="5s", file="x.json")
        await one.press("enter")
        assert "reading all counters once" in await one.play(6)
        session.read.set()
        assert "s left" in await one.play(3)
        await one.play(3)
        assert document.load(here / "x.json").duration_s == 5.0


async def test_without_a_time_it_holds_everything_since_the_start() -> None:
    async with running() as one:
        await one.press("s")
        fill(one, time="", file="all.md")
        await one.press("enter")
        text = Path("all.md").read_text()
        assert text.startswith("# netconsole snapshot of hv-017")
        assert one.app.screen is one.app.main


async def test_the_form_and_the_ending_of_the_file_follow_each_other() -> None:
    async with running() as one:
        await one.press("s", "down")
        assert isinstance(one.app.focused, Choice)
        text = await one.press("left")
        assert "[html]" in text
        box = one.app.screen.query_one("#field-file", Input)
        assert box.value.endswith(".html")
        box.value = "ticket.md"
        assert "[md]" in await one.settled()


@pytest.mark.parametrize("wanted", ["yes", "no"])
async def test_what_commands_said_is_in_it_where_it_is_wanted(here: Path, wanted: str) -> None:
    async with running() as one:
        await one.press("s")
        assert not one.app.screen.query("#field-commands"), "none was run"
        await one.press("escape")
        one.app.watched.ran["ip a"] = document.CommandData("2026-11-02T20:59:00Z", "ip a", "1: lo\n", 0)
        await one.press("s")
        fill(one, time="", file="ticket.json", commands=wanted)
        await one.press("enter")
        said = document.load(here / "ticket.json").commands
        assert [command.output for command in said or ()] == ["1: lo\n"] * (wanted == "yes")


async def test_redacted_it_names_nobody(here: Path) -> None:
    async with running() as one:
        await one.press("s")
        fill(one, time="", file="ticket.json", redact="yes")
        await one.press("enter")
        assert "hv-017" not in (here / "ticket.json").read_text()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("time", "soon", 'expected a time such as 10s or 2m, found "soon"'),
        ("time", "9000h", "expected a time"),
        ("file", "", "missing"),
        ("file", "there.json", "exists already"),
        ("file", "nowhere/x.json", "no such directory"),
        ("file", "data", "is a directory"),
        ("file", "~no-such-user/x.json", "no such user"),
        ("file", "x" * 300 + ".json", "too long"),
    ],
)
async def test_what_cannot_be_is_one_line_before_anything_is_measured(
    here: Path, field: str, value: str, said: str
) -> None:
    (here / "there.json").write_text("mine")
    (here / "data").mkdir()
    async with running() as one:
        await one.press("s")
        fill(one, **{field: value})
        text = await one.press("enter")
        screen = one.app.screen
        assert isinstance(screen, SnapshotScreen) and screen.step == "asking"
        assert said in text
        assert "Enter" in await one.press("escape")
        assert (here / "there.json").read_text() == "mine"


async def test_what_cannot_be_written_is_one_line_and_was_not_measured_in_vain(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as one:
        await one.press("s")
        fill(one, time="", file="gone/x.json")
        (here / "gone").mkdir()

        def gone_once_it_was_asked(*_: object) -> bool:
            (here / "gone").rmdir()
            return True

        monkeypatch.setattr("netconsole.tui.screens.snapshot.os.access", gone_once_it_was_asked)
        text = await one.press("enter")
        assert "press Enter to try again with the same figures" in text
        fill(one, file="x.json")
        monkeypatch.undo()
        monkeypatch.chdir(here)
        await one.press("enter")
        assert document.load(here / "x.json").probes


async def test_a_defect_while_it_is_written_is_said_and_nothing_is_lost(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as one:
        await one.press("s")
        fill(one, time="", file="x.json")
        with monkeypatch.context() as broken:
            broken.setattr(one.app.screen, "_write", None)
            text = await one.press("enter")
        assert "a bug in netconsole, snapshot.py line" in text and "press Enter to try again" in text
        await one.press("enter")
        assert document.load(here / "x.json").probes


async def test_escape_while_measuring_writes_nothing(here: Path) -> None:
    async with running() as one:
        await one.press("s")
        await one.press("enter")
        await one.play(2)
        await one.press("escape")
        await one.play(12)
        assert [path for path in here.iterdir() if path.is_file()] == []


def test_the_name_of_a_host_is_no_path() -> None:
    assert "/" not in default_file("../../etc/x y", "json")
    assert default_file("", "md").startswith("netconsole-2")


async def test_every_fact_has_its_source_and_an_unknown_one_its_reason() -> None:
    async with running() as one:
        text = await one.press("f")
        assert isinstance(one.app.screen, FactsScreen)
        assert "Facts of the host · 3, 1 unknown" in text
        assert "? unknown: no frequency scaling here" in text
        assert "ethtool -k" in text and "nic/[bold]x/offload/rx-gro" in text
        await one.press("slash")
        text = await one.type("offload")
        assert "1 of 3" in text and "cpu/governor" not in text
        await one.press("enter", "escape")
        assert isinstance(one.app.screen, FactsScreen), "the filter goes first"
        await one.press("escape")
        assert one.app.screen_stack[-1] is one.main


async def test_a_defect_while_facts_are_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise RuntimeError("[bold]of nobody")

    async with running() as one:
        monkeypatch.setattr(one.app.watched, "read_facts", read)
        text = await one.press("f")
        assert "a bug in netconsole, test_dialogs.py line" in text and "RuntimeError: [bold]of nobody" in text


async def test_without_facts_it_says_so() -> None:
    async with running(facts=None) as one:
        assert "not known" in await one.press("f")


async def test_a_baseline_is_chosen_from_a_list_that_says_what_it_is_good_for(here: Path) -> None:
    async with running() as one:
        await one.press("s")
        fill(one, time="", file="run.json")
        await one.press("enter")
        baseline.save("quiet", [here / "run.json"] * 3)
        text = await one.press("b")
        assert isinstance(one.app.screen, BaselinesScreen)
        assert "quiet" in text and "the same profile: summary" in text and "variation known from 3 runs" in text
        await one.press("enter")
        assert one.app.comparison is not None and one.app.comparison.reference.name == "quiet"
        text = await one.press("b")
        assert "no baseline" in text and "quiet (in use)" in text
        await one.press("home", "enter")
        assert one.app.comparison is None


async def test_no_baselines_and_bad_ones_are_said(here: Path) -> None:
    async with running() as one:
        assert "no baselines yet; netconsole baseline save NAME FILE" in await one.press("b")
        await one.press("escape")
        folder = here / "data" / "netconsole" / "baselines"
        folder.mkdir(parents=True)
        (folder / "bad.json").write_text("{")
        assert "this file is no baseline" in await one.press("b")
        text = await one.press("enter")
        assert "this file is no baseline" in text and one.app.comparison is None
