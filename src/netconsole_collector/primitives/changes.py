"""What has changed between two answers to the same question, as few bytes: for a line of 10 kB/s.

Of most questions the answer is nearly the last one: 1000 lines of /proc/net/dev, of which ten have moved.
"""

import struct
import zlib
from typing import Dict, List, Tuple

SAME, PLAIN, PIECES = 0, 1, 2
PIECE_BYTES = 16384
_AROUND_BYTES = 8192
"""A piece is told by what the last answer had at the same place, and this much before and after it."""
_SMALL_BYTES = 64
_LEVEL = 6
_LENGTH = struct.Struct("<H")


MAX_KEPT_BYTES = 8 << 20
"""Of all answers that are kept. Those that do not fit are told in full."""


class KeptAnswers:
    """The last answer to each question that has a place. Both ends keep the same."""

    def __init__(self) -> None:
        self._answers: Dict[int, bytes] = {}
        self._bytes = 0

    def last(self, place: int) -> bytes:
        """Empty where there is none, and for place 0, which keeps nothing."""
        return self._answers.get(place, b"")

    def keep(self, place: int, answer: bytes) -> None:
        """From now on this is the last one, if it fits."""
        self.forget(place)
        if place and self._bytes + len(answer) <= MAX_KEPT_BYTES:
            self._answers[place] = answer
            self._bytes += len(answer)

    def forget(self, place: int) -> None:
        """There is none any more."""
        self._bytes -= len(self._answers.pop(place, b""))


class DamagedAnswer(Exception):
    """These are not the changes of anything."""


def changes(old: bytes, new: bytes) -> Tuple[int, bytes]:
    """How ``new`` is told to somebody who has ``old``: the form, and the bytes."""
    if new == old:
        return SAME, b""
    if len(new) < _SMALL_BYTES:
        return PLAIN, new
    parts: List[bytes] = []
    for start in range(0, len(new), PIECE_BYTES):
        piece, was, around = new[start : start + PIECE_BYTES], old[start : start + PIECE_BYTES], _around(old, start)
        if piece == was:
            parts.append(_LENGTH.pack(0))
            continue
        if around:
            squeezer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=around)
        else:
            squeezer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
        part = squeezer.compress(piece) + squeezer.flush()
        parts += (_LENGTH.pack(len(part)), part)
    return PIECES, b"".join(parts)


def restored(form: int, told: bytes, size: int, old: bytes) -> bytes:
    """The answer of ``size`` bytes, from what :func:`changes` gave. Raises DamagedAnswer."""
    if form == SAME:
        return old
    if form == PLAIN and len(told) == size:
        return told
    if form != PIECES:
        raise DamagedAnswer("an answer of an unknown form")
    pieces: List[bytes] = []
    place = 0
    for start in range(0, size, PIECE_BYTES):
        if place + _LENGTH.size > len(told):
            raise DamagedAnswer("an answer that ends early")
        (length,) = _LENGTH.unpack_from(told, place)
        place += _LENGTH.size
        wanted = min(PIECE_BYTES, size - start)
        piece = old[start : start + PIECE_BYTES] if not length else _inflated(told[place : place + length], old, start)
        if len(piece) != wanted:
            raise DamagedAnswer("an answer of another size")
        pieces.append(piece)
        place += length
    if place != len(told):
        raise DamagedAnswer("an answer of another size")
    return b"".join(pieces)


def _around(old: bytes, start: int) -> bytes:
    return old[max(0, start - _AROUND_BYTES) : start + PIECE_BYTES + _AROUND_BYTES]


def _inflated(part: bytes, old: bytes, start: int) -> bytes:
    around = _around(old, start)
    filler = zlib.decompressobj(-15, zdict=around) if around else zlib.decompressobj(-15)
    try:
        piece = filler.decompress(part, PIECE_BYTES + 1)
    except zlib.error:
        raise DamagedAnswer("an answer that cannot be unpacked") from None
    if not filler.eof:
        raise DamagedAnswer("an answer that cannot be unpacked")
    return piece
