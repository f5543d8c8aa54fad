"""A BPF map in this process, to test readers of maps."""

from __future__ import annotations

import struct

from netconsole_collector.kernel.bpf_maps import MapInfo
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups

CPUS = 3


def labels() -> Labeller:
    return Labeller(Lookups(), DropReasons({}))


class FakeMap:
    """A per-CPU hash in this process."""

    is_array = False

    def __init__(self, key_size: int = 8, value_size: int = 24, max_entries: int = 8) -> None:
        self.info = MapInfo(5, 1, key_size, value_size, max_entries, 0, "fake")
        self.slot_bytes = (value_size + 7) // 8 * 8
        self.value_bytes = self.slot_bytes * CPUS
        self.content: dict[bytes, bytes] = {}

    def items(self) -> list[tuple[bytes, bytes]]:
        return list(self.content.items())

    def delete(self, key: bytes) -> bool:
        return self.content.pop(key, None) is not None

    def put(self, queue: int, protocol: int, *values: tuple[int, int, int]) -> None:
        """One value for each CPU."""
        raw = b"".join(struct.pack("=3Q", *value) for value in values)
        self.content[struct.pack("=II", queue, protocol)] = raw.ljust(self.value_bytes, b"\0")
