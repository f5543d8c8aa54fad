"""What a namespace is set up with as a number and a hash, and the attributes of netlink that it is made of."""

import hashlib
import struct
from typing import Any, Dict, Iterable, Iterator, List, Tuple

Digest = Dict[str, Any]
_ATTRIBUTE = struct.Struct("=HH")
_TYPE = 0x3FFF


def attributes(body: bytes, offset: int) -> Iterator[Tuple[int, bytes]]:
    """Type and value of each, from an offset on."""
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size or offset + length > len(body):
            return
        yield kind & _TYPE, body[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3


def written(kind: int, value: bytes) -> bytes:
    """An attribute so that no two of them together look like another one."""
    return struct.pack("=II", kind, len(value)) + value


def digest(parts: Iterable[bytes], in_order: bool = False) -> Digest:
    """How many there are, and the hash of all."""
    listed: List[bytes] = list(parts)
    made = hashlib.sha256()
    for part in listed if in_order else sorted(listed):
        made.update(struct.pack("=I", len(part)) + part)
    return {"count": len(listed), "hash": made.hexdigest()[:16]}
