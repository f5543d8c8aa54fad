"""What a document says, for tests that hold a constant against it: who changes one of the two changes the other."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"


class Stated(NamedTuple):
    """A constant of the code, the value that a document gives it, and the words there."""

    constant: object
    value: object
    page: str
    words: str


@cache
def words_of(page: str) -> str:
    """A page of docs/ without its line breaks."""
    return " ".join((DOCS / page).read_text("utf-8").split())


def each(*stated: Stated) -> pytest.MarkDecorator:
    """The test takes each of these as ``one``, and hands it to :func:`check`."""
    return pytest.mark.parametrize("one", stated, ids=lambda one: one.words[:40])


def check(one: Stated) -> None:
    """Both say the same."""
    assert one.constant == one.value
    assert one.words in words_of(one.page), f"{one.page} does not say {one.words!r}"
