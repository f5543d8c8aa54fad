"""What recordings of the version before have of a state is read whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from netconsole.recording.format import MARK, SKIPPABLE
from netconsole.recording.reader import Recording
from netconsole.telemetry import checkpoint

ROOT = Path(__file__).parents[3]
RECORDINGS = [
    ROOT / "tests/support/data/recording-version-1.ncrec",
    ROOT / "recordings/drops.ncrec",
    ROOT / "recordings/vhost.ncrec",
]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_nothing_that_was_saved_is_lost(path: Path) -> None:
    recording = Recording(path)
    for block in recording.blocks:
        _, size = recording._skippable(block.offset)
        start = block.offset + SKIPPABLE.size
        saved = recording._unpacked(start + MARK.size, start + size, checkpoint.MAX_BYTES)
        found = msgspec.json.decode(checkpoint.encode(checkpoint.decode(saved)))
        for probe in found["probes"]:
            # newer than these recordings
            assert probe.pop("answers") == []
            cost = probe["cost"]
            assert cost.pop("measurable") is True and cost.pop("read_mono_ns") is None
            assert not cost.pop("events_before") and not cost.pop("ledger_before")
            assert not any(cost.pop(name) for name in ("windows_ns", "windows_of_ns"))
            stands_for = {program[-3] for program in cost["programs"] if any(program[-3:])}
            assert stands_for <= {cost["elapsed_ns"]}
            assert cost.pop("figures_until_ns") == (cost["elapsed_ns"] if stands_for else 0)
            for program in cost["programs"]:
                del program[-3:]
            assert not any(counter.pop() or counter.pop() for counter in probe["counters"].values())
            assert not any(counter[0].pop() for _ in range(4) for counter in probe["counters"].values())
            assert all((table.pop("one_in"), table.pop("until_ns")) == (1, None) for table in probe["tables"])
            rows = [row for table in probe["tables"] for row in table["rows"]]
            assert not any(row.pop() or row.pop() or row.pop() or row.pop() for row in rows)
            assert not any(count.pop() for _ in range(4) for row in rows for count in row[1].values())
            assert not any(row.pop()["count"] for group in probe["histograms"] for row in group["rows"])
        assert found == msgspec.json.decode(saved)
