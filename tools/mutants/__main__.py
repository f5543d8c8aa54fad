"""Which single-line faults in a pure core would no test notice? `make mutants`, or `make mutants FILE=src/…/x.py`.

Or in the C of a probe: `make mutants FILE=probes/…/probe.bpf.c`, as root.

Prints the score of each file and what survived (docs/design/testing.md). Without FILE: all cores. Ends with 1 when less
than GOAL of a file is noticed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.mutants.changes import mutants
from tools.mutants.cores import CORES, SAME, tests_of
from tools.mutants.trial import Trial

GOAL_PCT = 85
SAMPLE = 60
"""Mutants of one file in a run of minutes: the same ones in every run."""


def try_file(file: str, sample: int, tests: Sequence[str] = ()) -> bool:
    """Try the mutants of one file and print the result: whether enough were noticed. ``tests``: by these alone."""
    began = time.monotonic()
    found = list(mutants(Path(file).read_text()))
    same = SAME.get(file, {})
    differing = [one for one in found if one.name not in same]
    unknown = same.keys() - {one.name for one in found}
    chosen = differing
    if sample and sample < len(differing):
        chosen = sorted(random.Random(file).sample(differing, sample), key=lambda one: one.lines.start)
    survivors = chosen
    for some in [tests] if tests else tests_of(file):
        survivors = Trial(Path(file), some).survivors(survivors) if survivors else []
    noticed = len(chosen) - len(survivors)
    pct = 100 * noticed / len(chosen) if chosen else 100.0
    tried = f"{noticed} of {len(chosen)} noticed"
    drawn = f", drawn from {len(differing)}" if len(chosen) < len(differing) else ""
    left = f", {len(found) - len(differing)} change nothing" if len(found) > len(differing) else ""
    print(f"{pct:3.0f} % {file}: {tried}{drawn}{left} ({time.monotonic() - began:.0f} s)")
    for one in survivors:
        print(f"      {file}:{one.lines.start} {one.name}")
    for name in sorted(unknown):
        print(f"      listed as changing nothing, and not there: {name}")
    return pct >= GOAL_PCT and not unknown


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="files of src/; all cores without")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="mutants of one file, 0 for all of them")
    parser.add_argument("--quick", action="store_true", help="of a probe: only tests that run its programs themselves")
    parser.add_argument("--tests", nargs="+", default=(), metavar="TESTS", help="of one file of src/: by these alone")
    asked = parser.parse_args()
    files = asked.files or CORES
    if len(files) == 1 and files[0].startswith("probes/"):
        from tools.mutants.c_trial import try_c  # imports of the console what would then be no mutant any more

        return 0 if try_c(files[0], asked.sample, asked.quick) >= GOAL_PCT else 1
    if len(files) == 1:
        return 0 if try_file(files[0], asked.sample, asked.tests) else 1
    failed = 0
    for file in files:  # each in a process of its own: what one has imported is in nobody's way
        command = [sys.executable, "-m", "tools.mutants", "--sample", str(asked.sample), file]
        command += ["--quick"] if asked.quick else []
        failed |= subprocess.run(command).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
