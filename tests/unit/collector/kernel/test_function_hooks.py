"""One compiled program on a function becomes an fentry or a kprobe program when it is loaded."""

from __future__ import annotations

import struct

import pytest

from netconsole_collector.kernel import attach, function_hooks

CALL, MOV = 0x85, 0xBF
THIRD, RESULT, ADDRESS = 0x7FFFFFE2, 0x7FFFFFE6, 0x7FFFFFE7


def code(*numbers: int) -> bytes:
    """Calls of these numbers, with another instruction behind each."""
    return b"".join(struct.pack("=BBhiBBhi", CALL, 0, 0, number, MOV, 0x06, 0, 0) for number in numbers)


def calls(raw: bytes) -> list[tuple[int, int, int, int]]:
    """What stands in place of the calls: operation, registers, offset, number."""
    return [struct.unpack_from("=BBhi", raw, at) for at in range(0, len(raw), 16)]


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_hooks, "MACHINE", "x86_64")


# arch/x86/include/asm/ptrace.h: dx, ax and ip of struct pt_regs; the array of fentry has 8 bytes for each argument, and
# the result behind the last one (kernel/bpf/trampoline.c).
@pytest.mark.parametrize(
    ("kind", "number", "becomes"),
    [
        ("kprobe", THIRD, (0x79, 0x10, 96, 0)),
        ("fentry", THIRD, (0x79, 0x10, 16, 0)),
        ("kretprobe", RESULT, (0x79, 0x10, 80, 0)),
        ("fexit", RESULT, (0x79, 0x10, 32, 0)),
        ("kprobe", ADDRESS, (0x79, 0x10, 128, 0)),
        ("fentry", ADDRESS, (CALL, 0, 0, 173)),
    ],
)
def test_each_kind_has_the_arguments_in_its_own_place(
    kind: str, number: int, becomes: tuple[int, int, int, int]
) -> None:
    raw = function_hooks.bound(code(number), kind, parameters=4)
    assert calls(raw) == [becomes]
    assert raw[8:16] == code(number)[8:16]


def test_other_calls_and_other_programs_are_left_alone() -> None:
    helper = code(5, 0x7FFFFFF0)
    assert function_hooks.bound(helper, "fentry", 4) == helper
    assert function_hooks.bound(code(THIRD), "raw_tracepoint", 0) == code(THIRD)


@pytest.mark.parametrize(("machine", "number"), [("riscv64", THIRD), ("s390x", 0x7FFFFFE5)])
def test_what_a_machine_cannot_give_is_refused(monkeypatch: pytest.MonkeyPatch, machine: str, number: int) -> None:
    monkeypatch.setattr(function_hooks, "MACHINE", machine)
    with pytest.raises(attach.CannotAttach, match=machine):
        function_hooks.bound(code(number), "kprobe", 6)


def test_only_fexit_has_the_arguments_at_the_return() -> None:
    assert calls(function_hooks.bound(code(THIRD), "fexit", 4)) == [(0x79, 0x10, 16, 0)]
    with pytest.raises(attach.CannotAttach, match="kretprobe does not have the arguments"):
        function_hooks.bound(code(THIRD), "kretprobe", 4)


def test_the_cheaper_kind_is_tried_first_and_a_named_kind_alone() -> None:
    entry, named = attach.parse("entry:tun_net_xmit"), attach.parse("kprobe:tun_net_xmit")
    assert [attach.text(one) for one in attach.kinds_of(entry, typed=True)] == [
        "fentry:tun_net_xmit",
        "kprobe:tun_net_xmit",
    ]
    assert [attach.text(one) for one in attach.kinds_of(entry)] == ["kprobe:tun_net_xmit"]
    assert attach.kinds_of(named, typed=True) == [named]


def test_what_is_attached_is_found_by_the_point_of_the_manifest() -> None:
    assert attach.written("fexit:f") == ["fexit:f", "return:f"]
    assert attach.written("raw_tracepoint:kfree_skb") == ["raw_tracepoint:kfree_skb"]
