"""The filter `reason`: what it lets pass, and what it says of a name that no kernel has."""

from __future__ import annotations

import pytest

from netconsole_collector.probe import drop_filter
from netconsole_collector.probe.drop_filter import ReasonError


@pytest.mark.parametrize(
    ("text", "passed"),
    [("", "ABC"), ("A", "A"), ("a, C", "AC"), ("not:A", "BC"), ("NOT: a,b", "C")],
)
def test_a_filter_lets_its_own_reasons_pass_or_all_others(text: str, passed: str) -> None:
    assert "".join(filter(drop_filter.parse(text).passes, "ABC")) == passed


def test_at_most_three_names_are_proposed_for_one_that_is_not_there() -> None:
    known = {str(value): f"QDISC_DROP_{value}" for value in range(2, 7)}
    with pytest.raises(ReasonError, match=r"has no drop reason QDISC_DROP: did you mean (\w+ or ){2}\w+\?$"):
        drop_filter.numbers(drop_filter.parse("QDISC_DROP"), known)
