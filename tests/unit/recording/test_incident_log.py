"""A replay that jumps shows the log of incidents that the live session had at that moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.findings import saved_log
from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.profile.profile import Budget
from netconsole.recording import player
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import Recorder
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, LIMIT_S, SECOND, Batch, Stream

MANIFESTS = {"kernel_drops": catalogue.shipped("kernel_drops")}
LENGTH = 240
MISSED = 118
"""In this second a run was missed: the mean of a small loss has it for ten seconds."""
HISTORY_S = 60.0
"""How far before its target a jump begins here: that of a real one takes ten times the frames."""
LOSSES = {
    "IP_CSUM": (10, 30, 500),
    "XFRM_POLICY": (40, 175, 300),
    "IP_RPFILTER": (50, 175, 3),
    "TCP_CSUM": (130, 140, 40),
    "UDP_CSUM": (190, LENGTH, 2),
}
"""By reason: the first and the last second, and how many a second. The second of a jump's checkpoint is amid some."""

Told = tuple[str, str, int | None, float | None, bool, int, int | None]


class Lossy(Stream):
    """A host that drops packets for several reasons."""

    def _collector(self) -> Iterator[frames.AnyFrame]:
        rows = []
        for reason, (first, last, per_s) in LOSSES.items():
            if first <= self.tick <= last:
                labels: dict[str, Any] = {"reason": reason, "class": "suspicious", "device": "eth0", "netns": "host"}
                labels |= {"location": "ip_rcv_core", "protocol": "UDP"}
                rows.append(Row(labels, {"count": Count(per_s, per_s * (self.tick - first + 1))}))
        yield frames.Table(**self.stamp("kernel_drops"), name="drops", interval_ns=SECOND, full=False, rows=rows)
        if rows:
            ledger = {"missed": Count(int(self.tick == MISSED), int(self.tick >= MISSED))}
            yield frames.Cost(**self.stamp("kernel_drops"), interval_ns=SECOND, ledger=ledger)
        yield frames.Cost(**self.stamp(None), interval_ns=SECOND, usage=frames.Usage(4_000_000, 13_000, 11_000))


def told(incidents: Iterable[Incident]) -> list[Told]:
    return sorted(
        (one.cause, one.sentence, one.total, one.peak, one.at_least, one.since_ns, one.ended_ns) for one in incidents
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Told]]]:
    """A recording, and the log that the live session had after each interval."""
    path = tmp_path_factory.mktemp("log") / "a.ncrec"
    recorder, state, incidents = Recorder(path, HEADER), State(), Incidents(MANIFESTS, Budget())
    recorder.log = incidents.saved
    logs = []

    def take(batch: Batch) -> None:
        recorder.take(state, batch)
        for frame in batch:
            state.apply(frame)
        if batch[-1].source == "collector" and isinstance(batch[-1], frames.Cost):
            incidents.update(state)
            logs.append(told(incidents.log))

    for batch in Lossy().batches(LENGTH):
        take(batch)
    assert recorder.flush(LIMIT_S)
    recorder.close()
    return path, logs


@pytest.mark.parametrize("second", [5, 55, 121, 127, 135, 178, 200, LENGTH - 1])
def test_a_jump_shows_the_log_of_the_live_session(
    recorded: tuple[Path, list[list[Told]]], second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, logs = recorded
    monkeypatch.setattr(player, "HISTORY_S", HISTORY_S)
    replay = Player(Recording(path), MANIFESTS, Budget())
    replay.seek((replay.recording.blocks[-1].mark.mono_ns - replay.begin_ns) / 1e9)  # so that there is a way back, too
    replay.seek(second + 0.9)
    assert told(replay.place.findings.log) == logs[second - 1]
    assert second < 121 or replay.place.block > 0, "it did not read everything"


def test_the_last_moment_has_every_incident(recorded: tuple[Path, list[list[Told]]]) -> None:
    _, logs = recorded
    lost = {one[2] for one in logs[-1]} - {None}
    assert lost == {per_s * (last - first + 1) for first, last, per_s in LOSSES.values()}


@given(st.binary(max_size=200))
def test_no_bytes_hurt_the_reader_of_a_log(content: bytes) -> None:
    with contextlib.suppress(saved_log.LogError):
        saved_log.decode(content)


def test_a_log_of_a_file_is_made_safe_for_a_terminal(recorded: tuple[Path, list[list[Told]]]) -> None:
    path, _ = recorded
    recording = Recording(path)
    (first, *_) = recording.log(len(recording.blocks) - 1)
    hostile = saved_log.encode([saved_log.SavedIncident(**{**_fields(first), "sentence": "\x1b[2Jgone"})])
    assert saved_log.decode(hostile)[0].told().sentence == "\\x1b[2Jgone"


def _fields(one: saved_log.SavedIncident) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
