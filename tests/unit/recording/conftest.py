"""A recording for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.recording.reader import Recording
from netconsole.recording.recorder import BLOCK_S
from netconsole.telemetry.frames import AnyFrame
from tests.support.recorded import Stream, frames_of, record


@pytest.fixture(scope="module")
def three_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "a.ncrec"
    record(path, Stream(rows=20).batches(int(2.5 * BLOCK_S)))
    return path


@pytest.fixture(scope="module")
def frames_of_three(three_blocks: Path) -> list[AnyFrame]:
    return frames_of(Recording(three_blocks))
