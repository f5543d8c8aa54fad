"""Snapshot, baseline and recording where they cannot be written: one line, nothing lost, nothing left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole.base import output
from netconsole.base.errors import BadInput, bad
from netconsole.compare import baseline
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import Recorder
from netconsole.snapshot import document
from netconsole.telemetry.state import State
from tests.support.recorded import HEADER, LIMIT_S, Stream, record

GOOD = Path(__file__).parents[1] / "support" / "data" / "snapshot-version-1.json"
BEGUN_BYTES = 8192
"""Enough for the beginning of a recording, and not for the rest."""
NOBODY = 65534


def snapshot_to(place: Path) -> Path:
    output.write(document.encode(document.load(GOOD)), place / "a.json")
    return place / "a.json"


def baseline_to(place: Path) -> Path:
    os.environ["XDG_DATA_HOME"] = str(place)
    baseline.save("a", [GOOD] * 8)
    return place / "netconsole/baselines/a.json"


def recording_to(place: Path) -> Path:
    """A full disk ends it in the middle: it says so to whoever listens."""
    recorder, state = Recorder(place / "a.ncrec", HEADER), State()
    for batch in Stream(rows=500).batches(60):
        recorder.take(state, tuple(batch))
        recorder.flush(LIMIT_S)
        for frame in batch:
            state.apply(frame)
    recorder.close()
    if recorder.progress.ended is not None:
        raise bad(place / "a.ncrec", "", recorder.progress.ended)
    return place / "a.ncrec"


Writer = Callable[[Path], Path]
WRITERS: list[Writer] = [snapshot_to, baseline_to, recording_to]
REPLACING = WRITERS[:2]
"""A recording never replaces what is there."""


@pytest.fixture(autouse=True)
def data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/nowhere")


def fill(place: Path) -> None:
    """Leave nothing free."""
    free = os.statvfs(place)
    (place / "filler").write_bytes(bytes(free.f_bavail * free.f_bsize))


def everything(place: Path) -> dict[Path, bytes]:
    """What is there, by path."""
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def refused(write: Writer, place: Path, why: str) -> None:
    with pytest.raises(BadInput) as caught:
        write(place)
    assert len(str(caught.value).splitlines()) == 1 and why in str(caught.value), caught.value


@pytest.mark.parametrize("write", REPLACING)
def test_on_a_full_disk_what_was_there_is_untouched(write: Writer, tiny: Path) -> None:
    write(tiny)
    fill(tiny)
    before = everything(tiny)
    refused(write, tiny, "no space left on device")
    assert everything(tiny) == before


@pytest.mark.parametrize("write", REPLACING)
def test_on_a_full_disk_nothing_is_left_of_what_is_new(write: Writer, tiny: Path) -> None:
    fill(tiny)
    refused(write, tiny, "no space left on device")
    assert [path.name for path in everything(tiny)] == ["filler"]


def test_a_recording_that_a_full_disk_ended_can_be_replayed_and_is_alone(tiny: Path) -> None:
    fill(tiny)
    os.truncate(tiny / "filler", (tiny / "filler").stat().st_size - BEGUN_BYTES)
    refused(recording_to, tiny, "recording ended: no space left on device; what was recorded can be replayed")
    assert [path.name for path in everything(tiny)] == ["a.ncrec", "filler"]
    assert sum(1 for _ in Recording(tiny / "a.ncrec").frames(0)) > 0


def test_a_recording_that_cannot_even_begin_leaves_no_file(tiny: Path) -> None:
    fill(tiny)
    refused(recording_to, tiny, "no space left on device")
    assert [path.name for path in everything(tiny)] == ["filler"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_read_only_place_is_one_line(write: Writer, tiny: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    refused(write, tiny, "read-only file system")


@pytest.mark.parametrize("write", WRITERS)
def test_without_permission_it_is_one_line(write: Writer, tmp_path: Path) -> None:
    place = tmp_path / "closed"
    place.mkdir(mode=0o555)
    if os.geteuid() != 0:
        refused(write, place, "permission denied")
        return
    place.chmod(0o755)
    for folder in (place, *place.parents):
        if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "test_", "closed")):
            folder.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        refused(write, place, "permission denied")
    finally:
        os.seteuid(0)
    assert everything(place) == {}


@pytest.mark.parametrize("write", WRITERS)
def test_a_directory_in_its_place_is_one_line(write: Writer, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" if write is baseline_to else _made(tmp_path / "elsewhere"))
    name = next(iter(everything(tmp_path / "elsewhere"))).relative_to(tmp_path / "elsewhere")
    (tmp_path / "here" / name).mkdir(parents=True)
    refused(write, tmp_path / "here", "this file exists already" if write is recording_to else "is a directory")
    assert everything(tmp_path / "here") == {}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


SLOW = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.unit import test_places
write = os.write
chunks = 0
def slow(descriptor, view):
    global chunks
    done = write(descriptor, view[:512])
    chunks += 1
    if chunks == {chunks}:
        write(1, b".")
        signal.pause()
    return done
os.write = slow
test_places.{writer}(Path({place!r}))
"""


@pytest.mark.parametrize("chunks", [1, 3, 6])
@pytest.mark.parametrize("write", REPLACING)
def test_kill_9_while_writing_leaves_what_was_there_and_nothing_else(
    write: Writer, chunks: int, tmp_path: Path
) -> None:
    path = write(tmp_path)
    path.write_bytes(b"before")
    root = str(Path(__file__).parents[2])
    script = SLOW.format(root=root, writer=write.__name__, place=str(tmp_path), chunks=chunks)
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.read(1) == b"."
        writer.send_signal(signal.SIGKILL)
    assert everything(tmp_path) == {path: b"before"}


ROTATING = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.support.recorded import Stream, record
sendfile = os.sendfile
chunks = 0
def slow(target, source, offset, size):
    global chunks
    done = sendfile(target, source, offset, min(size, 256))
    chunks += 1
    if chunks == {chunks}:
        os.write(1, b".")
        signal.pause()
    return done
os.sendfile = slow
record(Path({path!r}), Stream(rows=20).batches(2000), max_bytes=60_000)
"""


@pytest.mark.parametrize("chunks", [1, 40, 90])
def test_kill_9_while_the_oldest_part_goes_leaves_a_recording_and_nothing_else(chunks: int, tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    script = ROTATING.format(root=str(Path(__file__).parents[2]), path=str(path), chunks=chunks)
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.read(1) == b"."
        writer.send_signal(signal.SIGKILL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ncrec"]
    recording = Recording(path)
    assert sum(1 for number in range(len(recording.blocks)) for _ in recording.frames(number)) > 100


def test_the_writers_write(tmp_path: Path) -> None:
    for write in WRITERS:
        assert write(tmp_path).stat().st_mode & 0o777 == 0o600
    record(tmp_path / "b.ncrec", Stream().batches(1))
    assert len(everything(tmp_path)) == 4
