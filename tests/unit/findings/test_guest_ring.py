"""What the indices of a ring say: over the end of 16 bits, with event indices and without, and where one is unknown."""

from __future__ import annotations

import pytest

from netconsole.findings.guest_ring import indices, interrupt, told

RING = {"avail_idx": 4, "taken_idx": 3, "used_idx": 65_534, "size_buffers": 256}


def test_what_is_left_is_what_was_offered_and_not_given_back() -> None:
    ring = indices(RING)
    assert ring is not None and (ring.offered, ring.taken, ring.used, ring.left) == (4, 3, 65_534, 6)
    assert told(RING) == "guest offered up to 4, vhost took up to 3, gave back up to 65534: 6 of 256 are left"


@pytest.mark.parametrize("lacks", [*RING])
def test_without_one_of_them_nothing_is_said(lacks: str) -> None:
    found = {**RING, lacks: None, "has_event": 1, "used_event": 0, "avail_flags": 0}
    assert told(found) == interrupt(found) == ""
    assert indices({**RING, "size_buffers": 0}) is None


@pytest.mark.parametrize(
    ("by_index", "wanted", "flags", "words"),
    [
        (0, 9, 0, "every interrupt"),
        (0, 9, 1, "no interrupts"),
        (0, 9, 3, "no interrupts"),
        (1, 65_534, 1, "once more than 65534"),
        (1, 2, 0, "once more than 2"),
        (1, 65_533, 0, "behind 65533, 1 ago"),
        (1, 32_767, 0, "behind 32767, 32767 ago"),
        (1, 32_766, 0, "once more than 32766"),
    ],
)
def test_when_the_next_interrupt_is_wanted(by_index: int, wanted: int, flags: int, words: str) -> None:
    assert words in interrupt({**RING, "has_event": by_index, "used_event": wanted, "avail_flags": flags})


def test_a_snapshot_from_before_says_nothing_of_interrupts() -> None:
    assert interrupt(RING) == ""
