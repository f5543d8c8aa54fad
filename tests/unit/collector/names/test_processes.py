"""The process of a socket is found however its descriptors come and go, and however many sockets there are."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from netconsole_collector.names import processes as of_host


class MadeUpProcesses:
    """A made-up /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def start(self, pid: int, sockets: list[int], *, comm: str | None = "server") -> None:
        """Its first and last descriptors are gone when they are looked at."""
        directory = self.root / str(pid) / "fd"
        directory.mkdir(parents=True)
        (directory / "0").write_text("no link")
        for number, inode in enumerate(sockets, 1):
            (directory / str(number)).symlink_to(f"socket:[{inode}]")
        (directory / "99").write_text("no link")
        if comm is not None:
            (self.root / str(pid) / "comm").write_text(f"{comm}\n")


@pytest.fixture
def processes(tmp_path: Path) -> MadeUpProcesses:
    return MadeUpProcesses(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("netconsole_collector.names.processes.time.monotonic", lambda: now[0])
    return now


def test_a_descriptor_that_is_closed_meanwhile_hides_no_other(processes: MadeUpProcesses) -> None:
    processes.start(20, [7, 8])
    assert of_host.Processes(str(processes.root)).of_socket(8) == "server (20)"


def test_a_process_that_ends_meanwhile_is_its_pid(processes: MadeUpProcesses) -> None:
    processes.start(20, [7], comm=None)
    assert of_host.Processes(str(processes.root)).of_socket(7) == "20"


def test_more_sockets_than_are_kept_are_found_one_scan_later(
    processes: MadeUpProcesses, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_host, "_MAX_KNOWN", 2)
    for pid in range(20, 26):
        processes.start(pid, [pid + 100])
    found = of_host.Processes(str(processes.root))
    assert found.of_socket(125) is None
    for _ in range(2):
        clock[0] += 10
        found.refresh()
    assert found.of_socket(125) == "server (25)"
    processes.start(19, [200])  # the scan has seen all: the next one begins with the first process
    clock[0] += 10
    assert found.of_socket(200) == "server (19)"


def test_what_is_remembered_is_bounded(processes: MadeUpProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_host, "_MAX_KNOWN", 3)
    found = of_host.Processes(str(processes.root))
    for inode in range(1, 20):
        found.of_socket(inode)
        found.of_pid(inode)
        assert all(len(cache) <= 3 for cache in (found._shown, found._asked, found._processes))


def test_a_socket_that_nobody_holds_is_looked_for_three_times(
    processes: MadeUpProcesses, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, scans = of_host.Processes(str(processes.root)), list[float]()
    scan = found._scan

    def counted() -> None:
        scans.append(clock[0])
        scan()

    monkeypatch.setattr(found, "_scan", counted)
    assert found.of_socket(7) is None
    for _ in range(10):
        clock[0] += 10
        found.refresh()
    assert len(scans) == 1 + of_host._MAX_ASKED


def test_sockets_are_found_at_their_process(tmp_path: Path) -> None:
    (tmp_path / str(os.getpid())).symlink_to("/proc/self")  # of all processes' only some are looked at in one scan
    processes = of_host.Processes(str(tmp_path))
    with socket.socket() as one:
        inode = os.fstat(one.fileno()).st_ino
        label = processes.of_socket(inode)
    comm = Path("/proc/self/comm").read_text().strip()
    assert label == f"{comm} ({os.getpid()})"
    assert processes.of_pid(os.getpid()) == label


def test_an_owner_is_looked_for_seldom_and_kept(tmp_path: Path) -> None:
    process = tmp_path / "42"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_bytes(b"evil\x1b[31m\xff\n")
    (process / "fd" / "3").symlink_to("socket:[777]")
    (tmp_path / "not-a-process").mkdir()
    processes = of_host.Processes(str(tmp_path))
    assert processes.of_socket(777) == "evil\x1b[31m\\xff (42)"
    (process / "fd" / "3").unlink()
    assert processes.of_socket(777) == "evil\x1b[31m\\xff (42)"
    (process / "fd" / "4").symlink_to("socket:[778]")
    assert processes.of_socket(778) is None  # not before the next scan
    assert processes.of_socket(0) is None


@pytest.mark.parametrize(("taken_s", "pause_s"), [(0.0, 1.0), (0.01, 2.0), (0.19, 5.0)])
def test_scans_pause_the_longer_the_more_cpu_time_they_take(
    taken_s: float, pause_s: float, processes: MadeUpProcesses, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = [0.0]

    def process_time() -> float:
        spent[0] += taken_s / 2  # the clock is read at the begin, once for the process, and at the end
        return spent[0]

    monkeypatch.setattr("netconsole_collector.names.processes.time.process_time", process_time)
    processes.start(20, [7])
    found = of_host.Processes(str(processes.root))
    assert (found.of_socket(7), found.of_socket(8)) == ("server (20)", None)
    processes.start(21, [8])
    for after_s, process in ((pause_s - 0.1, None), (0.2, "server (21)")):
        clock[0] += after_s
        found.refresh()
        assert found.of_socket(8) == process
