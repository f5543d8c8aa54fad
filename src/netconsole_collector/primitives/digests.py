"""What a namespace is set up with as a number and a hash."""

import struct
from typing import Any, Dict, Iterable, List

from netconsole_collector.types.sha256 import sha256

Digest = Dict[str, Any]


def written(kind: int, value: bytes) -> bytes:
    """An attribute so that no two of them together look like another one."""
    return struct.pack("=II", kind, len(value)) + value


def digest(parts: Iterable[bytes], in_order: bool = False) -> Digest:
    """How many there are, and the hash of all."""
    listed: List[bytes] = list(parts)
    made = sha256()
    for part in listed if in_order else sorted(listed):
        made.update(struct.pack("=I", len(part)) + part)
    return {"count": len(listed), "hash": made.hexdigest()[:16]}
