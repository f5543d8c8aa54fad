"""What the process does whose socket has no room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions import known, reader
from netconsole_collector.questions.known import BadQuestion

MS = 1_000_000
PAUSE_S = 1.0


class Host:
    """A /proc of the test's own; the pause of the question lasts a second, and its threads run meanwhile."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now = root, 0.0
        self.in_pause: Callable[[], None] = lambda: None
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self.put("proc/sys/net/core/rmem_max", "212992\n")

    def _sleep(self, _seconds: float) -> None:
        self.now += PAUSE_S
        self.in_pause()

    def put(self, path: str, text: str) -> None:
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)

    def thread(self, tid: int, ran_ms: int, waited_ms: int, state: str = "R") -> None:
        self.put(f"proc/500/task/{tid}/schedstat", f"{ran_ms * MS} {waited_ms * MS} 3\n")
        self.put("proc/500/stat", f"500 (a) b (1)) {state} 1 1\n")

    def runs(self, ran_ms: int, waited_ms: int, state: str = "S", unread: tuple[bool, ...] = ()) -> dict[str, object]:
        """The answer when its busier thread runs and waits so long in the second."""
        self.thread(500, 7, 9, state)
        self.thread(501, 1000, 2000, state)
        self.in_pause = lambda: self.thread(501, 1000 + ran_ms, 2000 + waited_ms, state)
        found: dict[str, object] = reader.asked(Here(self.root), "500", PAUSE_S, iter(unread or (True, True)).__next__)
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_an_answer_has_all_that_verdicts_name(host: Host) -> None:
    assert host.runs(940, 20) == {
        "pid": 500,
        "state": "running",
        "busy_pct": 94,
        "wait_pct": 2,
        "does": "busy",
        "threads": 2,
        "rmem_max_kb": 208,
    }


@pytest.mark.parametrize(
    ("ran_ms", "waited_ms", "does"),
    [(900, 0, "busy"), (899, 0, None), (20, 0, "sleeps"), (21, 0, None), (0, 300, "waits"), (700, 299, None)],
)
def test_what_it_does_is_said_from_a_limit_on(host: Host, ran_ms: int, waited_ms: int, does: str | None) -> None:
    assert host.runs(ran_ms, waited_ms)["does"] == does


@pytest.mark.parametrize("unread", [(False,), (True, False)])
def test_one_that_has_read_all_does_not_sleep(host: Host, unread: tuple[bool, ...]) -> None:
    """It may have been a burst, which is over."""
    assert host.runs(0, 0, unread=unread)["does"] is None


@pytest.mark.parametrize(
    ("call", "state", "does"),
    [
        ("1 0x1 0x7f", "S", "writes"),
        ("0 0x0 0x7f", "S", "sleeps"),
        ("running", "S", "sleeps"),
        ("0 0x0", "D", "writes"),
    ],
)
def test_one_that_waits_until_it_can_write_is_told_from_one_that_sleeps(
    host: Host, monkeypatch: pytest.MonkeyPatch, call: str, state: str, does: str
) -> None:
    monkeypatch.setattr(reader, "MACHINE", "x86_64")
    host.put("proc/500/task/501/syscall", call + "\n")
    assert host.runs(0, 0, state)["does"] == does


@pytest.mark.parametrize("state", ["T", "t"])
def test_one_that_is_stopped_is_said_so_whatever_it_did_before(host: Host, state: str) -> None:
    found = host.runs(950, 0, state)
    assert (found["state"], found["does"]) == ("stopped", "stopped")


@pytest.mark.parametrize("process", ["python", "python (x)", "", "(12) python", None])
def test_a_process_without_a_number_is_refused(process: str | None) -> None:
    with pytest.raises(BadQuestion, match="process"):
        known.answer("reader", {"process": process})


def test_one_that_is_gone_is_said_so(host: Host) -> None:
    with pytest.raises(BadQuestion, match="no such process"):
        reader.asked(Here(host.root), "501", PAUSE_S, lambda: True)


WAIT = """
import os, socket, sys
one, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
one.bind(("127.0.0.1", 0))
sender.sendto(b"x", one.getsockname())
print(os.fstat(one.fileno()).st_ino, flush=True)
input()
"""


def test_a_real_process_sleeps_and_is_stopped() -> None:
    words = [sys.executable, "-c", WAIT]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            inode = int(process.stdout.readline())
            of = {"process": f"a name (1) ({process.pid})", "netns": "", "inode": inode}
            assert known.answer("reader", of)["does"] == "sleeps"
            assert known.answer("reader", {**of, "inode": inode + 1})["does"] is None
            of_copies = {"process": f"a/name/{process.pid}", "netns": "", "kind": "packet"}
            assert known.answer("reader", of_copies)["does"] == "sleeps", "it may never have meant to read"
            process.send_signal(signal.SIGSTOP)
            assert os.waitid(os.P_PID, process.pid, os.WSTOPPED) is not None
            assert known.answer("reader", of)["does"] == "stopped"
        finally:
            process.send_signal(signal.SIGCONT)
            process.communicate(b"\n")
