"""A program of ours may start before anybody asks for it."""

from __future__ import annotations

import sys
import time

import pytest

from netconsole.cli.start import measures_here
from netconsole.far import child

WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()")


def test_what_was_started_early_is_given_to_who_asks_for_it_once() -> None:
    child.start_early(WAITS)
    first, second = child.start(WAITS), child.start(WAITS)
    try:
        assert first.pid < second.pid
    finally:
        for process in (first, second):
            assert process.communicate() == (b"", b"")


def test_one_with_another_environment_or_command_is_not_it() -> None:
    child.start_early(WAITS)
    (early,) = child._early.values()
    for other in (child.start(WAITS, {"PATH": ""}), child.start([*WAITS, "more"])):
        assert other.pid != early.pid
        other.communicate()
    child.end_early()
    assert early.returncode == 0


def test_its_cpu_time_is_not_that_of_others() -> None:
    assert child.early_cpu_s() == 0.0
    child.start_early([sys.executable, "-c", "import sys\nfor _ in range(10**6): pass\nsys.stdin.read()"])
    until = time.monotonic() + 10
    while child.early_cpu_s() < 0.01 and time.monotonic() < until:
        time.sleep(0.01)
    assert child.early_cpu_s() >= 0.01
    child.end_early()
    assert child.early_cpu_s() == 0.0


def test_one_that_cannot_be_started_is_told_when_it_is_asked_for() -> None:
    child.start_early(["/there/is/none"])
    with pytest.raises(FileNotFoundError):
        child.start(["/there/is/none"])


@pytest.mark.parametrize(
    ("line", "terminal", "measures"),
    [
        ("", True, True),
        ("", False, False),
        ("--profile drops", True, True),
        ("snapshot --duration 1s", False, True),
        ("record -o x", False, True),
        ("snapshot --help", False, False),
        ("--version", True, False),
        ("--host ssh://a", True, False),
        ("snapshot --host=ssh://a", False, False),
        ("replay drops", True, False),
        ("probes", False, False),
    ],
)
def test_only_a_command_that_measures_this_machine_starts_its_collector(
    line: str, terminal: bool, measures: bool
) -> None:
    assert measures_here(line.split(), terminal) is measures
