"""Student's t is that of the tables."""

from __future__ import annotations

import pytest

from netconsole.base import student_t


@pytest.mark.parametrize(
    ("degrees", "confidence", "expected"),
    [(1, 0.95, 12.706), (4, 0.95, 2.776), (4, 0.99, 4.604), (5, 0.99, 4.032), (9, 0.99, 3.250), (29, 0.95, 2.045)],
)
def test_quantiles_are_those_of_the_tables(degrees: int, confidence: float, expected: float) -> None:
    assert student_t.quantile(degrees, confidence) == pytest.approx(expected, abs=0.001)
    assert student_t.beyond(expected, degrees) == pytest.approx(1 - confidence, rel=0.001)
    assert student_t.beyond(-expected, degrees) == student_t.beyond(expected, degrees)


def test_without_a_degree_of_freedom_nothing_is_beyond_chance() -> None:
    assert student_t.beyond(1e6, 0) == 1.0
