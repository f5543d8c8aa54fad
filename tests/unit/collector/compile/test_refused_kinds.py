"""What a worker says of the kinds of program that a kernel refused. Here the kernel's answers are made up: this
machine's kernel has neither kprobes nor fentry. What kernels really answer is proven in the lab (test_doctor.py).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from netconsole_collector.compile import attaching, worker
from netconsole_collector.compile.compiled import PLAIN, AttachTarget, Compiled
from netconsole_collector.kernel import attach

_NO_TYPES = "the module has no BTF"


def _attached(monkeypatch: pytest.MonkeyPatch, choices: list[str]) -> tuple[Any, list[Any]]:
    """What comes of these alternatives where fentry and fexit are refused, and all else attaches."""

    def attached_at(compiled: Any, codes: Any, alternative: Any, point: attach.Point, *_: Any) -> tuple[int, int]:
        if point.kind in attach.TYPED:
            raise attach.CannotAttach(_NO_TYPES)
        return os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(worker, "attached_at", attached_at)
    one: Any = worker.Worker({"spec": {"probe": {}, "programs": []}})
    alternatives = [{"point": point, "function": "on_call"} for point in choices]
    try:
        found: tuple[Any, list[Any]] = one._attach_one(None, {}, {"name": "began"}, alternatives, False)
        return found
    finally:
        for descriptor in one.descriptors:
            os.close(descriptor)


@pytest.mark.parametrize("choices", [["fentry:{}", "kprobe:{}"], ["fentry:{}", "entry:{}"]])
def test_a_kprobe_of_its_own_says_why_fentry_is_not_used(monkeypatch: pytest.MonkeyPatch, choices: list[str]) -> None:
    monkeypatch.setattr(attach, "has_kprobes", lambda: True)
    attached, _tried = _attached(monkeypatch, [point.format("nf_conntrack_in") for point in choices])
    assert attached["attach"] == "kprobe:nf_conntrack_in"
    assert attached["refused"] == [{"point": "fentry:nf_conntrack_in", "why": _NO_TYPES, "detail": ""}]


def test_another_function_is_no_dearer_kind_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    attached, tried = _attached(monkeypatch, ["fentry:tun_net_xmit", "kprobe:tun_xmit"])
    assert (attached["attach"], attached["refused"]) == ("kprobe:tun_xmit", [])
    assert [one["point"] for one in tried] == ["fentry:tun_net_xmit"]


@pytest.mark.parametrize(
    ("entry", "knobs", "modes", "comes_back"),
    [
        ({}, {"device": ""}, ["summary"], False),
        ({}, {"seen_pct": 100}, ["summary"], True),
        ({"goes_on": True}, {"seen_pct": 100}, ["summary"], False),
        ({"goes_on": True, "modes": ["details"]}, {}, ["summary"], True),
        ({"follows": True}, {}, ["summary"], True),
        ({}, {"seen_pct": 100}, ["counters", "summary"], False),
        ({"modes": ["summary"]}, {"seen_pct": 100}, ["counters", "summary"], True),
    ],
)
def test_only_programs_that_come_back_ask_whether_they_may(
    monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], knobs: dict[str, Any], modes: list[str], comes_back: bool
) -> None:
    """Elsewhere fentry stays what it is: on kernels that attach a program only once, too."""
    asked: list[Any] = []

    def attached_at(*arguments: Any) -> tuple[int, int]:
        asked.append(arguments[-1])
        return os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(worker, "attached_at", attached_at)
    one: Any = worker.Worker({"spec": {"probe": {"modes": modes}, "programs": [], "knobs": knobs}})
    one._attach_one(None, {}, {"name": "began", **entry}, [{"point": "entry:f", "function": "on_call"}], False)
    assert asked == [one._coming_back.attach if comes_back else attach.attach_called]
    one.drop()


@pytest.mark.parametrize("types", ["made", "headers"])
def test_fentry_needs_the_kernel_s_own_types_and_says_so(monkeypatch: pytest.MonkeyPatch, types: str) -> None:
    point = "entry:tcp_v4_rcv"
    monkeypatch.setattr(attach, "check", lambda point: None)
    its: Any = {"functions": {}, "maps": {}, "facts": {}, "drop_reasons": {}, "types": types, "way": PLAIN}
    compiled = Compiled(**its, targets={point: AttachTarget(0)}, misfits={}, rdonly_cast=0)
    alternative = {"point": point, "function": "on_call"}
    with pytest.raises(attach.CannotAttach, match="this kernel has no types of its own"):
        attaching.attached_at(
            compiled, {"on_call": b""}, alternative, attach.parse("fentry:tcp_v4_rcv"), False, attach.attach_called
        )
