"""Runs the tests that prove a probe on a copy of the project, once for each fault in a file of the probe's C.

What does not compile, or is refused by the verifier, is no program: nobody has to notice it, and it does not count.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netconsole.base.readers import read_toml
from tests.support.proofs import proofs
from tools.mutants.c_code import Fault, faults

SAME: Any = read_toml(Path(__file__).with_name("same-c.toml"))
"""By file: the faults that nobody can notice, each with the reason."""
COPIED = ("src", "probes", "profiles", "tests", "tools", "pyproject.toml")
CONTEXTS = "tests/live/contexts"
"""Tests that run a probe's programs themselves. They come first: a second for each."""
OF_EACH_PROBE = (f"{CONTEXTS}/test_events.py::test_a_ring_that_nobody_reads_takes_what_it_has_room_for",)
"""Tests with a parameter for each probe."""
LIMIT_S = 300.0
_NO_PROGRAM = ("the kernel refused it", "does not compile", "is not compiled on this kernel", "took longer than")
_PASSED, _FAILED = 0, 1


class Copy:
    """The project in another place, where a file may be changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in COPIED:
            place = Path(name)
            if place.is_dir():
                shutil.copytree(place, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(place, directory / name)

    def is_noticed(self, file: str, text: str, tests: Sequence[str]) -> bool | None:
        """Whether one of the tests fails with this text of the file; None when it is no program."""
        (self._directory / file).write_text(text)
        command = [sys.executable, "-m", "pytest", "-xq", "--reruns", "0", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._directory / "src")}
        try:
            done = subprocess.run(
                command, cwd=self._directory, env=environment, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in (_PASSED, _FAILED):
            raise RuntimeError(f"pytest could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        if any(words in done.stdout for words in _NO_PROGRAM):
            return None
        return done.returncode == _FAILED


def tests_of(probe: str, is_quick: bool) -> list[str]:
    """Those that run its programs themselves, then its live tests, then others that say that they prove something."""
    marked = {test for tests in proofs().get(probe, {}).values() for test in tests if test.startswith("tests/live/")}
    own = [
        place for place in (f"{CONTEXTS}/test_{probe}.py", f"tests/live/probes/test_{probe}.py") if Path(place).exists()
    ]
    others = {test for test in marked if test.partition("::")[0] not in own}
    chosen = own + sorted(f"{test}[{probe}]" if test in OF_EACH_PROBE else test for test in others)
    return [test for test in chosen if test.startswith(CONTEXTS)] if is_quick else chosen


def try_c(file: str, sample: int, is_quick: bool) -> float:
    """Tries the faults of a file and prints what nobody notices; the percentage that was noticed."""
    began = time.monotonic()
    probe = Path(file).parent.name
    text = Path(file).read_text()
    same = SAME.get(file, {})
    found = [one for one in faults(text) if one.name not in same]
    chosen = found
    if sample and sample < len(found):
        chosen = sorted(random.Random(file).sample(found, sample), key=lambda one: one.number)
    tests = tests_of(probe, is_quick)
    survivors: list[Fault] = []
    noticed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Copy(Path(directory))
        if not tests or copy.is_noticed(file, text, tests) is not False:
            raise SystemExit(f"{file}: its tests do not pass as it is, or there are none")
        for one in chosen:
            answer = copy.is_noticed(file, one.applied(text), tests)
            noticed += answer is True
            if answer is False:
                survivors.append(one)
                print(f"      {file}:{one.number} {one.name}", flush=True)
    tried = noticed + len(survivors)
    pct = 100 * noticed / tried if tried else 100.0
    rest = f"{len(chosen) - tried} are no program, drawn from {len(found)}, {len(same)} change nothing"
    print(f"{pct:3.0f} % {file}: {noticed} of {tried} noticed, {rest} ({time.monotonic() - began:.0f} s)")
    return pct
