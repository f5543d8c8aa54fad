"""Who waits for a CPU: what the scheduler's books in /proc say of the threads that move packets."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import pytest

from netconsole.telemetry.frames import Count, Row
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.vm.thread_waits import LOOK_EVERY, MAX_ALLOWED, YOUNG_LOOKS, ThreadWaits, role_of
from tests.support.sources import SECOND_NS, tables_of

QEMU = ("/usr/bin/qemu-system-x86_64", "-name", "guest=web,debug-threads=on")


class Process:
    """A process in a /proc of the test's own."""

    def __init__(self, root: Path, pid: int, *words: str, comm: str) -> None:
        self.path = root / "proc" / str(pid)
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (self.path / "comm").write_text(comm + "\n")
        self.thread(pid, comm)

    def thread(self, tid: int, comm: str, ran: int = 0, waited: int = 0, cpu: int = 0) -> None:
        """A thread with these books, from now on."""
        task = self.path / "task" / str(tid)
        task.mkdir(parents=True, exist_ok=True)
        (task / "comm").write_text(comm + "\n")
        (task / "schedstat").write_text(f"{ran} {waited} {ran // 1000 + 1}\n")
        (task / "stat").write_text(f"{tid} ({comm}) S {' '.join(['0'] * 35)} {cpu} 0\n")

    def says(self, tid: int, involuntary: int = 0, migrations: int | None = None, allowed: str = "0-1") -> None:
        """What the scheduler says of it besides, in the kernel's own words."""
        task = self.path / "task" / str(tid)
        switches = f"voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t{involuntary}\n"
        (task / "status").write_text(f"Name:\t[x]\nCpus_allowed:\t3\nCpus_allowed_list:\t{allowed}\n{switches}")
        if migrations is not None:
            lines = f"se.vruntime                :     7.5\nse.nr_migrations            :           {migrations:>9}\n"
            (task / "sched").write_text(f"[x] (501, #threads: 3)\n-----\n{lines}nr_switches     :     3\n")


@pytest.fixture
def source(tmp_path: Path) -> ThreadWaits:
    (tmp_path / "proc").mkdir()
    return ThreadWaits(Here(tmp_path))


def rows(source: ThreadWaits) -> dict[tuple[str, str], Row]:
    (frame,) = tables_of(source)
    return {(str(row.labels["vm"]), str(row.labels["role"])): row for row in frame.rows}


@pytest.mark.parametrize(
    ("comm", "is_main", "role"),
    [
        ("CPU 12/KVM", False, "vCPU 12"),
        ("CPU 0/TCG", False, "vCPU 0"),
        ("vhost-4711", False, "vhost worker"),
        ("IO iothread1", False, "I/O thread iothread1"),
        ("IO mon_iothread", False, "monitor thread"),
        ("qemu-system-x86", True, "main thread"),
        ("qemu-system-x86", False, "thread without a name"),  # without debug-threads=on
        ("worker", False, "thread worker"),
        ("handler12", False, "handler 12"),
        ("revalidator7", False, "revalidator 7"),
        ("ovs-vswitchd", True, "main thread"),
    ],
)
def test_a_thread_is_called_by_what_it_does(comm: str, is_main: bool, role: str) -> None:
    assert role_of(comm, is_main) == role


def test_a_share_is_what_a_thread_waited_of_the_interval(source: ThreadWaits, tmp_path: Path) -> None:
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    machine.thread(501, "CPU 0/KVM", ran=10, waited=5_000_000_000)
    first = rows(source)["web", "vCPU 0"]
    assert first.gauges["waited_pct"] == 0 and first.counts["waited_ns"].total == 0, "from before it was watched"
    machine.thread(501, "CPU 0/KVM", ran=10 + SECOND_NS // 2, waited=5_000_000_000 + SECOND_NS // 4, cpu=3)
    row = rows(source)["web", "vCPU 0"]
    assert (row.counts["ran_ns"].delta, row.counts["waited_ns"].delta) == (SECOND_NS // 2, SECOND_NS // 4)
    assert row.gauges == {"cpu": 3, "waited_pct": 25.0} and row.labels["tid"] == 501


class Told(NamedTuple):
    """What a thread is told to have done in one interval, and in how long."""

    involuntary: Count
    migrations: Count

    @property
    def grown(self) -> tuple[int | None, int | None]:
        return self.involuntary.delta, self.migrations.delta


@pytest.mark.proves("thread_waits", "tables.threads.{involuntary,migrations,allowed}")
def test_how_often_a_thread_was_moved_and_switched_off_is_told_when_it_is_looked_at(
    source: ThreadWaits, tmp_path: Path
) -> None:
    """That is in each interval in which it waits, and else in one of some, with the time that the counts are of."""
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    machine.thread(501, "CPU 0/KVM", ran=10)
    some, waited = SECOND_NS // 50, 0

    def told(count: int, waits: bool) -> Told:
        nonlocal waited
        waited += some * waits
        machine.thread(501, "CPU 0/KVM", ran=1000 * count, waited=waited)
        machine.says(501, involuntary=count, migrations=2 * count)
        counts = rows(source)["web", "vCPU 0"].counts
        return Told(counts["involuntary"], counts["migrations"])

    assert not {"involuntary", "migrations"} & rows(source)["web", "vCPU 0"].counts.keys(), "not known, and not 0"
    assert told(40, waits=True).grown == (0, 0), "from before it was watched"
    assert told(47, waits=True).grown == (7, 14)
    assert told(47, waits=True).involuntary.interval_ns is None
    late = [told(48 + number, waits=False) for number in range(LOOK_EVERY)]
    (one,) = [found for found in late if found.grown != (0, 0)]
    passed = late.index(one) + 1
    assert one.grown == (passed, 2 * passed)
    assert one.involuntary.interval_ns == one.migrations.interval_ns == passed * SECOND_NS


def test_where_a_thread_may_run_stands_in_its_row(source: ThreadWaits, tmp_path: Path) -> None:
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    machine.says(500, allowed="0-3,8")
    assert rows(source)["web", "main thread"].labels["allowed"] == "0-3,8"
    machine.thread(501, "CPU 0/KVM")
    machine.says(501, allowed=",".join(map(str, range(0, 200, 2))))
    for _ in range(LOOK_EVERY):
        found = rows(source)
    cut = str(found["web", "vCPU 0"].labels["allowed"])
    assert len(cut) <= MAX_ALLOWED and cut.startswith("0,2,4,") and cut[-2:].strip("0123456789") == "…"


def test_a_kernel_that_does_not_count_migrations_is_no_zero(source: ThreadWaits, tmp_path: Path) -> None:
    """Without CONFIG_SCHED_DEBUG there is no such file."""
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    machine.says(500, involuntary=3)
    assert "migrations" not in rows(source)["web", "main thread"].counts


def test_a_thread_that_does_not_wait_is_read_from_one_file(source: ThreadWaits, tmp_path: Path) -> None:
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    machine.thread(501, "CPU 0/KVM", cpu=1)
    rows(source)
    machine.thread(501, "CPU 0/KVM", ran=100_000, cpu=2)

    def told(intervals: int) -> list[object]:
        found = [row for _ in range(intervals) for key, row in rows(source).items() if key == ("web", "vCPU 0")]
        return [row.gauges["cpu"] for row in found]

    assert told(1) == [1], "its CPU is as old as the last look"
    assert told(LOOK_EVERY)[-1] == 2
    machine.thread(501, "CPU 0/KVM", ran=100_000, cpu=3)
    assert set(told(4 * LOOK_EVERY)) == {2}, "it has not run since"


def test_threads_take_turns_in_being_looked_at(source: ThreadWaits, tmp_path: Path) -> None:
    """Else all of a busy host would be read in one interval of some."""
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    tids = range(501, 501 + 2 * LOOK_EVERY)
    moved = []
    for turn in range(2 * LOOK_EVERY):
        for tid in tids:
            machine.thread(tid, f"CPU {tid}/KVM", ran=1000 * turn)
            machine.says(tid, migrations=turn)
        moved.append(
            sum(bool(row.counts["migrations"].delta) for row in rows(source).values() if row.counts.get("migrations"))
        )
    assert moved[LOOK_EVERY:] == [2] * LOOK_EVERY


def test_workers_of_the_kernel_belong_to_the_machine_that_they_are_named_after(
    source: ThreadWaits, tmp_path: Path
) -> None:
    Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    Process(tmp_path, 600, comm="vhost-500")  # before 6.4
    Process(tmp_path, 601, comm="vhost-9")  # of a process that has ended
    Process(tmp_path, 602, comm="vhost-602")
    Process(tmp_path, 700, "ovs-vswitchd", "--pidfile", comm="ovs-vswitchd").thread(701, "handler3")
    Process(tmp_path, 700, "ovs-vswitchd", comm="ovs-vswitchd").thread(702, "pmd-c03/id:8")  # ovs_pmd has it
    Process(tmp_path, 800, "bash", comm="bash")
    assert set(rows(source)) == {
        ("web", "main thread"),
        ("web", "vhost worker"),
        ("", "main thread"),
        ("", "handler 3"),
    }


def test_workers_that_name_each_other_are_of_no_machine(source: ThreadWaits, tmp_path: Path) -> None:
    """Anybody may start a process without words, and call it so."""
    Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    Process(tmp_path, 600, comm="vhost-601")
    Process(tmp_path, 601, comm="vhost-600")
    Process(tmp_path, 602, comm="vhost-603")
    Process(tmp_path, 603, comm="ovs-vswitchd")
    assert source.finds_any() and {machine for machine, _ in rows(source)} == {"web", ""}
    assert len(source._threads) == 2


def test_a_kernel_without_these_books_is_said(source: ThreadWaits, tmp_path: Path) -> None:
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    (machine.path / "task/500/schedstat").unlink()
    assert not rows(source)
    with pytest.raises(SourceError, match="CONFIG_SCHED_INFO") as said:
        rows(source)
    assert said.value.state == "unsupported"


def test_books_that_are_closed_are_said_and_are_no_zeros(source: ThreadWaits, tmp_path: Path) -> None:
    """A kernel without CONFIG_SCHEDSTATS writes 0 0 0 while kernel.task_delayacct is 0; the rows come when it is 1."""
    machine = Process(tmp_path, 500, *QEMU, comm="qemu-system-x86")
    (machine.path / "task/500/schedstat").write_text("0 0 0\n")
    assert not rows(source)
    for _ in range(2 * LOOK_EVERY):
        with pytest.raises(SourceError, match=r"sysctl kernel\.task_delayacct=1") as said:
            rows(source)
        assert said.value.state == "unsupported"
    machine.thread(500, "qemu-system-x86", ran=5)
    assert set(rows(source)) == {("web", "main thread")}
    machine.thread(501, "CPU 0/KVM", ran=5)
    (machine.path / "task/501/schedstat").write_text("0 0 0\n")  # only just made
    for _ in range(LOOK_EVERY):
        assert ("web", "vCPU 0") not in rows(source)


def test_a_number_that_is_used_again_is_another_process(source: ThreadWaits, tmp_path: Path) -> None:
    Process(tmp_path, 500, *QEMU, comm="qemu-system-x86").thread(501, "CPU 0/KVM")
    assert source.finds_any() and len(rows(source)) == 2
    for file in sorted((tmp_path / "proc" / "500").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    for _ in range(LOOK_EVERY):
        rows(source)
    assert not source.finds_any()
    Process(tmp_path, 500, "ovs-vswitchd", comm="ovs-vswitchd")
    found: set[tuple[str, str]] = set()
    for _ in range(LOOK_EVERY):
        found |= set(rows(source))
    assert found == {("", "main thread")}


def test_without_any_it_says_so_and_what_a_process_runs_may_come_late(source: ThreadWaits, tmp_path: Path) -> None:
    late = Process(tmp_path, 500, "bash", comm="bash")
    assert not rows(source), "one empty table"
    with pytest.raises(SourceError, match="neither QEMU nor Open vSwitch"):
        rows(source)
    (late.path / "cmdline").write_text("".join(f"{word}\0" for word in QEMU))
    assert set(rows(source)) == {("web", "main thread")}


def test_a_process_that_stays_what_it_is_is_left_alone(source: ThreadWaits, tmp_path: Path) -> None:
    one = Process(tmp_path, 500, "bash", comm="bash")
    for _ in range(YOUNG_LOOKS):
        with contextlib.suppress(SourceError):
            rows(source)
    (one.path / "cmdline").write_text("".join(f"{word}\0" for word in QEMU))
    for _ in range(LOOK_EVERY):
        with pytest.raises(SourceError):
            rows(source)
