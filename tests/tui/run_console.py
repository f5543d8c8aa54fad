"""Runs the console on this terminal with a scenario in place of a collector: what the pty tests look at.

python tests/tui/run_console.py SCENARIO.jsonl
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from netconsole import probes, profiles
from netconsole.live import LiveSession
from netconsole.tui.app import run

FAKE = Path(__file__).parents[1] / "fake_collector.py"


def main() -> int:
    """Show the scenario named on the command line."""
    command = [sys.executable, str(FAKE), sys.argv[1]]
    session = LiveSession(command, [], environment=dict(os.environ))
    budget = profiles.Budget(kernel_cpu_pct=2.0, user_cpu_pct=200.0, memory_mb=120.0)
    return run(session, profiles.Profile("summary", budget=budget), probes.load_all([Path(__file__).parent / "probes"]))


if __name__ == "__main__":
    sys.exit(main())
