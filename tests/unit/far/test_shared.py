"""One program on a far host is the collector and the reader of sources: each is heard, and ends for itself."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from netconsole.far import shared
from netconsole.far.host import FarHost
from netconsole.far.program import Launch
from netconsole.far.shared import SharedProgram
from netconsole.host.collector_process import CollectorProcess
from netconsole.host.far_target import FarTarget
from netconsole.host.reach import line_of
from netconsole.telemetry.frames import Bye, Hello
from netconsole_collector.two_streams import ANSWERS, FRAMES, MAX_PIECE_BYTES, PIECE, START
from tests.support.local_line import host

LIMIT_S = 60


@pytest.fixture
def far() -> Iterator[FarHost]:
    """Probes for it would be compiled here."""
    with closing(host()) as made:
        made.compiler = cast(Any, object())
        yield made


def measuring(far: FarHost) -> CollectorProcess:
    """With its first command that is no question."""
    process = CollectorProcess(far.measuring())
    process.send({"id": 1, "command": "clock"})
    return process


def test_both_are_one_program_and_the_collector_ends_alone(far: FarHost) -> None:
    target = FarTarget(line_of(far))
    began = target.read("/proc/stat")
    collector = measuring(far)
    frames = collector.frames()
    assert isinstance(next(frames), Hello)
    assert [one.program.pid for one in far._running] == [collector.pid]
    collector.close()
    assert isinstance([*frames][-1], Bye)
    assert target.begin() is False, "the line was not lost"
    assert target.read("/proc/stat") != began
    with closing(measuring(far)) as again:
        assert isinstance(next(again.frames()), Hello)
        assert again.pid != collector.pid


def test_answers_longer_than_a_piece_arrive_whole(far: FarHost) -> None:
    with closing(measuring(far)) as collector:
        assert isinstance(next(collector.frames()), Hello)
        symbols = FarTarget(line_of(far)).below("/proc/sys/net", {}, 4000)
    assert len("\0".join(symbols)) > MAX_PIECE_BYTES


@pytest.mark.parametrize("started", [b"", START + b"\n"])
def test_it_ends_by_itself_when_the_line_is_silent(far: FarHost, started: bytes) -> None:
    launch = far.launch_of("netconsole_collector.elsewhere", "0.2")
    with subprocess.Popen(launch.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        assert running.stdin is not None
        running.stdin.write(launch.opening + started)
        running.stdin.flush()
        running.wait(LIMIT_S)


@pytest.mark.parametrize(
    "said", [struct.pack("<BI", 9, 1), struct.pack("<BI", FRAMES, 1 << 31), b"Welcome to this host!\n"]
)
def test_pieces_that_make_no_sense_end_it(said: bytes) -> None:
    code = f"import sys; sys.stdout.buffer.write({said!r}); sys.stdout.flush(); sys.stdin.read()"
    with closing(SharedProgram(Launch([sys.executable, "-I", "-c", code]))) as program:
        for number in (FRAMES, ANSWERS):
            stream = program.take(number)
            assert stream is None or ([*stream.chunks()] == [] and "cannot read" in stream.why())


def test_what_nobody_takes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MAX_WAITING_BYTES", 4 * MAX_PIECE_BYTES)
    head = PIECE.pack(FRAMES, MAX_PIECE_BYTES)
    code = f"import sys\nfor _ in range(99): sys.stdout.buffer.write({head!r} + bytes({MAX_PIECE_BYTES}))"
    with closing(SharedProgram(Launch([sys.executable, "-I", "-c", code]))) as program:
        stream = program.take(FRAMES)
        assert stream is not None
        deadline = time.monotonic() + LIMIT_S
        while stream.waiting_bytes < 4 * MAX_PIECE_BYTES:  # so much is kept, and no more
            assert time.monotonic() < deadline
            time.sleep(0.001)
        most = max(stream.waiting_bytes for _ in stream.chunks())
        assert stream.received_bytes == 99 * MAX_PIECE_BYTES
    assert most <= 4 * MAX_PIECE_BYTES
