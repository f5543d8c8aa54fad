"""What a counter of ethtool -S means, for those that mean a loss or explain one (losses.toml)."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, get_args

from netconsole.base.readers import read_own_toml

LossKind: TypeAlias = Literal["loss", "part", "sign"]
"""Packets that are gone; a share of another counter of the same device; no loss, but it explains one."""
_NUMBER = re.compile(r"\d+")


class LossMeaning(NamedTuple):
    """What a counter means."""

    kind: LossKind
    text: str


def of_any_queue(name: str) -> str:
    """``rxN_drops`` of rx3_drops: the name of a counter, whatever queue or priority it is of."""
    return _NUMBER.sub("N", name)


def meaning(name: str) -> LossMeaning | None:
    """Of a counter by its name. None: not known as a loss."""
    return meanings().get(of_any_queue(name))


@cache
def meanings() -> dict[str, LossMeaning]:
    """By the name of any queue."""
    found: dict[str, LossMeaning] = {}
    parts = read_own_toml(__file__)
    for kind in get_args(LossKind):
        part = parts[kind]
        assert isinstance(part, dict)
        found.update({name: LossMeaning(kind, text) for name, text in part.items()})
    return found
