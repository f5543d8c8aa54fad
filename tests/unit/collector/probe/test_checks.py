"""A layout is called wrong when its check fails again and again, and never when it has held once."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from netconsole_collector.kernel import bpf_maps
from netconsole_collector.probe.checks import ENOUGH, Checks

SPECS = [{"slot": 0, "says": "no", "programs": ["one"]}, {"slot": 1, "says": "neither", "programs": ["two"]}]


class Counts:
    """A per-CPU array of (held, failed)."""

    def __init__(self) -> None:
        self.by_slot: dict[int, list[tuple[int, int]]] = {0: [(0, 0), (0, 0)], 1: [(0, 0), (0, 0)]}

    def get(self, key: bytes) -> bytes:
        return b"".join(struct.pack("=QQ", *one) for one in self.by_slot[struct.unpack("=I", key)[0]])


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def checks(counts: Counts) -> Checks:
    return Checks(cast("list[dict[str, Any]]", SPECS), cast(bpf_maps.Map, counts))


def test_what_was_not_tried_or_failed_a_few_times_is_not_called_wrong(counts: Counts, checks: Checks) -> None:
    counts.by_slot[0] = [(0, ENOUGH - 1), (0, 0)]
    assert checks.newly_failed() == []


def test_failures_of_all_cpus_count_and_are_told_once(counts: Counts, checks: Checks) -> None:
    counts.by_slot[1] = [(0, ENOUGH // 2), (0, ENOUGH // 2)]
    assert checks.newly_failed() == [SPECS[1]]
    assert checks.newly_failed() == []


def test_what_held_once_on_any_cpu_is_right_for_good(counts: Counts, checks: Checks) -> None:
    counts.by_slot[0] = [(0, 10 * ENOUGH), (1, 0)]
    assert checks.newly_failed() == []
    counts.by_slot[0] = [(0, 20 * ENOUGH), (1, 0)]
    assert checks.newly_failed() == []
