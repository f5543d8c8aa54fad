"""`netconsole vm NAME --guest …`: what a guest and its host measure of the same reads, on a device whose time is known.

The console is outside, and has a line to each of them, as `--host` has it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netconsole.probes.catalogue import load_all, typed_modules
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole.run import headless
from netconsole.run.assembly import live_run
from netconsole.run.preflight import RunPlan
from netconsole.snapshot.guest_io import DEVICE, STAGES, GuestIo, guest_ios
from netconsole.snapshot.machine_figures import MachineFigures
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Card, Disk, Guest, prepare_python
from tests.lab.network.traffic import qemu_pid
from tests.lab.ping.door import HYPERVISOR, Door, patient

pytestmark = [pytest.mark.booting, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

NAME = "asks"
CARD = Card("vnet8", "52:54:00:00:00:18", "10.77.8.10/24", door="10.78.8.2/30")
DOOR = "10.78.8.1/30"
HOST_PROBES, GUEST_PROBES = ("block_path", "virtio_blk"), ("block_path",)
SLOW_NS = 20_000_000
READS = {"vda": 100, "vdb": 80, "vdc": 60}
"""By disk, as they are with an I/O thread each. None asks for as many bytes as another."""
WAYS = [Disk(f"/dev/nullb{number}", aio, polls=False) for number, aio in enumerate(("native", "io_uring", "threads"))]
FEW = 20
INTERVAL_S = 2.0
LIMIT_S = 600.0
CLOSE = 0.25
GROUP = "/sys/fs/cgroup/slowed"
QUOTA_US, PERIOD_US = 20_000, 100_000


class BothEnds:
    """A guest with disks, and what it and its host measure together."""

    def __init__(self, hypervisor: Hypervisor, guest: Guest, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hypervisor, self.guest = hypervisor, guest
        self.has_stages = False
        """Whether QEMU's stages are sure to be known: a host may tell no types of KVM, and kprobes miss some ends."""
        self._door, self._monkeypatch = door, monkeypatch

    def read(
        self, reads: dict[str, int], fault: contextlib.AbstractContextManager[None] | None = None
    ) -> dict[str, GuestIo]:
        """The guest reads its disks, one read after another, with this fault; the way of that, by disk."""
        self._wait_for_measuring(lambda: self._reads(reads, fault or contextlib.nullcontext()))
        manifests = load_all()
        with contextlib.ExitStack() as stack:
            stack.enter_context(patient())
            lives = []
            for machine, probes in ((HYPERVISOR, HOST_PROBES), (NAME, GUEST_PROBES)):
                way = stack.enter_context(contextlib.closing(self._door.approach(machine)))
                profile = Profile("lab")
                wanted = plan(profile, manifests, probes)
                made = RunPlan(profile, manifests, wanted, probes, interval_s=INTERVAL_S, duration_s=LIMIT_S)
                lives.append(stack.enter_context(live_run(made, way.enter(typed_modules(manifests)))))
            host, inside = headless.measure_together(lives, LIMIT_S)
        assert inside.probes["block_path"].status == host.probes["block_path"].status == "attached"
        on_the_way = host.probes["virtio_blk"]
        assert on_the_way.status == "attached" or "types" in (on_the_way.why or ""), on_the_way.why
        self.has_stages = on_the_way.status == "attached" and "kprobe:bio_endio" not in on_the_way.attach
        found = guest_ios(MachineFigures(host, NAME), inside)
        for io in found:
            print(self.hypervisor.release, io, io.rest_ns, io.virtualisation_pct)
        return {one.disk: one for one in found if one.operation == "read"}

    def _wait_for_measuring(self, work: Callable[[], None]) -> None:
        """Has this done when measuring has begun, and ends that then, as Ctrl-C does."""
        begun = threading.Event()

        def said(line: str) -> None:
            if "measuring with" in line:
                begun.set()

        def work_then_end() -> None:
            begun.wait(LIMIT_S)
            try:
                work()
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        self._monkeypatch.setattr(headless, "print_progress", said)
        threading.Thread(target=work_then_end, name="reads", daemon=True).start()

    def _reads(self, reads: dict[str, int], fault: contextlib.AbstractContextManager[None]) -> None:
        with fault:
            for disk, count in reads.items():
                self.guest.run(f"dd if=/dev/{disk} of=/dev/null bs=4096 count={count} iflag=direct 2>/dev/null")

    @contextlib.contextmanager
    def slow_cpu(self) -> Iterator[None]:
        """The guest's virtual CPU has work for all of the time, and may run for a share of each period."""
        comms = self.hypervisor.shell(f"grep -l KVM /proc/{qemu_pid(self.hypervisor, self.guest)}/task/*/comm")
        tid = comms.split("/")[4]
        self.guest.run("(while :; do :; done) & echo $! >/busy")
        self.hypervisor.shell(f"""
            echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
            mkdir {GROUP}
            echo threaded >{GROUP}/cgroup.type
            echo "{QUOTA_US} {PERIOD_US}" >{GROUP}/cpu.max
            echo {tid} >{GROUP}/cgroup.threads
        """)
        yield
        self.hypervisor.shell(f"echo {tid} >/sys/fs/cgroup/cgroup.threads; rmdir {GROUP}")
        self.guest.run("kill $(cat /busy)")


@pytest.fixture(scope="module")
def guest(bare: Hypervisor) -> Iterator[Guest]:
    prepare_python(bare.tree)
    settings = (f"nr_devices={len(WAYS)}", "irqmode=2", f"completion_nsec={SLOW_NS}", "submit_queues=1")
    bare.run("modprobe", "null_blk", *settings)
    one = Guest(bare, NAME, CARD, WAYS)
    one.start()
    bare.shell(f"ip address add {DOOR} dev {CARD.door_tap}")
    yield one
    one.stop()
    bare.run("modprobe", "--remove", "null_blk")


@pytest.fixture
def ends(bare: Hypervisor, guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BothEnds]:
    monkeypatch.setattr(headless, "SETTLE_LIMIT_S", LIMIT_S)
    monkeypatch.setattr(headless, "LAST_INTERVAL_LIMIT_S", LIMIT_S)
    with Door(bare, [guest], tmp_path) as door:
        yield BothEnds(bare, guest, door, monkeypatch)


def test_what_the_guest_has_waited_for_is_the_hosts_stages_and_a_rest(ends: BothEnds) -> None:
    """Both ends count each read of each disk, and the rest of none is below zero."""
    found = ends.read(READS)
    assert {disk: (way.ios, way.host_ios) for disk, way in found.items()} == {
        disk: (count, count) for disk, count in READS.items()
    }
    for number, way in enumerate(found.values()):
        assert way.device == f"nullb{number}" and way.device_ns is not None and way.rest_ns is not None
        # A worker of the third one may be taken for one of QEMU's main thread, which serves the door.
        assert {*way.stages_ns} == {*STAGES} or ((number == 2 or not ends.has_stages) and {*way.stages_ns} == {DEVICE})
        assert SLOW_NS <= way.device_ns <= way.stages_ns[DEVICE]
        assert way.rest_ns > 0 and sum(way.stages_ns.values()) + way.rest_ns == pytest.approx(way.whole_ns)


def test_a_guest_whose_cpu_may_not_run_waits_in_the_rest(ends: BothEnds) -> None:
    """Its virtual CPU has used up its quota before the device is ready: it takes each interrupt in the next period, and
    asks for the next read then. So a read takes a period, and what the host's stages leave of that is the rest."""
    way = ends.read({"vda": FEW}, ends.slow_cpu())["vda"]
    assert way.ios == way.host_ios == FEW and way.rest_ns is not None
    known_ns = sum(way.stages_ns.values())
    assert way.rest_ns == pytest.approx(1000 * PERIOD_US - known_ns, rel=CLOSE)
    assert way.rest_ns > known_ns and way.stages_ns[DEVICE] < SLOW_NS * (1 + CLOSE)
