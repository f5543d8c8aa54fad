"""Which alternative of a program counts, on kernels that lack what the first one needs."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole_collector.compile.compiled import AttachTarget, can_be_typed, first_choice

NEW, OLD = "raw_tracepoint:new_one", "raw_tracepoint:old_one"
PROGRAM: dict[str, Any] = {"attach": [{"point": NEW, "when": "NARGS_new_one"}, {"point": OLD}]}


@pytest.mark.parametrize(("facts", "chosen"), [({"NARGS_new_one": 1}, NEW), ({}, OLD)])
def test_an_alternative_that_this_kernel_cannot_have_is_no_choice(facts: dict[str, int], chosen: str) -> None:
    assert first_choice(PROGRAM, facts)["point"] == chosen
    targets = {one: AttachTarget(7 if one == chosen else 0, "", 1) for one in (NEW, OLD)}
    assert can_be_typed(PROGRAM, targets, facts)
    assert not can_be_typed(PROGRAM, {one: AttachTarget(0, "", 1) for one in targets}, facts)


def test_where_none_can_be_had_the_last_one_says_why() -> None:
    program = {"attach": [{"point": NEW, "when": "NARGS_new_one"}, {"point": OLD, "when": "NARGS_old_one"}]}
    assert first_choice(program, {})["point"] == OLD
