"""Counters and their rows: reports a change once, and leaves rows that are no fault out of a counter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import TypeAlias

from netconsole.compare.judge import Judged
from netconsole.compare.metrics import ColumnKey, Identity, Metric, Metrics

Part: TypeAlias = tuple[Identity, float]
"""The counter that a row belongs to, and the row's share of its change."""
Pair: TypeAlias = tuple[Metric, list[Metric | None], list[Metrics]]
"""A metric, the baseline's metrics to compare it with, and their snapshots."""
_SAME_CHANGE = 0.5
"""When rows have at least this share of a counter's change, only the rows are reported."""


def rests(pairs: Iterable[Pair], now: Metrics, unmatched: Set[Identity]) -> list[Pair]:
    """Subtracts from counters the rows that are benign, or that cannot be compared.

    It does so only where the rows of a counter add up to it in all snapshots. Else the rest is not known.
    """
    known: dict[int, Mapping[Identity, int]] = {}
    result: list[Pair] = []
    for metric, past, sides in pairs:
        if metric.kind == "counter":
            for side in (now, *sides):
                if id(side) not in known:
                    known[id(side)] = _aside(side, unmatched)
            told = [known[id(side)].get(metric.identity) for side in (now, *sides)]
            empty = [one is None or not one.count for one in (metric, *past)]
            if any(told) and all(aside is not None or none for aside, none in zip(told, empty, strict=True)):
                metric = _without(metric, told[0])
                past = [one and _without(one, aside) for one, aside in zip(past, told[1:], strict=True)]
        result.append((metric, past, sides))
    return result


def _aside(side: Metrics, unmatched: Set[Identity]) -> dict[Identity, int]:
    """For each counter that is the sum of its rows: how much of it is no fault, or cannot be compared.

    Several columns may add up to the same counter. Then the column with the largest amount counts.
    """
    found: dict[Identity, dict[ColumnKey, int]] = {}
    for row in side.by_identity.values():
        whole = side.by_identity.get(row.counter) if row.counter is not None else None
        if whole is not None and whole.kind == "counter":
            is_aside = row.identity in unmatched or (whole.worse is not None and row.worse is None)
            by_column, column = found.setdefault(whole.identity, {}), row.identity[:3]
            by_column[column] = by_column.get(column, 0) + (row.count if is_aside else 0)
    return {counter: max(by_column.values()) for counter, by_column in found.items()}


def _without(counter: Metric, aside: int | None) -> Metric:
    return replace(counter, count=max(0, counter.count - (aside or 0)), is_rest=True, parts=None)


def said_once(certain: list[Judged], judged: Mapping[Identity, Judged]) -> tuple[list[Judged], dict[Identity, Part]]:
    """Leaves out counters whose change is that of their rows. Returns the share of each row in the change."""
    rows: dict[Identity, list[Judged]] = {}
    for one in certain:
        whole_of = judged.get(one.metric.counter) if one.metric.counter is not None else None
        # A row that is no fault is not a part of its counter's fault.
        if whole_of is not None and (one.metric.worse is not None or whole_of.metric.worse is None):
            rows.setdefault(whole_of.metric.identity, []).append(one)
    parts: dict[Identity, Part] = {}
    gone = set()
    for key, members in rows.items():
        whole = change_of(judged[key])
        if not whole:
            continue
        if judged[key].metric.kind != "counter":  # the busiest CPU's part of a sum: one finding is enough
            if any(judged[key] is one for one in certain):
                gone |= {one.metric.identity for one in members}
            continue
        for one in members:
            parts[one.metric.identity] = (key, change_of(one) / whole)
        if sum(change_of(one) for one in members) / whole >= _SAME_CHANGE:
            gone.add(key)
    return [one for one in certain if one.metric.identity not in gone], parts


def change_of(one: Judged) -> float:
    """Current minus baseline, of the statistic that a finding shows."""
    return (one.stands_for.current or 0.0) - (one.stands_for.baseline or 0.0)
