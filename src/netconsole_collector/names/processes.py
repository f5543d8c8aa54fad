"""The process behind a pid, and the process that holds a socket: from /proc, and only when somebody asks.

A scan reads every descriptor of every process. On a busy host it takes 10 ms and more, so the next one waits the longer
the more CPU time it took. A socket has no process (None) until a scan has found it.
"""

import os
import re
import time
from typing import Any, Dict, Optional

from netconsole_collector.names.descriptors import opened

_SCAN_EVERY_S = (1.0, 5.0)
"""At least and at most: from scan to scan."""
_SHARE = 0.005
"""Of one CPU: what scans may take, unless they would come more seldom than that."""
_MAX_SCAN_S = 0.2
"""CPU time. A scan that takes more stops, and the next one goes on from there. On a busy host, the time that we wait
for a CPU is none."""
_MAX_KNOWN = 16384
"""Sockets of one scan. A scan that finds more stops as well, and the next one forgets what it found."""
_MAX_ASKED = 3
"""Scans for one socket. After them we take it that no process that we can see holds it."""
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class Processes:
    """Keeps its answers: once a row has a label, the label must not change unless it was unknown.

    ``changes`` counts how often something unknown became known.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._processes: Dict[int, str] = {}
        self._sockets: Dict[int, str] = {}
        self._shown: Dict[int, Optional[str]] = {}
        self._asked: Dict[int, int] = {}
        self.changes = 0
        self._next_scan = 0.0
        self._resume_at = 0

    def of_pid(self, pid: int) -> Optional[str]:
        """ "name (pid)", or the pid alone when the process is gone. None for 0, which is the kernel."""
        if not pid:
            return None
        if pid not in self._processes:
            self._make_room(self._processes)
            self._processes[pid] = self._described(pid)
        return self._processes[pid]

    def of_socket(self, inode: int) -> Optional[str]:
        """ "name (pid)" of a process that holds the socket with this inode. None when it is not known, or not yet."""
        if not inode:
            return None
        if self._shown.get(inode) is None:
            if inode not in self._sockets and time.monotonic() >= self._next_scan:
                self._scan()
            self._make_room(self._shown)
            self._shown[inode] = self._sockets.get(inode)
            if self._shown[inode] is None:
                self._make_room(self._asked)
                self._asked.setdefault(inode, 0)
        return self._shown[inode]

    def refresh(self) -> None:
        """Looks again for sockets that were not found: not too often, and not for ever."""
        if time.monotonic() < self._next_scan or all(asked >= _MAX_ASKED for asked in self._asked.values()):
            return
        self._scan()
        for inode, asked in list(self._asked.items()):
            if inode in self._sockets:
                self.changes += 1
                self._asked.pop(inode)
            elif not self._resume_at:  # the scan has seen all processes
                self._asked[inode] = asked + 1

    def _described(self, pid: int) -> str:
        name = self._comm(pid)
        return "{} ({})".format(name, pid) if name else str(pid)

    def _comm(self, pid: int) -> Optional[str]:
        try:
            with open(os.path.join(self._proc, str(pid), "comm"), "rb") as file:
                return file.read(64).rstrip(b"\n").decode("utf-8", "backslashreplace")
        except OSError:
            return None

    def _scan(self) -> None:
        started = time.process_time()
        self._scan_from(started)
        least, most = _SCAN_EVERY_S
        taken = time.process_time() - started
        self._next_scan = time.monotonic() + min(most, max(least, taken / _SHARE))

    def _scan_from(self, started: float) -> None:
        if not self._resume_at or len(self._sockets) >= _MAX_KNOWN:
            self._sockets = {}
        pids = sorted(int(name) for name in os.listdir(self._proc) if name.isdigit())
        for pid in pids:
            if pid <= self._resume_at:
                continue
            if time.process_time() - started > _MAX_SCAN_S or len(self._sockets) >= _MAX_KNOWN:
                self._resume_at = pid - 1
                return
            self._scan_process(pid)
        self._resume_at = 0

    def _scan_process(self, pid: int) -> None:
        process = None
        for _, target in opened(os.path.join(self._proc, str(pid), "fd")):
            match = _SOCKET.match(target)
            if match:
                process = process or self._described(pid)
                self._sockets.setdefault(int(match.group(1)), process)

    @staticmethod
    def _make_room(cache: Dict[int, Any]) -> None:
        if len(cache) >= _MAX_KNOWN:
            cache.clear()
