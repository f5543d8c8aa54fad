"""The order of rows: by rank, but they keep their places for some seconds, so that people can read them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

HOLD_S = 5.0
"""Rows keep their places this long after a change of rank."""


class StableOrder:
    """Keeps keys in their places. A new ranking is used at most every HOLD_S seconds.

    Until then new keys come last, or with ``has_news`` above the first one that ranks below them: in a list of what
    happens, nobody looks at its end.
    """

    def __init__(self, has_news: bool = False) -> None:
        self._has_news = has_news
        self._order: list[Hashable] = []
        self._changed_s: float | None = None
        self.frozen = False
        """The user has paused the order: rows still come and go, but none moves."""

    def release(self) -> None:
        """The user has chosen another order: the next ranking is used at once."""
        self._changed_s = None

    def arrange(
        self, ranked: Sequence[KeyT], now_s: float, last: Mapping[Hashable, int] = MappingProxyType({})
    ) -> list[KeyT]:
        """The keys of ``ranked`` (best first) in the order for the screen at ``now_s``.

        Those of ``last`` go at once below those that are not in it or have a lower figure there.
        """
        due = self._changed_s is None or (not self.frozen and now_s - self._changed_s >= HOLD_S)
        result = list(ranked) if due else self._kept(ranked)
        if due and result != self._order:
            self._changed_s = now_s
        if last and not self.frozen:
            result.sort(key=lambda key: last.get(key, 0))
        self._order = list(result)
        return result

    def _kept(self, ranked: Iterable[KeyT]) -> list[KeyT]:
        present = dict.fromkeys(ranked)
        kept = [key for key in self._order if key in present]
        known = set(kept)
        new = [key for key in present if key not in known]
        if not self._has_news or self.frozen:
            return [*kept, *new]
        rank = {key: number for number, key in enumerate(present)}
        for key in new:
            place = next((at for at, other in enumerate(kept) if rank[other] > rank[key]), len(kept))
            kept.insert(place, key)
        return kept
