"""What the indices of a guest's ring prove: what it has offered, what came back, and when it wants an interrupt.

The indices are those of vhost_queues, at the end of the last run: each counts buffers modulo 2^16 (virtio 1.1, 2.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netconsole.snapshot.document import number

_INDICES = 1 << 16
_NO_INTERRUPT = 1
"""VRING_AVAIL_F_NO_INTERRUPT."""


class RingIndices(NamedTuple):
    """So far the guest has offered buffers, and vhost has taken them and given them back."""

    offered: int
    taken: int
    used: int
    size: int

    @property
    def left(self) -> int:
        """Buffers that the guest has offered and that did not come back."""
        return (self.offered - self.used) % _INDICES


def indices(values: Mapping[str, object]) -> RingIndices | None:
    """None where they are not known."""
    found = [number(values.get(name)) for name in ("avail_idx", "taken_idx", "used_idx", "size_buffers")]
    known = [int(one) for one in found if one is not None]
    return RingIndices(*known) if len(known) == len(found) and known[3] else None


def told(values: Mapping[str, object]) -> str:
    """What each side has done; empty where it is not known."""
    ring = indices(values)
    if ring is None:
        return ""
    done = f"guest offered up to {ring.offered}, vhost took up to {ring.taken}, gave back up to {ring.used}"
    return f"{done}: {ring.left} of {ring.size} are left"


def interrupt(values: Mapping[str, object]) -> str:
    """When the guest wants its next interrupt; empty where it is not known."""
    by_index, wanted, used, flags = (
        number(values.get(name)) for name in ("has_event", "used_event", "used_idx", "avail_flags")
    )
    if by_index is None or wanted is None or used is None or flags is None or indices(values) is None:
        return ""
    if not by_index:
        return "wants no interrupts (flag 1)" if int(flags) & _NO_INTERRUPT else "wants every interrupt (flag 0)"
    passed = (int(used) - int(wanted)) % _INDICES
    if not passed or passed >= _INDICES // 2:
        return f"wants an interrupt once more than {int(wanted)} are given back"
    return f"wanted an interrupt behind {int(wanted)}, {passed} ago: none until it moves that"
