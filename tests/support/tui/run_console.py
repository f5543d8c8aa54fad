"""Runs the console on this terminal with a fake collector, for the tests on a pseudo terminal.

python tests/support/tui/run_console.py SCENARIO.jsonl | COLLECTOR.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from netconsole.probes import catalogue
from netconsole.profile import profile
from netconsole.session.live import LiveSession
from netconsole.telemetry.request import ProbeRequest
from netconsole.tui.run import run
from tests.support.commanded_host import CommandedHost

HERE = Path(__file__).parent
FAKE = HERE.parent / "fake_collector.py"


def main() -> int:
    """Show what is named on the command line."""
    played = Path(sys.argv[1])
    command = [sys.executable, str(played)] if played.suffix == ".py" else [sys.executable, str(FAKE), str(played)]
    # One request, so that the session starts its collector; the other probes are what the scenario says.
    session = LiveSession(CommandedHost(command), [ProbeRequest("kernel_drops")], environment=dict(os.environ))
    budget = profile.Budget(kernel_cpu_pct=2.0, user_cpu_pct=200.0, memory_mb=120.0)
    return run(session, profile.Profile("summary", budget=budget), catalogue.load_all([HERE / "probes"]))


if __name__ == "__main__":
    sys.exit(main())
