"""Counters of all CPUs: what one CPU takes back of another's is no huge number."""

from __future__ import annotations

import struct

import pytest

from netconsole_collector.kernel.bpf_maps import Map


@pytest.mark.parametrize(
    ("of_cpus", "total"), [((3, 4), 7), ((-1, 30), 29), ((0, -1), 0), ((), 0), ((2**40, 2**40), 2**41)]
)
def test_a_counter_is_the_sum_of_all_cpus(
    of_cpus: tuple[int, ...], total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = Map.__new__(Map)
    monkeypatch.setattr(counters, "get", lambda _key: struct.pack(f"={len(of_cpus)}q", *of_cpus))
    assert counters.sum_of(0) == total
