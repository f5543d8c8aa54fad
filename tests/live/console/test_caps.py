"""What holds a real virtual machine back, made on purpose one at a time: `netconsole vm` names it.

The machine is QEMU's own process with real threads, a real tap and a real disk (tests/support/live/tiny_guest.py).
Rings of vhost and several queues need a hypervisor's kernel: tests/lab/console/test_vm_page.py.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.live.disks import limited, loop
from tests.support.live.network import run
from tests.support.live.rivals import rival
from tests.support.live.tiny_guest import HALTS, READS, SPINS, Card, TinyGuest
from tests.support.live.vm_page import WAITS, Caps, first, frames, only
from tests.support.live.vm_page import caps as caps_of

pytestmark = pytest.mark.costs  # its machines take a CPU, and say how much of it they get

CPU = max(os.sched_getaffinity(0))
SHARE, PERIOD_US = 10, 100_000
"""Percent of a CPU, and how long a control group's account of it is."""
READS_PER_S = 20
PORTS_OF_THE_HUB = 100
IO, VCPUS = "the I/O limit of its disks", "the virtual CPUs"
"""READS polls, so that its virtual CPU never rests."""
SOURCES = ("vm_states", "thread_waits", "link_rates", "io_limits")


@contextmanager
def guest(program: bytes, card: Card = Card.NONE, disk: str = "") -> Iterator[TinyGuest]:
    with closing(TinyGuest(program, card, disk)) as one:
        yield one


@contextmanager
def allowed(pid: int) -> Iterator[None]:
    """A control group of its own lets it have SHARE percent of a CPU. Skips where there can be none."""
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    before = old if old.exists() else new
    group = before / f"netconsole-{os.getpid()}"
    quota_us = SHARE * PERIOD_US // 100
    name, text = ("cpu.cfs_quota_us", f"{quota_us}") if old.exists() else ("cpu.max", f"{quota_us} {PERIOD_US}")
    if before is new and (new / "cgroup.controllers").exists():
        (new / "cgroup.subtree_control").write_text("+cpu")
    group.mkdir()
    try:
        if not (group / name).exists():
            pytest.skip("cannot run here: no control groups of CPU time")
        (group / name).write_text(text)
        (group / "cgroup.procs").write_text(str(pid))
        yield
        (before / "cgroup.procs").write_text(str(pid))
    finally:
        group.rmdir()


def caps(one: TinyGuest, probes: Sequence[str] = SOURCES) -> Caps:
    return caps_of(one, probes)


def test_a_machine_that_rests_is_capped_by_nothing() -> None:
    with guest(HALTS, Card.HUB) as one:
        found = caps(one, ())
        unknown = {WAITS, "first"} | (set() if one.has_kvm else {"whether it runs"})
    assert {name for name, said in found.items() if said["state"] != "free"} <= unknown, found
    assert found["how packets spread over its queues"]["text"] == "each of its taps has one queue"
    assert found["the vhost worker"]["text"].startswith("QEMU moves its packets itself, without vhost")


def test_a_machine_that_qemu_has_paused_or_a_signal_has_stopped_is_said_so() -> None:
    with guest(SPINS) as one:
        one.command("stop")
        if one.has_kvm:
            assert first(caps(one), "whether it runs") == "it is paused: QEMU runs none of its CPUs"
        else:
            assert caps(one)["whether it runs"]["state"] == "unknown"
        one.command("cont")
        os.kill(one.pid, signal.SIGSTOP)
        try:
            assert first(caps(one), "whether it runs").startswith("it is stopped: its QEMU process gets no CPU")
        finally:
            os.kill(one.pid, signal.SIGCONT)


def test_a_virtual_cpu_that_never_rests() -> None:
    with guest(SPINS) as one:
        found = caps(one)
    # Where other work takes its CPU, it waits, and is not busy all the time.
    name = VCPUS if found[VCPUS]["state"] == "caps" else WAITS
    assert only(found, name).startswith(("its vCPU 0 uses ", f"{one.name}: "))


def test_who_takes_the_cpu_of_a_virtual_cpu() -> None:
    with guest(SPINS) as one, rival(CPU, is_first=True) as other:
        os.sched_setaffinity(one.vcpu, {CPU})
        text = only(caps(one), WAITS)
    assert f"({other})" in text and f"of CPU {CPU}" in text and "vCPU 0 waits for a CPU" in text


def test_its_limit_of_cpu_time() -> None:
    with guest(SPINS) as one, allowed(one.pid):
        found = caps(one)
    assert found["its limit of CPU time"]["text"].startswith(f"its control group may use {SHARE} % of a core, and uses")
    assert found["its limit of CPU time"]["state"] == "caps"
    assert f"its control group may use {SHARE} ms in 100 ms, and is stopped" in found["first"]["text"]


def test_a_shaper_of_its_tap() -> None:
    with guest(HALTS, Card.HUB) as one, frames(one, 300):
        run(*f"tc qdisc add dev {one.tap} root tbf rate 80kbit burst 3000 limit 10000".split())
        text = first(caps(one), "a shaper or queue of its tap")
    assert text.startswith(f"tbf of 80 kbit/s at {one.tap} lets no more through: ")


def test_a_guest_that_takes_no_packets() -> None:
    with guest(HALTS, Card.DEAF) as one, frames(one, 1000):
        text = only(caps(one), "the rings of its taps")
    # Its cause is asked for when the incident begins, and may not be known yet.
    said = ("its ring is full (the guest does not keep up)", "dropped by the device instead of sent")
    assert text.startswith(tuple(f"{one.tap}: {one_of_them}" for one_of_them in said))


def test_segmentation_offload_that_is_off() -> None:
    with guest(HALTS, Card.HUB) as one, frames(one, 16_000):
        text = only(caps(one), "segmentation offload")
    assert text.startswith(f"segmentation offload is off at {one.tap}: ") and text.endswith(" of 1.00k bytes")


def test_a_thread_that_moves_its_packets_and_can_move_no_more() -> None:
    """Without vhost that is QEMU's main thread. Its hub repeats each frame so often that it has too much to do."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nobody:
        nobody.bind(f"{directory}/nobody")
        nobody.shutdown(socket.SHUT_RD)
        words = []
        for number in range(PORTS_OF_THE_HUB):
            ends = f"local.type=unix,local.path={directory}/{number},remote.type=unix,remote.path={directory}/nobody"
            words += ["-netdev", f"dgram,id=more{number},{ends}"]
            words += ["-netdev", f"hubport,id=port{number},hubid=0,netdev=more{number}"]
        with closing(TinyGuest(HALTS, Card.HUB, more=words)) as one, frames(one, 16_000):
            os.sched_setscheduler(one.pid, os.SCHED_FIFO, os.sched_param(1))  # it has its CPU, whoever else wants it
            text = only(caps(one), "the vhost worker", "segmentation offload", "the rings of its taps")
    said = "QEMU moves its packets itself, without vhost: its main thread uses "
    assert text.startswith(said) and text.endswith("of a core: it can move no more packets")


def test_the_limit_of_its_disk(tmp_path: Path) -> None:
    with loop(tmp_path / "disk") as disk, guest(READS, disk=f"/dev/{disk.name}") as one:
        with limited(disk, READS_PER_S, one.pid):
            text = first(caps(one), IO, VCPUS)
        assert text.startswith(f"its control group limits its I/O on {disk.name} (io.max): ")
        assert text.endswith(f" of {READS_PER_S} reads per second")
        without = caps(one)[IO]
    assert without["state"] == "free"


def test_the_limit_that_qemu_keeps_of_its_disk(tmp_path: Path) -> None:
    with loop(tmp_path / "disk") as disk:
        with guest(READS, disk=f"/dev/{disk.name},throttling.iops-total={READS_PER_S}") as one:
            text = first(caps(one, (*SOURCES, "block_path")), IO, VCPUS)
        assert text.startswith(f"QEMU itself limits a disk of it (iops-total={READS_PER_S}); it uses ")
        with guest(READS, disk=f"/dev/{disk.name},throttling.iops-write={READS_PER_S}") as one:
            said = caps(one, (*SOURCES, "block_path"))[IO]
        assert said["state"] == "free" and said["text"].endswith(f"it uses 0 % of iops-write at {disk.name}")
