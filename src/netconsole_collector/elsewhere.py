"""The collector on a far host: whatever is compiled comes with the load commands. It takes 2 MB less than __main__."""

from typing import List

from netconsole_collector.collector import Collector


def main(arguments: List[str]) -> int:
    """The argument: seconds of silence after which it ends. Returns the exit status."""
    return Collector(0, 1, None, None, float(arguments[0])).run()
