"""Paused, stopped or running: what /proc tells of QEMU's processes and threads."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from netconsole.telemetry.frames import Row
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import FULL_EVERY, SourceError
from netconsole_collector.sources.vm.vm_states import VmStates
from tests.support.sources import tables_of

IN_KVM_RUN = "16 0x11 0xae80 0x0 0x18 0x562ea74b6290 0x0 0x7ffe98cb6d40 0x7f2c1d0c53ab"
WAITS = "202 0x562ea7bd87a8 0x0 0xffffffff 0x0 0x0 0x0 0x7ffe98cb6d40 0x7f2c1d0c53ab"
WORKER = "16 0x11 0xae80 0x0 0x0 0x55cd77d47290 0x0 0x0 0x0"
"""kvm-nx-lpage-recovery of a machine on Linux 7.3: it has the call of the virtual CPU that made it."""
POLLS = "271 0x562ec3d2d0a0 0x8 0x7ffe98cb6da0 0x0 0x8 0x0 0x7ffe98cb6d40 0x7f2c1d0c53ab"


class Qemu:
    """A process in a /proc of the test's own."""

    def __init__(self, root: Path, pid: int, name: str, *more: str, kvm: bool = True) -> None:
        self.path, self.pid = root / "proc" / str(pid), pid
        self.path.mkdir(parents=True)
        (self.path / "fd").mkdir()
        (self.path / "fd" / "11").symlink_to("anon_inode:kvm-vcpu:0" if kvm else "/dev/null")
        arguments = ["/usr/bin/qemu-system-x86_64", "-name", f"guest={name},debug-threads=on", *more]
        (self.path / "cmdline").write_text("\0".join(arguments) + "\0")

    def now(self, ticks: int, *threads: str, state: str = "S", started: int = 77) -> Qemu:
        """Its CPU time so far, half of it in the kernel, and the system call that each thread is in."""
        user, of_children = ticks // 2, ["7", "7"]
        fields = [state, *["0"] * 10, str(user), str(ticks - user), *of_children, *["0"] * 4, str(started), "0"]
        (self.path / "stat").write_text(f"{self.pid} (CPU 0/KVM) x) {' '.join(fields)}\n")
        for number, said in enumerate(threads):
            task = self.path / "task" / str(self.pid + number)
            task.mkdir(parents=True, exist_ok=True)
            (task / "syscall").write_text(said + "\n")
        return self


@pytest.fixture
def source(tmp_path: Path) -> VmStates:
    (tmp_path / "proc").mkdir()
    return VmStates(Here(tmp_path))


def rows(source: VmStates) -> dict[str, Row]:
    frame, _memory = tables_of(source)
    return {str(row.labels["vm"]): row for row in frame.rows}


@pytest.mark.parametrize(
    ("threads", "ticks", "kvm", "paused"),
    [
        ((POLLS, WAITS, IN_KVM_RUN), 0, True, 0),  # its guest sleeps
        ((POLLS, WAITS, "running"), 0, True, 0),
        ((POLLS, WAITS, WAITS), 0, True, 1),
        ((POLLS, WAITS, WORKER), 0, True, 1),
        ((POLLS, WAITS, WAITS), 2, True, 1),  # QEMU has answered who manages it
        ((POLLS, WAITS, WAITS), 3, True, 0),  # it has used CPU time: a moment between two calls
        ((POLLS, WAITS, WAITS), 0, False, None),  # no KVM: nobody can tell
        (("", ""), 0, True, None),  # no right to look
    ],
)
def test_a_machine_is_paused_when_none_of_its_virtual_cpus_is_in_kvm_run(
    source: VmStates, tmp_path: Path, threads: tuple[str, ...], ticks: int, kvm: bool, paused: int | None
) -> None:
    machine = Qemu(tmp_path, 500, "web", kvm=kvm).now(100, *threads)
    assert rows(source)["web"].gauges == {"stopped": 0, "paused": 0}, "the first reading compares with nothing"
    machine.now(100 + ticks, *threads)
    again = rows(source)
    if paused == 0 and not ticks:
        assert not again, "a row that is as it was is not sent"
    else:
        assert again["web"].gauges["paused"] == paused
        assert again["web"].counts["cpu_ns"].delta == ticks * 10_000_000


def test_a_moment_between_two_calls_is_no_pause(
    source: VmStates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Qemu(tmp_path, 500, "web").now(100, POLLS, WAITS)
    rows(source)
    has_kvm = source._has_kvm

    def goes_on(pid: str) -> bool:
        machine.now(100, POLLS, IN_KVM_RUN)
        return has_kvm(pid)

    monkeypatch.setattr(source, "_has_kvm", goes_on)  # the last that the first look asks
    machine.now(101, POLLS, WAITS)
    assert rows(source)["web"].gauges["paused"] == 0


def test_a_stopped_process_is_told_from_a_paused_machine(source: VmStates, tmp_path: Path) -> None:
    Qemu(tmp_path, 500, "web").now(100, WAITS, state="T")
    assert rows(source)["web"].gauges == {"stopped": 1, "paused": 0}


def test_without_an_irqchip_in_the_kernel_a_sleeping_guest_looks_like_a_paused_one(
    source: VmStates, tmp_path: Path
) -> None:
    machine = Qemu(tmp_path, 500, "web", "-machine", "q35,kernel_irqchip=off").now(100, WAITS)
    rows(source)
    assert rows(source)["web"].gauges == {"stopped": 0, "paused": None}
    machine.now(200, WAITS)
    assert rows(source)["web"].gauges == {"stopped": 0, "paused": 0}, "who uses CPU time is not paused"


def test_machines_come_and_go(source: VmStates, tmp_path: Path) -> None:
    assert rows(source) == {}
    with pytest.raises(SourceError, match="no QEMU runs here") as none:
        rows(source)
    assert none.value.state == "unsupported"
    first = Qemu(tmp_path, 500, "web").now(100, IN_KVM_RUN)
    assert list(until_told(source)) == ["web"]
    first.now(5, IN_KVM_RUN, started=99)  # another process with its number
    (first.path / "cmdline").write_text("/usr/bin/sleep\0" + "9\0")
    assert until_told(source) == {}, "an empty table says that it is gone"
    with pytest.raises(SourceError):
        rows(source)


def test_whether_a_vm_runs_is_known_without_a_session(tmp_path: Path) -> None:
    other = tmp_path / "proc" / "7"
    other.mkdir(parents=True)
    assert not VmStates(Here(tmp_path)).finds_any(), "ended while it was looked at"
    (other / "cmdline").write_text("/usr/bin/sleep\0" + "9\0")
    assert not VmStates(Here(tmp_path)).finds_any()
    Qemu(tmp_path, 500, "web")
    assert VmStates(Here(tmp_path)).finds_any()


def until_told(source: VmStates) -> dict[str, Row]:
    """The rows of the next whole table."""
    for _ in range(2 * FULL_EVERY):
        try:
            frame, _memory = tables_of(source)
        except SourceError:
            continue
        if frame.full or frame.rows:
            return {str(row.labels["vm"]): row for row in frame.rows}
    raise AssertionError("no whole table")


@pytest.mark.parametrize(("after", "found_at"), [(0, 1), (1, 6), (6, 11), (11, None)])
def test_a_new_process_is_looked_at_three_times_every_five_readings(
    source: VmStates, tmp_path: Path, after: int, found_at: int | None
) -> None:
    """It may run QEMU some time after it began, but it is not looked at for ever. ``after``: so many readings."""
    one = Qemu(tmp_path, 600, "web").now(100, IN_KVM_RUN)
    qemu = (one.path / "cmdline").read_text()
    found = []
    for reading in range(1, 31):
        (one.path / "cmdline").write_text(qemu if reading > after else "/bin/sh\0")
        with contextlib.suppress(SourceError):
            found += [reading] * bool(rows(source))
    assert found[:1] == ([] if found_at is None else [found_at])


def test_a_process_with_the_number_of_one_that_has_ended_is_another_machine(source: VmStates, tmp_path: Path) -> None:
    first = Qemu(tmp_path, 500, "web").now(1000, IN_KVM_RUN)
    assert list(rows(source)) == ["web"]
    (first.path / "cmdline").write_text((first.path / "cmdline").read_text().replace("web", "db"))
    first.now(7, IN_KVM_RUN, started=99)
    row = until_told(source)["db"]
    assert (row.labels["process"], row.counts["cpu_ns"].total) == ("qemu/500", 0)


@pytest.mark.parametrize(("name", "shown"), [("n" * 300, "n" * 256), ('{"guest":"\\ud800-1"}', "?-1")])
def test_a_name_that_fits_no_frame_is_made_to_fit(name: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    qemu = Qemu(tmp_path, 100, "plain").now(0, POLLS)
    cmdline = ["/usr/bin/qemu-system-x86_64", "-name", name]
    (qemu.path / "cmdline").write_text("\0".join(cmdline) + "\0")
    frame, _memory = tables_of(VmStates(Here(tmp_path)))
    assert [row.labels["vm"] for row in frame.rows] == [shown]
