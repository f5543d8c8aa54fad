"""Reads the sources in two threads: those that wait for another process keep no others waiting."""

from typing import Dict, List, Optional

from netconsole_collector.sources.base import Json
from netconsole_collector.sources.known import APART
from netconsole_collector.sources.reader import Dated, SourceReader


class SourceReaders:
    """Of one collector, in whose thread all methods are called: see SourceReader."""

    def __init__(self) -> None:
        self._readers = (SourceReader(), SourceReader())
        self._awaited: List[SourceReader] = []
        """Those that were asked for this interval; what is late by then is of a later one."""

    @property
    def fds(self) -> List[int]:
        """Each is readable when there is something to take."""
        return [one.fd for one in self._readers]

    @property
    def probes(self) -> Dict[str, str]:
        """The mode of each probe that is read so."""
        return {probe: mode for one in self._readers for probe, mode in one.probes.items()}

    @property
    def is_reading(self) -> bool:
        """Whether figures of this interval are to come."""
        return any(one.is_reading for one in self._awaited)

    @property
    def is_idle(self) -> bool:
        """Whether no figures are to come, of no interval."""
        return not any(one.is_reading for one in self._readers)

    def modes(self, probe: str) -> List[str]:
        """Those that it may have."""
        return self._of(probe).modes[probe]

    def start(self, command: Json) -> None:
        """See SourceReader."""
        self._readers[command["spec"]["probe"]["source"] in APART].start(command)

    def stop(self, probe: str) -> str:
        """See SourceReader."""
        return self._of(probe).stop(probe)

    def change(self, probe: str, mode: str, why: Optional[str]) -> None:
        """See SourceReader."""
        self._of(probe).change(probe, mode, why)

    def read(self, now_ns: int, is_whole: bool = False) -> bool:
        """Asks for the figures of this interval. False: some of the last ones are still to come."""
        self._awaited = [one for one in self._readers if one.read(now_ns, is_whole)]
        return len(self._awaited) == len(self._readers)

    def told(self, now_ns: int) -> List[Dated]:
        """See SourceReader."""
        return [told for one in self._readers for told in one.told(now_ns)]

    def figures(self) -> List[Dated]:
        """See SourceReader."""
        return [figures for one in self._readers for figures in one.figures()]

    def _of(self, probe: str) -> SourceReader:
        return next(one for one in self._readers if probe in one.probes)
