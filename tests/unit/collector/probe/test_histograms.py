"""Histograms out of raw maps: they agree with the values, and with deltas of two readings."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from netconsole.telemetry import histogram
from netconsole_collector.kernel.bpf_maps import MapInfo
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.namespaces import Namespaces
from netconsole_collector.probe.reading import histograms
from netconsole_collector.probe.reading.decode import LayoutError
from tests.support.fake_map import CPUS, FakeMap, labels


class Buckets(FakeMap):
    """A map of struct nc_bucket by CPU number and slot."""

    def __init__(self) -> None:
        super().__init__(key_size=8, value_size=32, max_entries=1000)

    def add(self, cpu: int, value: int, on: int = 0) -> None:
        key = struct.pack("=II", cpu, histogram.index(value))
        slots = [
            list(struct.unpack_from("=4Q", self.content.get(key, bytes(self.value_bytes)), 32 * n)) for n in range(CPUS)
        ]
        count, total, high, low = slots[on]
        slots[on] = [count + 1, total + value, max(high, value), max(low, ~value & (1 << 64) - 1)]
        self.content[key] = b"".join(struct.pack("=4Q", *slot) for slot in slots)


def test_histograms_agree_with_the_values() -> None:
    fake = Buckets()
    spec = {"key": [{"name": "cpu", "type": "u32"}], "unit": "ns"}
    found = histograms.HistogramReader("late", spec, fake, labels())  # type: ignore[arg-type]
    values = [0, 3, 3, 8, 1000, 1001, 987654321]
    for number, value in enumerate(values):
        fake.add(4, value, on=number % CPUS)
    (one,) = found.read(full=False)
    assert one["labels"] == {"cpu": 4}
    total = one["total"]
    assert (total["count"], total["sum"], total["min"], total["max"]) == (7, sum(values), 0, 987654321)
    assert total["buckets"] == sorted(
        [slot, [histogram.index(v) for v in values].count(slot)] for slot in {*map(histogram.index, values)}
    )
    assert one["delta"] == total
    assert found.read(full=False) == []
    fake.add(4, 5000)
    fake.add(5, 1)
    four, five = found.read(full=False)
    assert (four["delta"]["count"], four["delta"]["sum"], four["total"]["count"]) == (1, 5000, 8)
    assert (four["delta"]["min"], four["delta"]["max"]) == (0, 987654321)
    assert (five["labels"], five["total"]["min"]) == ({"cpu": 5}, 1)
    assert [one["labels"]["cpu"] for one in found.read(full=True)] == [4, 5]


def test_the_extremes_of_a_namespace_that_is_gone_are_not_those_of_the_next_with_its_inode(tmp_path: Path) -> None:
    lookups, fake = Lookups(), Buckets()
    namespaces = lookups.namespaces = Namespaces(str(tmp_path))
    (tmp_path / "blue").touch()
    inode = (tmp_path / "blue").stat().st_ino
    spec = {"key": [{"name": "netns", "type": "u32", "as": "netns"}], "unit": "ns"}
    found = histograms.HistogramReader("late", spec, fake, Labeller(lookups, DropReasons({})))  # type: ignore[arg-type]
    fake.add(inode, 1)
    fake.add(inode, 5000)
    assert [one["total"]["max"] for one in found.read(full=True)] == [5000]
    (tmp_path / "blue").rename(tmp_path / "green")
    namespaces.refresh()
    (one,) = found.read(full=True)
    assert (one["labels"]["netns"], one["total"]["count"], one["total"]["max"]) == ("green", 0, None)
    fake.add(inode, 70)
    (one,) = found.read(full=True)
    assert (one["total"]["count"], one["total"]["min"], one["total"]["max"]) == (1, 70, 70)


class CpuArray:
    """A per-CPU array of whole histograms, of which only the last index counts."""

    cpus = (0, 1, 8)
    """Numbers of CPUs may be left out."""
    slot_bytes = 8 * (3 + histograms.SLOTS)

    def __init__(self, value_size: int = slot_bytes) -> None:
        self.info = MapInfo(6, 1, 4, value_size, 4, 0, "fake")
        self._words = [[0] * (3 + histograms.SLOTS) for _ in range(CPUS)]

    def add(self, cpu: int, value: int) -> None:
        words = self._words[cpu]
        words[0] += value
        words[1], words[2] = max(words[1], value), max(words[2], ~value & (1 << 64) - 1)
        words[3 + histogram.index(value)] += 1

    def items(self) -> list[tuple[bytes, bytes]]:
        values = b"".join(struct.pack(f"={len(words)}Q", *words) for words in self._words)
        return [(struct.pack("=I", index), bytes(len(values)) if index < 3 else values) for index in range(4)]


CPU_SPEC = {"key": [{"name": "cpu", "type": "u32"}, {"name": "softirq", "type": "u32", "as": "softirq"}], "unit": "ns"}


def test_histograms_of_cpus_agree_with_the_values() -> None:
    fake = CpuArray()
    found = histograms.CpuHistogramReader("late", CPU_SPEC, fake, labels())  # type: ignore[arg-type]
    assert found.read(full=True) == []
    values = [0, 3, 3, 1000, 1 << 63]
    for value in values:
        fake.add(1, value)
    (one,) = found.read(full=False)
    assert one["labels"] == {"cpu": 1, "softirq": "NET_RX"}
    assert one["delta"] == one["total"]
    assert (one["total"]["count"], one["total"]["sum"]) == (5, sum(values))
    assert (one["total"]["min"], one["total"]["max"]) == (0, values[-1])
    assert one["total"]["buckets"] == [[0, 1], [3, 2], [histogram.index(1000), 1], [histogram.index(values[-1]), 1]]
    assert found.read(full=False) == []
    fake.add(1, 1000)
    (one,) = found.read(full=False)
    assert one["delta"]["buckets"] == [[histogram.index(1000), 1]] and one["total"]["count"] == 6
    assert one["delta"]["sum"] == 1000
    assert [one["total"]["count"] for one in found.read(full=True)] == [6]
    fake.add(2, 7)
    (one,) = found.read(full=False)
    assert (one["labels"]["cpu"], one["total"]["sum"]) == (8, 7)


def test_a_sample_that_is_only_half_added_has_no_minimum() -> None:
    half = struct.pack("=4Q", 1, 0, 0, 0)
    fake, array = Buckets(), CpuArray()
    fake.content[struct.pack("=II", 4, 0)] = half.ljust(fake.value_bytes, b"\0")
    array._words[1][3] = 1
    spec = {"key": [{"name": "cpu", "type": "u32"}], "unit": "ns"}
    found = histograms.HistogramReader("late", spec, fake, labels()).read(full=False)  # type: ignore[arg-type]
    found += histograms.CpuHistogramReader("late", CPU_SPEC, array, labels()).read(full=False)  # type: ignore[arg-type]
    for one in found:
        assert (one["total"]["count"], one["total"]["min"], one["total"]["max"]) == (1, None, None)


def test_histograms_of_cpus_of_another_size_are_refused() -> None:
    with pytest.raises(LayoutError, match="nc_cpu_histogram"):
        histograms.CpuHistogramReader("late", CPU_SPEC, CpuArray(value_size=32), labels())  # type: ignore[arg-type]
