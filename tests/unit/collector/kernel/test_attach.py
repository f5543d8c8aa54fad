"""A kernel that takes a fentry program and does not call it is found out."""

from __future__ import annotations

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
