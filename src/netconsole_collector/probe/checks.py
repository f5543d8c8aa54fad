"""What a probe believes of the kernel's structures, as living objects have it (probes/common/checks.h)."""

import struct
from typing import Any, Dict, List

from netconsole_collector.kernel import bpf_maps

MAP = "nc_checks"
ENOUGH = 16
"""Failures without a single success after which a layout is wrong: an object that comes or goes refutes a few times."""

_COUNTS = struct.Struct("=QQ")

Json = Dict[str, Any]


class Checks:
    """The checks of one probe's manifest that have not failed yet."""

    def __init__(self, specs: List[Json], counts: bpf_maps.Map) -> None:
        self._waiting = list(specs)
        self._counts = counts

    def newly_failed(self) -> List[Json]:
        """Checks that failed often and never held; each is told once. One that has held is settled."""
        failed = []
        for spec in list(self._waiting):
            raw = self._counts.get(struct.pack("=I", spec["slot"])) or b""
            counts = list(_COUNTS.iter_unpack(raw))
            if any(held for held, _ in counts):
                self._waiting.remove(spec)
            elif sum(refuted for _, refuted in counts) >= ENOUGH:
                self._waiting.remove(spec)
                failed.append(spec)
        return failed
