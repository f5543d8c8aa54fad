"""Checks what a probe assumes about the kernel's structures, on real objects (probes/common/checks.h)."""

import struct
from typing import Any, Dict, List

from netconsole_collector.kernel import bpf_maps

MAP = "nc_checks"
ENOUGH = 16
"""After so many failures and no success a layout is wrong. A few failures come from objects that come or go."""

_COUNTS = struct.Struct("=QQ")

Json = Dict[str, Any]


class Checks:
    """The checks of a probe that are not decided yet."""

    def __init__(self, specs: List[Json], counts: bpf_maps.Map) -> None:
        self._waiting = list(specs)
        self._counts = counts

    def newly_failed(self) -> List[Json]:
        """Checks that failed often and never held. Each is returned once. A check that has held is done."""
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
