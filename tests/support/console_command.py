"""The console as a process of its own, with the Python that runs the tests."""

import sys
from pathlib import Path

COMMAND = (sys.executable, "-c", "from netconsole.cli.main import main; main()")
UNBOUNDED = ("--profile", str(Path(__file__).parent / "data/unbounded.toml"))
"""For tests that count beside others: their flood may be more than the budget, and a detached probe counts nothing."""
