"""Finds processes that are new, by looking at each a few times: what it runs may come after its start (fork, exec)."""

from typing import Dict, Iterator, List, Set

from netconsole_collector.primitives.here import Here


class NewProcesses:
    """Those of a host. What is kept of one is for its caller to say (:meth:`look`, :meth:`forget`)."""

    def __init__(self, host: Here, looks: int) -> None:
        """After so many ``looks`` a process is left alone."""
        self._host = host
        self._most = looks
        self._looks: Dict[str, int] = {}

    def all(self) -> Iterator[str]:
        """The numbers of those that run now."""
        return (name for name in self._host.names("/proc") if name.isdigit())

    def look(self, known: Set[str]) -> List[str]:
        """Those that have been looked at fewer than a few times, without the ``known`` ones."""
        pids = set(self.all())
        self._looks = {pid: looks for pid, looks in self._looks.items() if pid in pids}
        young = [pid for pid in pids - known if self._looks.get(pid, 0) < self._most]
        for pid in young:
            self._looks[pid] = self._looks.get(pid, 0) + 1
        return young

    def forget(self, pid: str) -> None:
        """Look at it again: another process may have got its number."""
        self._looks.pop(pid, None)


def words(command_line: str) -> List[str]:
    """The words of /proc/PID/cmdline; one empty word for a thread of the kernel."""
    return command_line.rstrip("\0").split("\0")
