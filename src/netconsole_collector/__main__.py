"""The collector's command line: `python3 -m netconsole_collector`; docs/design/collector.md has other ways."""

import argparse
import sys
from typing import List, Optional

from netconsole_collector import VERSION
from netconsole_collector.compile.job import find_python


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the exit status: 0 for success, 2 for a wrong command line, 3 when nothing can run (--doctor)."""
    parser = argparse.ArgumentParser(
        prog="netconsole_collector", description="Reads commands on standard input, writes frames on standard output."
    )
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument(
        "--worker-python", metavar="PATH", help="interpreter that has bcc (default: the system's python3)"
    )
    parser.add_argument(
        "--keep-compiled", metavar="DIR", help="keep compiled programs there for the next start (default: nowhere)"
    )
    parser.add_argument(
        "--compiled-elsewhere", action="store_true", help="compile nothing: every load command brings its programs"
    )
    parser.add_argument(
        "--silence-ends", metavar="SECONDS", type=float, help="end when nothing was read for so long: the line broke"
    )
    parser.add_argument(
        "--asked-first", action="store_true", help="say nothing but answers until the first command that is no question"
    )
    parser.add_argument("--doctor", action="store_true", help="try everything once, print one JSON document, and end")
    parser.add_argument(
        "--progress", action="store_true", help="with --doctor: a line for each probe, before and after"
    )
    options = parser.parse_args(arguments)
    python = None if options.compiled_elsewhere else find_python(options.worker_python)
    if options.doctor:
        from netconsole_collector.doctor import doctor

        return doctor(sys.stdin, sys.stdout, python, options.keep_compiled, options.silence_ends, options.progress)
    from netconsole_collector.collector import Collector

    return Collector(0, 1, python, options.keep_compiled, options.silence_ends, options.asked_first).run()


def run() -> None:
    """The entry point of a zipapp."""
    sys.exit(main())


if __name__ == "__main__":
    run()
