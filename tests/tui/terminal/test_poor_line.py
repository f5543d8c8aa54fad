"""The way of someone who was woken, on the poorest terminal there is: vt100, no UTF-8, 80x24, 4 kB/s."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.poor_line import PoorLine
from tests.support.terminal_process import TerminalProcess
from tests.support.tui.scenes import for_ever

pytestmark = pytest.mark.terminals

PROGRAM = Path(__file__).parents[2] / "support/tui/run_console.py"


def test_from_the_finding_to_the_ticket_on_the_poorest_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = for_ever().save(tmp_path / "host.jsonl")
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    source = str(PROGRAM.parents[3] / "src")
    environment |= {"TERM": "vt100", "LC_ALL": "C", "PYTHONPATH": source, "XDG_CONFIG_HOME": str(tmp_path)}
    with TerminalProcess([sys.executable, str(PROGRAM), str(scenario)], environment, 80, 24) as console:
        line = PoorLine(console)
        line.until("FULL_RING")
        line.press("\r")  # the finding's page
        line.until("Esc q back")
        line.press("y")
        line.until("no clipboard here; finding: ")
        line.press("\x1b")
        line.until("STANDS OUT")
        line.press("s")
        line.until("Enter measure and write")
        line.press(*"ring full", "\r")
        line.until("written")
        line.press("q", "q")
        console.wait(reading=True)
        assert console.status == 0 and bytes(console.output).isascii() and line.keys < 30
    (file,) = tmp_path.glob("*.json")
    # The scenario begins again and again, so its totals are none of a real host.
    taken = json.loads(file.read_text())
    assert taken["note"] == "ring full" and taken["incidents"]
