"""The console's own priority: raised where many wait for a CPU, and put back however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netconsole.base import priority
from netconsole.base.priority import RUNNING, STARTING, USUAL, OwnPriority
from netconsole.cli.start import opens_console


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "loadavg"
    monkeypatch.setattr(priority, "_LOAD", str(file))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return file


def test_it_is_raised_when_crowded_and_lowered_when_calm_again(load: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def take(self: OwnPriority, nice: int, _pids: object) -> None:
        taken.append(nice)
        self.nice = nice

    monkeypatch.setattr(OwnPriority, "_take", take)
    own = OwnPriority()
    for wanting in ("7/300", "8/300", "5/300", "3/300", "3/300", "nonsense"):
        load.write_text(f"9.00 9.00 9.00 {wanting} 77\n")
        own.look(STARTING if not taken else RUNNING)
    assert taken == [STARTING, RUNNING, USUAL]


def test_without_leave_nothing_changes(load: Path) -> None:
    load.write_text("9.00 9.00 9.00 900/900 77\n")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    own = OwnPriority()
    own.look(RUNNING, [os.getpid()])
    assert (own.nice, os.getpriority(os.PRIO_PROCESS, 0)) == (USUAL, before)


def test_what_the_command_has_raised_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    for said, nice in ((str(here), here), ("-77", USUAL)):
        monkeypatch.setenv(priority.RAISED, said)
        own = OwnPriority()
        own.begin()
        assert own.nice == nice and priority.RAISED not in os.environ


RAISED = """
import os, signal, sys
from netconsole.base import priority
priority._shares_among_sessions = lambda: True
own = priority.OwnPriority()
os.setsid()
if os.fork() == 0:
    own._may = True
    own._take(priority.RUNNING, [])
    print(open("/proc/self/autogroup").read().split()[-1], os.getpriority(os.PRIO_PROCESS, 0), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
file = "/proc/self/autogroup"
while open(file).read().split()[-1] != "0":
    pass
print("put back")
"""


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/proc/self/autogroup").exists(), reason="needs root and autogroups")
def test_the_session_has_its_weight_back_after_kill_9() -> None:
    command = [sys.executable, "-c", RAISED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [f"{RUNNING} {RUNNING}", "put back"]


@pytest.mark.parametrize(
    ("words", "opens"),
    [
        ("", True),
        ("--profile summary", True),
        ("replay x.ncr", True),
        ("--help", False),
        ("-h", False),
        ("--version", False),
        ("snapshot --duration 1s", False),
        ("ping run a b", False),
    ],
)
def test_which_command_lines_open_the_console(words: str, opens: bool) -> None:
    assert opens_console(words.split()) is opens
