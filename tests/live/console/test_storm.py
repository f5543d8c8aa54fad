"""A storm does not blind the console: each second, the snapshot and the recording have its reasons and places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from netconsole.base import paths
from netconsole.budget.governor import REACTION_S
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load_file
from tests.support.live.network import Namespace
from tests.support.live.storm import OF_802_2, TO_CLOSED_PORT
from tests.support.live.storm_course import Course, run

pytestmark = pytest.mark.costs

SHARE = 0.99
"""Of what was sent, that has to have reason and place."""
ERROR = 0.01
SECONDS = 9
MIXED = (TO_CLOSED_PORT, OF_802_2, OF_802_2, OF_802_2)
"""In turn: a period that divides that of the blocks of which one packet is taken."""
REASONS = {TO_CLOSED_PORT: "NO_SOCKET", OF_802_2: "NOT_SPECIFIED"}
TIGHT_PCT = 4.0
"""What rows of all packets take is more, and what rows of 1 in 16 take is less than five times as much."""


def shipped_pct() -> float:
    """The budget of the profile summary."""
    profile = load_file(paths.data("profiles") / "summary.toml", load_all())
    assert profile.budget.kernel_cpu_pct is not None
    return profile.budget.kernel_cpu_pct


def assert_seen(course: Course, frames: Sequence[bytes]) -> None:
    """All of it has reason and place, in every reader's figures and in each second."""
    print(course.told())
    assert course.status == "attached"
    wanted = {reason: course.sent * sum(REASONS[one] == reason for one in frames) / len(frames)
              for reason in {REASONS[one] for one in frames}}  # fmt: skip
    for found in (course.live, course.taken, course.recorded):
        for reason, count in wanted.items():
            assert found[reason] >= SHARE * count and abs(found[reason] - count) <= ERROR * count, (reason, found)
    assert all(one.is_watched for one in course.seconds)
    counted = listed = 0  # until then: the counter is read a moment before the rows, and the next second has the rest
    for one in course.seconds:
        assert one.counted is not None, "nothing is known of it"
        counted, listed = counted + one.counted, listed + one.listed
        assert abs(listed - counted) <= ERROR * counted


@pytest.mark.parametrize(
    ("frames", "per_s", "senders"),
    [
        pytest.param((TO_CLOSED_PORT,), 100_000, 1, id="0.1M", marks=pytest.mark.long),
        pytest.param((OF_802_2,), 500_000, 1, id="0.5M", marks=pytest.mark.long),
        pytest.param((OF_802_2,), 1_000_000, 2, id="1M"),
        pytest.param(MIXED, 500_000, 2, id="mixed", marks=pytest.mark.long),
    ],
)
def test_each_second_of_a_storm_has_its_reasons_and_places_within_the_budget(
    tmp_path: Path, namespace: Namespace, frames: Sequence[bytes], per_s: int, senders: int
) -> None:
    limit_pct = shipped_pct()
    course = run(tmp_path, namespace, frames, per_s, SECONDS, limit_pct, senders)
    assert_seen(course, frames)
    late = [one.kernel_pct for one in course.seconds[round(REACTION_S) + 1 : SECONDS]]
    assert median(late) <= limit_pct


def test_rows_of_a_share_of_the_packets_are_right_within_their_error(tmp_path: Path, namespace: Namespace) -> None:
    course = run(tmp_path, namespace, MIXED, 500_000, SECONDS, TIGHT_PCT, 2)
    assert_seen(course, MIXED)
    assert course.seconds[SECONDS - 1].one_in > 1, "the budget is for that"
    assert any("kernel_drops: rows of 1 packet in" in one for one in course.said)
    for reason, share in (("NO_SOCKET", 0.25), ("NOT_SPECIFIED", 0.75)):
        assert 0 < course.errors[reason] <= ERROR * course.taken[reason]
        assert abs(course.taken[reason] - share * course.sent) <= 2 * course.errors[reason] + 64
