"""A program that a kernel does without is left out without a word, and refuses nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from netconsole_collector.compile import worker
from netconsole_collector.compile.compiled import PLAIN, Compiled
from netconsole_collector.compile.refused import ProbeRefused
from netconsole_collector.kernel import attach
from netconsole_collector.probe.spec import spec_problem

FREED = {"name": "freed", "required": True, "attach": [{"point": "raw_tracepoint:kfree_skb", "function": "freed"}]}
EXECUTED = {
    "name": "executed",
    "required": True,
    "measures": "drops by flows",
    "unless": "HAVE_OVS_DROP_LAST_ACTION",
    "attach": [{"point": "entry:ovs_execute_actions", "function": "executed"}],
}
SAYS_WHY = {"HAVE_OVS_DROP_LAST_ACTION": 1}


def attached(monkeypatch: pytest.MonkeyPatch, programs: list[dict[str, Any]], facts: dict[str, int]) -> tuple[Any, Any]:
    """The names of the programs that are attached, and those that are missing, where there are no kprobes."""

    def attached_at(*arguments: Any) -> tuple[int, int]:
        if arguments[3].kind in attach.BY_KPROBE:
            raise attach.CannotAttach(attach.NO_KPROBES)
        return os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(worker, "attached_at", attached_at)
    monkeypatch.setattr(attach, "has_kprobes", lambda: False)
    one = worker.Worker({"spec": {"probe": {}, "programs": programs}})
    one.refuse_early()
    try:
        found, missing = one._programs(Compiled({}, {}, facts, {}, "btf", PLAIN, {}, {}, 0), {})
        return [program["name"] for program in found], missing
    finally:
        one.drop()


def test_what_this_kernel_does_without_is_neither_attached_nor_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attached(monkeypatch, [FREED, EXECUTED], SAYS_WHY) == (["freed"], [])


def test_a_kernel_that_needs_it_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ProbeRefused, match="drops by flows cannot be measured: kprobe:ovs_execute_actions: this kernel"
    ):
        attached(monkeypatch, [FREED, EXECUTED], {"HAVE_OTHER": 1})


def test_a_probe_of_which_nothing_is_left_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProbeRefused, match="none of the probe's programs is for this kernel"):
        attached(monkeypatch, [EXECUTED], SAYS_WHY)


def test_what_it_is_that_a_kernel_has_is_a_text() -> None:
    assert spec_problem({"probe": {}, "programs": [EXECUTED]}) is None
    said = spec_problem({"probe": {}, "programs": [{**EXECUTED, "unless": ["HAVE_OVS_DROP_LAST_ACTION"]}]})
    assert said == "program executed: unless is a text"


def test_of_much_that_cannot_be_measured_two_things_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"required": True, "attach": [{"point": "entry:vhost_work", "function": "f"}]}
    things = [{"name": what, "measures": what, **entry} for what in ("runs", "packets", "buffers", "wake-ups")]
    with pytest.raises(ProbeRefused, match=r"cannot measure runs, packets and 2 more$"):
        attached(monkeypatch, things, {})
