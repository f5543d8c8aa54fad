"""Runs the tests that prove a probe on a copy of the project, once for each fault in a file of its C.

So it does for a shared header, with tests of the headers themselves, and of probes that use it.

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
HEADERS = "headers"
"""The tests of the shared headers alone, and the probe that they run."""
OF_EACH_PROBE = (f"{CONTEXTS}/test_events.py::test_a_ring_that_nobody_reads_takes_what_it_has_room_for",)
"""Tests with a parameter for each probe."""
USERS = {
    "block.h": ("block_path", "virtio_blk"),
    "devices.h": ("host_path", "local_path"),
    "echo.h": ("echo_host", "echo_stack"),
    "flow_table.h": ("flow_top", "mirror"),
    "fragment.h": ("echo_stack", "mirror"),
    "kicks.h": ("tx_kick_path", "virtio_blk"),
    "kvm.h": ("irq_path", "tx_kick_path"),
    "latency.h": ("host_path", "local_path"),
    "ovs.h": ("ovs_drops", "ovs_upcalls"),
    "packets.h": ("kernel_drops", "conntrack"),
    "path.h": ("host_path", "local_path", "echo_host"),
    "sockets.h": ("socket_drops", "reuseport_skew"),
    "stages.h": ("irq_path", "tx_kick_path"),
    "stream.h": ("mirror",),
    "tally.h": ("mirror", "mirror_xdp"),
    "tap.h": ("tun_queues", "vhost_queues"),
    "tunnel.h": ("mirror",),
}
"""Of a shared header: probes that use it and show what it does. The tests of the headers themselves come first."""
_PROGRAMS = """
import hashlib, sys, tempfile
from pathlib import Path
from tests.support.live.contexts.modules import OF_PROBE
from tests.support.live.contexts.unattached import compiled
with tempfile.TemporaryDirectory() as kept:
    made = [
        compiled(name, Path(kept) / "kept", {}, OF_PROBE.get(name, {}), plain)[2]
        for name in sys.argv[1:] for plain in (False, True)
    ]
print(hashlib.sha256(repr(made).encode()).hexdigest())
"""
LIMIT_S = 300.0
_NO_PROGRAM = (
    "the kernel refused the program",
    "does not compile",
    "is not compiled for this kernel",
    "took longer than",
)
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

    def write(self, file: str, text: str) -> None:
        (self._directory / file).write_text(text)

    def programs(self, probes: Sequence[str]) -> str:
        """The compiled programs of these probes, as one number."""
        done = self._python("-c", _PROGRAMS, *probes)
        if done.returncode:
            raise RuntimeError(f"a probe does not compile: {done.stderr[-2000:]}")
        return done.stdout

    def is_noticed(self, file: str, text: str, tests: Sequence[str]) -> bool | None:
        """Whether one of the tests fails with this text of the file; None when it is no program."""
        self.write(file, text)
        try:
            done = self._python("-m", "pytest", "-xq", "--reruns", "0", "-p", "no:cacheprovider", *tests)
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in (_PASSED, _FAILED):
            raise RuntimeError(f"pytest could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        if any(words in done.stdout for words in _NO_PROGRAM):
            return None
        return done.returncode == _FAILED

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self._directory / "src")}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self._directory, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )


def tests_of(probe: str, is_quick: bool) -> list[str]:
    """Those that run its programs themselves, then its live tests, then others that say that they prove something."""
    marked = {test for tests in proofs().get(probe, {}).values() for test in tests if test.startswith("tests/live/")}
    own = [str(place) for place in sorted(Path(CONTEXTS).rglob(f"test_{probe}*.py"))]
    own += [place for place in (f"tests/live/probes/test_{probe}.py",) if Path(place).exists()]
    others = {test for test in marked if test.partition("::")[0] not in own}
    chosen = own + sorted(f"{test}[{probe}]" if test in OF_EACH_PROBE else test for test in others)
    return [test for test in chosen if test.startswith(CONTEXTS)] if is_quick else chosen


def _probes_of(file: str) -> list[str]:
    """Whose tests prove a file."""
    path = Path(file)
    return [path.parent.name] if path.parent.name != "common" else [HEADERS, *USERS.get(path.name, ())]


def _tests_of_file(file: str, is_quick: bool) -> list[str]:
    found = {test: None for probe in _probes_of(file) if probe != HEADERS for test in tests_of(probe, is_quick)}
    return list(found) if HEADERS not in _probes_of(file) else [f"{CONTEXTS}/{HEADERS}", *found]


def try_c(file: str, sample: int, is_quick: bool) -> float:
    """Tries the faults of a file and prints what nobody notices; the percentage that was noticed."""
    began = time.monotonic()
    text = Path(file).read_text()
    same = SAME.get(file, {})
    found = [one for one in faults(text) if one.name not in same]
    chosen = found
    if sample and sample < len(found):
        chosen = sorted(random.Random(file).sample(found, sample), key=lambda one: one.number)
    tests = _tests_of_file(file, is_quick)
    survivors: list[Fault] = []
    noticed = not_compiled = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Copy(Path(directory))
        if not tests or copy.is_noticed(file, text, tests) is not False:
            raise SystemExit(f"{file}: its tests do not pass as it is, or there are none")
        as_it_is = copy.programs(_probes_of(file))
        for one in chosen:
            answer = copy.is_noticed(file, one.applied(text), tests)
            noticed += answer is True
            if answer is False and copy.programs(_probes_of(file)) == as_it_is:
                not_compiled += 1
            elif answer is False:
                survivors.append(one)
                print(f"      {file}:{one.number} {one.name}", flush=True)
    tried = noticed + len(survivors)
    pct = 100 * noticed / tried if tried else 100.0
    refused = len(chosen) - tried - not_compiled
    rest = f"{refused} are no program, {not_compiled} the same program"
    rest = f"{rest}, drawn from {len(found)}, {len(same)} change nothing"
    print(f"{pct:3.0f} % {file}: {noticed} of {tried} noticed, {rest} ({time.monotonic() - began:.0f} s)")
    return pct
