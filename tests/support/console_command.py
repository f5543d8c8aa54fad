"""The console as a process of its own, with the Python that runs the tests."""

import sys

COMMAND = (sys.executable, "-c", "from netconsole.cli.main import main; main()")
