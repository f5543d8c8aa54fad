"""What the indices of a guest's ring prove: what it has offered, what came back, and when it wants an interrupt.

The indices are those of vhost_queues, at the end of the last run: each counts buffers modulo 2^16 (virtio 1.1, 2.6).
"""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.snapshot.document import number

_INDICES = 1 << 16
_NO_INTERRUPT = 1
"""VRING_AVAIL_F_NO_INTERRUPT."""


def indices(values: Mapping[str, object]) -> str:
    """What each side has done, as counts of buffers; empty where it is not known."""
    found = [number(values.get(name)) for name in ("avail_idx", "taken_idx", "used_idx", "size_buffers")]
    if any(one is None for one in found) or not found[3]:
        return ""
    offered, taken, used, size = (int(one or 0) for one in found)
    held = (offered - used) % _INDICES
    return f"guest offered up to {offered}, vhost took up to {taken}, gave back up to {used}: {held} of {size} are left"


def interrupt(values: Mapping[str, object]) -> str:
    """When the guest wants its next interrupt; empty where it is not known."""
    by_index, wanted, used, flags = (
        number(values.get(name)) for name in ("has_event", "used_event", "used_idx", "avail_flags")
    )
    if by_index is None or wanted is None or used is None or flags is None or not indices(values):
        return ""
    if not by_index:
        return "it wants no interrupts (flag 1)" if int(flags) & _NO_INTERRUPT else "it wants every interrupt (flag 0)"
    passed = (int(used) - int(wanted)) % _INDICES
    if not passed or passed >= _INDICES // 2:
        return f"it wants an interrupt once more than {int(wanted)} are given back"
    return f"it wanted an interrupt behind {int(wanted)}, {passed} before: none follows until it moves that"
