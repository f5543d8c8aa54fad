"""From a stuck queue of one of 200 VMs to its ticket, by keys alone, over a line of 4 kB/s."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.poor_line import PoorLine
from tests.support.terminal_process import TerminalProcess
from tests.support.tui import crowd

pytestmark = pytest.mark.terminals

SOURCE = Path(__file__).parents[3] / "src"
MAX_BYTES = 500_000
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*[349][0-7][;m]")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crowd") / "crowd.ncrec"
    crowd.record(path, 40)
    assert path.stat().st_size < MAX_BYTES
    return path


@pytest.mark.parametrize(
    ("size", "terminal"),
    [
        ((80, 24), {"TERM": "xterm-256color", "LANG": "C.UTF-8"}),
        ((120, 40), {"TERM": "xterm-256color", "LANG": "C.UTF-8"}),
        ((80, 24), {"TERM": "vt100", "LC_ALL": "C", "NO_COLOR": "1"}),
    ],
)
def test_from_one_of_200_vms_to_its_ticket_in_under_twenty_keys(
    size: tuple[int, int], terminal: dict[str, str], recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"PYTHONPATH": str(SOURCE), "XDG_CONFIG_HOME": str(tmp_path), **terminal}
    program = "from netconsole.cli.main import main; main()"
    command = [sys.executable, "-c", program, "replay", str(recording)]
    with TerminalProcess(command, environment, *size) as console:
        line = PoorLine(console)
        line.until("STANDS OUT")
        line.press("}")
        line.until("vm-137 vnet137 q2: its ring is full: 500 packets/s lost")
        line.until("since 09:00:09")
        line.press("\r")
        line.until("Tap queues: vm-137")
        line.press("Z")
        line.until("a step is 1 s")
        line.press("\x1b")
        line.until_gone("a step is 1 s")
        line.press("s")
        line.until("Snapshot  of the recording")
        line.press("\x1b[B", "\x1b[D")  # the next field, the form before
        line.until(".html")
        line.press("\r")
        line.until("snapshot written to")
        assert line.keys < 20
        assert terminal["TERM"] != "vt100" or not COLOUR.search(console.output)
    (file,) = tmp_path.glob("*.html")
    page = file.read_text()
    assert "vm-137 vnet137 q2: its ring is full" in page and "<svg" in page
