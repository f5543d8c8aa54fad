"""Facts of a host: what a value can be, and keys ``area/thing/property``, whatever the names of things contain."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

FactValue: TypeAlias = str | int | float | bool | list[str] | None


class FactData(msgspec.Struct, frozen=True):
    """One fact of a host as documents have it (docs/reference/facts.md)."""

    value: FactValue = None
    source: str = ""
    why: str | None = None
    volatile: bool = False


def key(*parts: str | int) -> str:
    """The key of a fact: its parts joined by ``/``. A ``/`` inside a part (a name from outside) becomes %2F."""
    return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in parts)


def parts(fact_key: str) -> list[str]:
    """The parts that :func:`key` joined."""
    return [part.replace("%2F", "/").replace("%25", "%") for part in fact_key.split("/")]
