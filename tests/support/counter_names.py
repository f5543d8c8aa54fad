"""The names of all counters that protocols have in a kernel, and which of them nobody here has heard of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from netconsole.base.readers import read_toml
from netconsole_collector.sources.net.protocol_counters import (
    CONNTRACK,
    PAIRED,
    SINGLE,
    parse_conntrack,
    parse_paired,
    parse_single,
)

TABLE: Any = read_toml(Path(__file__).with_name("data") / "provoked-counters.toml")
KNOWN = [name for part in ("names", "sctp", "other_kernels") for name in TABLE["kernel"][part].split()]
FILES = (*PAIRED, *SINGLE, CONNTRACK)
"""Below /proc/net."""
_BY_TYPE = re.compile(r"(IcmpMsg|Icmp6)(In|Out)Type[0-9]+")
"""Such a line comes with the first message of its type."""


def names(read: Callable[[str], str | None]) -> list[str]:
    """Of a kernel; ``read`` gives the text of one of FILES, or None where the kernel has it not."""
    found: list[str] = []
    for files, parse in ((PAIRED, parse_paired), (SINGLE, parse_single), ((CONNTRACK,), parse_conntrack)):
        for file in files:
            text = read(file)
            found += [name for name, _ in parse(text)] if text is not None else []
    return found


def unknown(found: Iterable[str]) -> list[str]:
    """Those that neither are known to be harmless nor have a meaning."""
    return [name for name in found if name not in KNOWN and not _BY_TYPE.fullmatch(name)]
