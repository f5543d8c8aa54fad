"""Facts of a host: what a value can be, and keys ``area/thing/property``, whatever the names of things contain."""

from __future__ import annotations

import msgspec

from netconsole_collector.names.fact_keys import FactValue, key, parts

__all__ = ["FactData", "FactValue", "key", "parts"]


class FactData(msgspec.Struct, frozen=True):
    """One fact of a host as documents have it (docs/reference/facts.md)."""

    value: FactValue = None
    source: str = ""
    why: str | None = None
    volatile: bool = False
