"""The maps of a probe, by their names in its source."""

import os
from typing import Dict, Optional

from netconsole_collector.kernel.bpf_maps import Map, map_kb
from netconsole_collector.probe.reading.decode import LayoutError

_FIRST = bytes(4)
"""The key of the only element of a map that the collector writes."""


class ProbeMaps:
    """Owns the descriptors of the maps."""

    def __init__(self, fds: Dict[str, int]) -> None:
        self._fds = dict(fds)
        self._maps: Dict[str, Map] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._fds

    def __getitem__(self, name: str) -> Map:
        """Raises LayoutError when there is no map of that name, and OSError."""
        if name not in self._maps:
            self._maps[name] = Map(self.fd(name))
        return self._maps[name]

    def fd(self, name: str) -> int:
        """The descriptor of a map. Raises LayoutError when there is none of that name."""
        if name not in self._fds:
            raise LayoutError("map {}: named in the manifest, not in the program".format(name))
        return self._fds[name]

    def write(self, name: str, value: bytes) -> None:
        """Writes the only element of a map, if the probe has that map. Raises OSError."""
        if name in self:
            self[name].set(_FIRST, value)

    def memory_kb(self) -> Optional[int]:
        """Kernel memory of all maps; None when the kernel does not tell that of each."""
        sizes = [map_kb(fd) for fd in self._fds.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}
