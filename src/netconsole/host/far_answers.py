"""How questions to a far host are written, and its answers read (netconsole_collector/primitives/server.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netconsole.host.target import Question
from netconsole_collector.primitives.answers import MESSAGE
from netconsole_collector.primitives.files import MAX_FILE_BYTES
from netconsole_collector.primitives.server import FAILED, ITEM


class BrokenReply(Exception):
    """What has come is no answer. The message says of what."""


def messages(answer: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """Kind, whether it was asked for, and body of the netlink messages of an answer. Raises BrokenReply."""
    view, offset = memoryview(answer), 0
    while offset + MESSAGE.size <= len(view):
        kind, is_asked, length = MESSAGE.unpack_from(view, offset)
        offset += MESSAGE.size
        if offset + length > len(view):
            raise BrokenReply("netlink")
        yield kind, is_asked, view[offset : offset + length]
        offset += length


def item_at(body: memoryview, offset: int) -> tuple[int, int, int, int, int]:
    """Form, place, length, size and µs of the next answer; place -1 at the end."""
    if offset + ITEM.size > len(body):
        return FAILED, -1, 0, 0, 0
    form, place, length, size, took_us = ITEM.unpack_from(body, offset)
    return form, place, length, size, took_us


def complete(question: Question) -> Question:
    """With the arguments that its method adds: the same question, however it was written."""
    if question.method == "read" and len(question.arguments) < 3:
        path, limit = (*question.arguments, MAX_FILE_BYTES)[:2]
        return Question("read", (path, limit, False))
    return question


def argument(value: object) -> Any:
    """Bytes as hexadecimal, without the zeros at their end, and their length."""
    if not isinstance(value, bytes):
        return value
    begin = value.rstrip(b"\0").hex()
    return f"{begin}+{len(value)}"


def error_of(told: bytes) -> OSError:
    """An answer that is an error. Raises BrokenReply."""
    number, _, words = told.decode("utf-8", "replace").partition(" ")
    if not (number.isascii() and number.isdecimal()):
        raise BrokenReply("an error without a number")
    return OSError(int(number[:4]), words)


def texts(answer: bytes) -> list[str]:
    """Names, as os.fsdecode has them."""
    return [text(one) for one in answer.split(b"\0")] if answer else []


def text(answer: bytes) -> str:
    """One name."""
    return answer.decode("utf-8", "surrogateescape")
