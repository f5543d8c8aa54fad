"""Measures the memory of the console with ten minutes of history of 200 VMs with four queues each. Checks one limit.

usage: many_vms.py [INTERVALS]      (600 of one second each, sent as fast as the console takes them)
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.console import PLAYED, _environment, _pss_kb, read_for
from tests.support.fake_collector import Player
from tests.support.terminal_process import TerminalProcess
from tests.support.tui.crowd import Crowd

LIMIT_MB = 120
PANES = "1234567890d"
COLLECTS = "NETCONSOLE_BENCH_INTERVALS"
"""Set in the environment of this same script where it is the collector."""
PACE_S = 0.02
LIMIT_S = 900.0


def collect(intervals: int) -> None:
    """Sends the frames, as a collector does."""
    player, crowd = Player(None), Crowd()
    for _ in range(intervals):
        player.play(crowd.interval().lines)
        time.sleep(PACE_S)
    sys.stdin.buffer.read()  # until the console has gone


def main() -> int:
    """Exit code 1 above the limit."""
    intervals = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    last = [f"00:{at // 60:02}:{at % 60:02}" for at in range(intervals - 4, intervals + 2)]
    with tempfile.TemporaryDirectory() as directory:
        environment = {**_environment(Path(directory)), COLLECTS: str(intervals)}
        command = (*PLAYED, str(Path(__file__).resolve()))
        with TerminalProcess(command, environment, 120, 40) as process:
            process.until("the last interval", lambda: any(text in process.text() for text in last), LIMIT_S)
            before_kb = _pss_kb(process.pid)
            for key in PANES:
                process.press(key)
                read_for(process, 1.0)
            after_kb = _pss_kb(process.pid)
    print(f"{intervals} intervals, 800 queues: {before_kb / 1024:.0f} MB PSS, after all panes {after_kb / 1024:.0f} MB")
    return int(after_kb / 1024 > LIMIT_MB)


if __name__ == "__main__":
    if COLLECTS in os.environ:
        collect(int(os.environ[COLLECTS]))
    else:
        sys.exit(main())
