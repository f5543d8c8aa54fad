"""Frames, baselines and calibrations that an earlier version wrote load in this one.

Snapshots: tests/unit/snapshot/test_document.py. Recordings: tests/unit/recording/test_reader.py, and the states in
them tests/unit/telemetry/test_old_checkpoints.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from netconsole.calibrate import store
from netconsole.compare import baseline
from netconsole.telemetry import frames
from netconsole.telemetry.state import State

DATA = Path(__file__).parents[1] / "support" / "data"
LATER_KINDS = {frames.Records, frames.Answer}
"""Kinds that the version which wrote these frames did not have."""


def test_frames_of_every_kind() -> None:
    lines = (DATA / "frames-version-1.jsonl").read_bytes().splitlines(keepends=True)
    found = [frames.decode(line) for line in lines]
    assert {type(frame) for frame in found} == set(frames.AnyFrame.__args__) - LATER_KINDS
    again = [json.loads(frames.encode(frame)) for frame in found]
    assert not any(frame.pop("seen_ns", None) for frame in again)  # newer than these frames
    assert {frame.pop("one_in", 1) for frame in again} == {1}
    assert again == [json.loads(line) for line in lines]
    state = State()
    for frame in found:
        state.apply(frame)
    assert state.collector.intervals == state.console.intervals == 12
    assert state.probes["kernel_drops"].counters["drops"].count.total == 59


def test_a_baseline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "netconsole" / "baselines"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "baseline-version-1.json", folder / "evening.json")
    found = baseline.load("evening")
    assert found.snapshots[0].probes["kernel_drops"].counters["drops"].total == 20310
    assert found.files == ["snapshot-version-1.json"]


def test_a_calibration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = frames.Host("hv-017", "6.1.0", "x86_64", "Debian", 8, "b")
    monkeypatch.setattr(store, "describe", lambda: here)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "netconsole" / "calibrations"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "calibration-version-1.json", folder / "hv-017-6.1.0.json")
    found = store.load()
    assert found is not None
    assert found.entries["kernel_drops:summary"].changes[0].verdict == "slower"
    assert json.loads(msgspec.json.encode(found)) == json.loads((DATA / "calibration-version-1.json").read_bytes())
