"""Samples as tables: samples that differ only in time and place are one row, and each stack is shown once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from netconsole.base import figure
from netconsole.report.blocks import Note, ReportBlock, TextTable

MAX_ROWS = 10
"""The most common samples, and the most common stacks. The JSON document has all of them."""
_NOT_COMPARED = frozenset({"wall_ns", "mono_ns", "cpu", "length_bytes", "packet"})
"""Fields that may differ between the samples of one row, as stacks may: they have a table of their own."""
_EMPTY = (None, "", 0)


def samples(events: Sequence[Mapping[str, Any]]) -> Iterator[ReportBlock]:
    """The tables of a probe's samples. None without samples."""
    if not events:
        return
    kinds: dict[tuple[tuple[str, str], ...], list[Mapping[str, Any]]] = {}
    for event in events:
        kept = [(name, str(value)) for name, value in event.items() if _is_compared(name)]
        kinds.setdefault(tuple(kept), []).append(event)
    ordered = sorted(kinds.values(), key=lambda same: (-len(same), -_longest_ns(same[0])))
    names = dict.fromkeys(name for same in ordered for name in same[0] if _is_compared(name))
    known = [name for name in names if any(same[0].get(name) not in _EMPTY for same in ordered)]
    shared = [name for name in known if len({_text(name, same[0].get(name)) for same in ordered}) == 1 < len(ordered)]
    columns = [name for name in known if name not in shared]
    of_all = "".join(f", {name} {_text(name, ordered[0][0].get(name))}" for name in shared)
    yield Note(
        f"{figure.things(len(events), 'samples')}{of_all}; the most common first, then the slowest. The table of costs"
        " counts suppressed ones."
    )
    rows = [
        [str(len(same)), _clock(same[0].get("wall_ns")), *(_text(name, same[0].get(name)) for name in columns)]
        for same in ordered[:MAX_ROWS]
    ]
    yield TextTable(["samples", "first at (UTC)", *columns], rows, frozenset({0}), max(0, len(ordered) - MAX_ROWS))
    stacks = Counter(" < ".join(map(str, stack)) for event in events if isinstance(stack := event.get("stack"), list))
    if stacks:
        shown = [[str(count), stack] for stack, count in stacks.most_common(MAX_ROWS)]
        yield TextTable(["samples", "kernel stack, innermost first"], shown, frozenset({0}), len(stacks) - len(shown))


def _is_compared(name: str) -> bool:
    return name not in _NOT_COMPARED and not name.endswith("stack")


def _clock(wall_ns: object) -> str:
    if not isinstance(wall_ns, int):
        return figure.UNKNOWN
    try:
        at = datetime.fromtimestamp(wall_ns / 1e9, timezone.utc)
    except (OverflowError, OSError, ValueError):  # a file may hold any number
        return figure.UNKNOWN
    return at.strftime("%H:%M:%S.%f")[:-3]


def _longest_ns(event: Mapping[str, Any]) -> int:
    times = [value for name, value in event.items() if _is_compared(name) and name.endswith("_ns")]
    return max((value for value in times if isinstance(value, int)), default=0)


def _text(name: str, value: object) -> str:
    if name.endswith("_ns") and isinstance(value, int):
        return figure.duration(value, "ns")
    return figure.UNKNOWN if value is None else str(value)
