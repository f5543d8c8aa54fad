"""Drives a collector in its own process, and checks every line that it writes against the schema of frames."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from netconsole.probes import includes
from netconsole.telemetry import frames

CHECKOUT = Path(__file__).resolve().parents[3]
SOURCE = CHECKOUT / "src"
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
PROBES = Path(__file__).parent / "probes"
LIMIT_S = 120.0
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from netconsole_collector.__main__ import main; sys.exit(main())"
)

FrameType = TypeVar("FrameType", bound=frames.Frame)

PROGRAM = f"entered_{os.getpid()}"
MAPS = (f"calls_{os.getpid()}", f"sizes_{os.getpid()}")
"""Names in probes/calls.bpf.c as this process loads it: nobody else has them."""

CALLS: dict[str, Any] = {
    "probe": {"name": "calls", "modes": ["summary", "details"]},
    "knobs": {"events_per_s": 100, "pid": 0},
    "programs": [
        {
            "name": "entered",
            "required": True,
            "measures": "calls",
            "attach": [{"point": "raw_tracepoint:sys_enter", "function": PROGRAM}],
        }
    ],
    "counters": {"calls": {"slot": 0, "unit": "calls"}},
    "tables": {
        "calls": {
            "map": MAPS[0],
            "max_rows": 512,
            "counter": "calls",
            "key": [
                {"name": "argument", "type": "u64"},
                {"name": "name", "type": "char[4]", "as": "text"},
                {"name": "parity", "type": "u32"},
            ],
            "value": [
                {"name": "count", "type": "u64"},
                {"name": "weight", "type": "u64"},
                {"name": "highest", "type": "u64", "kind": "max"},
            ],
        }
    },
    "histograms": {
        "sizes": {"map": MAPS[1], "unit": "bytes", "max_rows": 1024, "key": [{"name": "parity", "type": "u32"}]}
    },
    "events": {
        "call": {
            "map": "nc_events",
            "record": [
                {"name": "mono_ns", "type": "u64", "as": "time"},
                {"name": "argument", "type": "u64"},
                {"name": "cpu", "type": "u32", "as": "cpu"},
                {"type": "pad[4]"},
                {"name": "stack", "type": "u64", "count": 4, "as": "stack"},
            ],
        }
    },
}
"""The manifest of probes/calls.bpf.c."""


def calls_spec() -> dict[str, Any]:
    """A copy that a test may change."""
    return copy.deepcopy(CALLS)


def source(name: str) -> str:
    """The text of one of the tests' own probes, with all that it includes."""
    return includes.read(PROBES / f"{name}.bpf.c").replace("_PID", f"_{os.getpid()}")


def load_command(probe: str = "calls", spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A load of the tests' own probe that counts the calls of this process."""
    command = {"probe": probe, "spec": spec or calls_spec(), "source": source("calls")}
    return {"command": "load", **command, "mode": "summary", "knobs": {"pid": os.getpid()}, **more}


def call(argument: int, times: int = 1) -> None:
    """getpgid(argument), so often: what probes/calls.bpf.c counts."""
    libc = ctypes.CDLL(None)
    for _ in range(times):
        libc.getpgid(ctypes.c_int(argument))


class Driver:
    """One collector. Frames are kept in ``seen`` in the order in which they came."""

    def __init__(
        self, python: str = PYTHON, *arguments: str, before: Sequence[str] = (), package: Path = SOURCE
    ) -> None:
        self.process = subprocess.Popen(
            [*before, python, "-I", "-c", START, str(package), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.seen: list[frames.AnyFrame] = []
        self.reading = threading.Event()
        self.reading.set()
        self._next_id = 0
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.reading.set()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reading.wait()
            self._lines.put(line)
        self._lines.put(None)

    # ---- commands ----

    def send(self, **command: Any) -> int:
        """Sends a command; returns its id."""
        self._next_id += 1
        self.send_raw(json.dumps({"id": self._next_id, **command}).encode() + b"\n")
        return self._next_id

    def send_raw(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def ask(self, **command: Any) -> frames.Reply:
        """Sends a command and awaits its reply."""
        number = self.send(**command)
        return self.until(frames.Reply, lambda reply: reply.id == number)

    def load(self, **command: Any) -> frames.Reply:
        """Loads the tests' own probe, or what the keywords say; fails when that does not work."""
        reply = self.ask(**load_command(**command))
        assert reply.ok, reply.error
        return reply

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    # ---- frames ----

    def next(self) -> frames.AnyFrame | None:
        """The next frame; None when there will be none."""
        line = self._lines.get(timeout=LIMIT_S)
        if line is None:
            return None
        frame = frames.decode(line)
        self.seen.append(frame)
        return frame

    def until(self, kind: type[FrameType], true: Callable[[FrameType], bool] = lambda _: True) -> FrameType:
        """The next frame of this kind of which that is true."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            frame = self.next()
            assert frame is not None, f"the collector ended while a {kind.__name__} was awaited: {self.complaint()}"
            if isinstance(frame, kind) and true(frame):
                return frame
        raise AssertionError(f"no such {kind.__name__} in {LIMIT_S:g} s")

    def interval(self) -> list[frames.AnyFrame]:
        """The frames of one interval that begins after now."""
        now = time.monotonic_ns()
        self.until(frames.Cost, lambda cost: cost.probe is None and cost.mono_ns >= now)
        start = len(self.seen)
        self.until(frames.Cost, lambda cost: cost.probe is None)
        return self.seen[start:]

    def rest(self) -> list[frames.AnyFrame]:
        """All frames up to the end of the stream, from here."""
        start = len(self.seen)
        while self.next() is not None:
            pass
        return self.seen[start:]

    def complaint(self) -> str:
        """What it wrote on standard error."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode("utf-8", "replace") if self.process.poll() is not None else ""


def of(kind: type[FrameType], among: Iterable[frames.AnyFrame], probe: str = "calls") -> list[FrameType]:
    """Frames of a kind that speak of a probe."""
    return [frame for frame in among if isinstance(frame, kind) and frame.probe == probe]
