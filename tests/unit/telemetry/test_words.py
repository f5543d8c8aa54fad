"""One set of words for states: the page of the console has them all, and every place that shows a state takes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from netconsole.findings.match import RANK, Level
from netconsole.run.doctor import ProbeResult, Report
from netconsole.run.doctor_text import brief, verbose
from netconsole.telemetry.frames import ProbeStatus
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.words import LEVELS, PROBE_STATES, probe_state
from netconsole.tui.scene.scene import state_word
from netconsole.tui.widgets.look import LEVEL_TONES

ROOT = Path(__file__).parents[3]
CONSOLE = (ROOT / "docs/use/console.md").read_text()


def test_the_page_says_what_each_level_means() -> None:
    (row,) = [line for line in CONSOLE.splitlines() if line.startswith("| `ok` · ")]
    marks, meanings = row.strip("| ").split(" | ")
    words = dict(zip(re.findall("`(.+?)`", marks), meanings.partition(".")[0].split(" · "), strict=True))
    assert words == dict(LEVELS)
    assert set(LEVEL_TONES) == set(LEVELS) and set(RANK) == set(get_args(Level)) <= set(LEVELS)


def test_the_page_has_the_words_of_all_states_of_a_probe() -> None:
    (text,) = [one for one in CONSOLE.split("\n\n") if one.startswith("A probe is ")]
    assert re.findall("`(.+?)`", text.partition(". Screens")[0]) == [probe_state(one) for one in get_args(ProbeStatus)]
    assert set(PROBE_STATES) == set(get_args(ProbeStatus))


@pytest.mark.parametrize("status", get_args(ProbeStatus))
def test_screens_and_doctor_say_the_same_of_a_probe(status: ProbeStatus) -> None:
    state = ProbeState("one", "collector")
    state.status = status
    report = Report({}, {}, {"one": ProbeResult(status, "because")})
    word = probe_state(status)
    assert state_word(state)[0] == word
    assert re.search(rf"^{re.escape(word)} +.*one", brief(report), re.MULTILINE)
    assert f" {word}" in verbose(report)


def test_no_other_file_has_words_of_its_own_for_levels() -> None:
    """A second table would say something else one day."""
    for path in (ROOT / "src/netconsole").rglob("*.py"):
        if path.name not in ("words.py", "look.py"):
            assert not re.search(r'\("!!", "!", "\?"|"! degraded"|"\? unsupported"|"!! failed"', path.read_text()), path
