"""A kernel that takes a fentry program and does not call it is found out, and one that takes it only once."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from netconsole_collector.kernel import attach

LISTED = """\
eventfd_signal_mask (2) R   D   M  ->arch_ftrace_ops_list_func+0x0/0x220
\tdirect-->bpf_trampoline_6442534542+0x0/0xf6
handle_tx_net [vhost_net] (1) R   D   M \ttramp: ftrace_regs_caller+0x0/0x61 (call_direct_funcs+0x0/0x20)
\tdirect(jmp)-->bpf_trampoline_49392251405+0x0/0x119
irqfd_wakeup [kvm] (1) R         \ttramp: 0xffffffffc056d000 (kprobe_ftrace_handler+0x0/0x1d0)
irqfd_inject [kvm] (1) R   D   M \ttramp: ftrace_regs_caller+0x0/0x61 (call_direct_funcs+0x0/0x20)
\tdirect-->bpf_trampoline_92341931166+0x0/0xa9
"""


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(attach, "tracefs", lambda: str(tmp_path))
    file = tmp_path / "enabled_functions"
    file.write_text(LISTED)
    return file


@pytest.mark.parametrize("function", ["eventfd_signal_mask", "handle_tx_net", "irqfd_inject"])
def test_a_function_that_begins_with_a_call_of_the_program_is_believed(listed: Path, function: str) -> None:
    attach.check_called(attach.parse(f"fentry:{function}"))


@pytest.mark.parametrize("function", ["kvm_vcpu_halt", "irqfd_wakeup", "signal_mask", "handle_tx"])
def test_one_that_does_not_is_refused(listed: Path, function: str) -> None:
    """Also if another tracer has hooked it, or a function with a longer name was hooked."""
    with pytest.raises(attach.CannotAttach, match=f"fentry:{function}: this kernel took the program but does not call"):
        attach.check_called(attach.parse(f"fentry:{function}"))


def test_without_tracefs_the_kernel_is_believed(listed: Path) -> None:
    listed.unlink()
    attach.check_called(attach.parse("fentry:kvm_vcpu_halt"))


class Kernel:
    """Counts how often each program was attached, and says what is attached now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.attached: Counter[int] = Counter()
        self.links: list[int] = []
        self._times = times
        monkeypatch.setattr(attach, "_raw_tracepoint", self._attach)

    def _attach(self, name: str, program: int) -> int:
        assert not name, "a typed program knows its function"
        self.attached[program] += 1
        if self.attached[program] > self._times:
            raise FileNotFoundError(2, "No such file or directory")
        self.links.append(os.open(os.devnull, os.O_RDONLY))
        return self.links[-1]

    def is_open(self, link: int) -> bool:
        return Path(f"/proc/self/fd/{link}").exists()


def test_the_first_program_tells_whether_programs_are_attached_again(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, coming_back = Kernel(monkeypatch, times=2), attach.ComingBack()
    links = [
        coming_back.attach(attach.parse(f"fentry:{name}"), fd)
        for fd, name in ((7, "handle_tx_net"), (8, "irqfd_inject"))
    ]
    assert kernel.attached == {7: 2, 8: 1}
    for link in links:
        os.close(link)


def test_where_they_are_not_no_program_that_comes_back_is_typed(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux 5.10 to 5.12."""
    kernel, coming_back = Kernel(monkeypatch, times=1), attach.ComingBack()
    for fd, point in ((7, "fentry:handle_tx_net"), (8, "fexit:irqfd_inject")):
        with pytest.raises(
            attach.CannotAttach, match=f"^{point}: this kernel does not attach a program again that was"
        ):
            coming_back.attach(attach.parse(point), fd)
    assert kernel.attached == {7: 2}, "the second one was not tried"
    assert not kernel.is_open(kernel.links[0])


def test_a_program_that_is_not_called_tells_nothing_of_others(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, coming_back = Kernel(monkeypatch, times=2), attach.ComingBack()
    with pytest.raises(attach.CannotAttach, match="does not call it"):
        coming_back.attach(attach.parse("fentry:irqfd_wakeup"), 7)
    assert not kernel.is_open(kernel.links[0])
    os.close(coming_back.attach(attach.parse("fentry:irqfd_inject"), 8))
    assert kernel.attached == {7: 1, 8: 2}


def test_a_point_of_xdp_gets_its_device_once() -> None:
    point = attach.parse("xdp:native")
    there = attach.at_device(point, "veth:0")
    assert attach.text(there) == "xdp:native:veth:0" and attach.parse(attach.text(there)) == there
    assert attach.at_device(there, "eth0") == there
    assert attach.written("xdp:native:veth:0") == ["xdp:native:veth:0", "xdp:native"]
    other = attach.parse("raw_tracepoint:kfree_skb")
    assert attach.at_device(other, "") == other
    with pytest.raises(attach.CannotAttach, match="name it"):
        attach.at_device(point, "")
    with pytest.raises(attach.CannotAttach, match="no device nowhere"):
        attach.check(attach.at_device(point, "nowhere"))
    with pytest.raises(ValueError, match="xdp:native"):
        attach.parse("xdp:offloaded")
