"""The lab leaves nothing behind, however it ends. When a machine is lost, it reports the machine's last output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.lab.kernels.each import EACH, USUAL
from tests.lab.kernels.fetch import KernelTree, fetch, kernel_named
from tests.lab.kernels.image import bootable
from tests.lab.kernels.qemu import qemu
from tests.lab.machine import initramfs
from tests.lab.machine.errors import CommandTimeout, LabUnavailable, MachineDied
from tests.lab.machine.hypervisor import CHECKOUT, Hypervisor
from tests.lab.machine.machine import BOOT_LIMIT_S, Machine
from tests.lab.machine.remains import Traces, descendants, names, wait_until_gone
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import paused

pytestmark = pytest.mark.booting
# Each start of a machine takes seconds of a whole processor: `make test-lab` has those that tell of the lab alone.

LIMIT_S = 60

# Boots a hypervisor and keeps a command running in it until it is killed.
VICTIM = """
import sys
from tests.lab.kernels.fetch import kernel_named
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.machine import Machine
if sys.argv[2] == "booting":
    print("booting", flush=True)
machine = Hypervisor(kernel_named(sys.argv[1]))
print("running", flush=True)
machine.run("sleep", "1000", limit_s=1000)
"""


@pytest.fixture(scope="session")
def tree() -> KernelTree:
    """The first kernel's. All that the tests below use is in the cache then."""
    try:
        trees = [fetch(kernel_named(kernel)) for kernel in USUAL]
        qemu()
    except LabUnavailable as error:
        pytest.skip(str(error))
    return trees[0]


def bare_machine(
    tree: KernelTree, init: str, *, boot_limit_s: float = BOOT_LIMIT_S, limit_s: float = BOOT_LIMIT_S
) -> Machine:
    """A machine with busybox alone, which never has a command server."""
    head = "#!/bin/sh\n/bin/busybox --install -s /bin\nmount -t proc proc /proc\n"
    return Machine(
        ["-m", "256", "-kernel", str(bootable(tree)), "-append", "console=ttyS0 panic=-1 quiet"],
        initramfs=initramfs.build(tree, head + init, []),
        limit_s=limit_s,
        boot_limit_s=boot_limit_s,
    )


def in_background(boot: Callable[[], Machine]) -> Future[Machine]:
    """What becomes of it. (Whoever interrupts the run does not wait for that, as for the threads of a pool.)"""
    outcome: Future[Machine] = Future()

    def carry_out() -> None:
        try:
            outcome.set_result(boot())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    return outcome


@pytest.fixture(scope="module")
def hypervisor(bare: Hypervisor) -> Hypervisor:
    """Most of these tests need no guest."""
    return bare


@pytest.fixture(scope="session")  # the tests of a module are not all in one place (conftest.py)
def hanging(tree: KernelTree) -> tuple[Future[Machine], Future[Machine]]:
    """A machine that is silent while it boots, and one that exceeds its lifetime.

    Both take until their limit, which leaves time for a boot on a busy machine: other tests run meanwhile.
    """
    hang = "echo last words\nsleep 1000\n"
    silent = in_background(lambda: bare_machine(tree, hang, boot_limit_s=LIMIT_S))
    return silent, in_background(lambda: bare_machine(tree, hang, limit_s=LIMIT_S))


@pytest.mark.parametrize("kernel", EACH)
@pytest.mark.parametrize("moment", ["booting", pytest.param("running", marks=pytest.mark.long)])
def test_nothing_survives_a_killed_test_run(moment: str, kernel: str, tree: KernelTree, tmp_path: Path) -> None:
    """SIGKILL at any moment: no process, mount or file of ours is left, neither by 9p nor by virtiofs."""
    before = Traces.now(tmp_path)
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, kernel, moment],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline().decode().strip() == moment
        while "qemu-system-x86" not in names(started := descendants(victim.pid)):
            assert victim.poll() is None
            time.sleep(0.02)
    finally:
        victim.kill()
        victim.wait()
    assert not wait_until_gone(started)
    assert Traces.now(tmp_path) == before


@pytest.mark.last_of_its_kernel  # nobody has a use for the machine afterwards
@pytest.mark.parametrize("bare", EACH, indirect=True)
def test_machine_dies_with_its_supervisor(bare: Hypervisor) -> None:
    """Servers of their own, which some kernels need for their files, end too."""
    started = descendants(bare.supervisor_pid)
    assert "qemu-system-x86" in names(started)
    os.kill(bare.supervisor_pid, signal.SIGKILL)
    assert not wait_until_gone(started)
    with pytest.raises(MachineDied, match="ended"):
        bare.run("true")


@pytest.mark.long
@pytest.mark.usefixtures("hanging")
def test_panic_is_told(tree: KernelTree) -> None:
    with pytest.raises(MachineDied, match=r"(?s)the machine ended.*Kernel panic"):
        bare_machine(tree, "echo c >/proc/sysrq-trigger\n")


def test_command_is_cut_off_and_the_machine_goes_on(hypervisor: Hypervisor) -> None:
    with pytest.raises(CommandTimeout, match=r"(?s)cut off at its limit of 1 s.*before"):
        hypervisor.run("sh", "-c", "echo before; sleep 987; echo after", limit_s=1)
    # The signal went before this command: its whole session is gone.
    assert "sleep 987" not in hypervisor.run("ps", "ax").text


@pytest.mark.long
def test_a_hung_guest_is_cut_off_with_its_last_console_lines(testbed: Testbed) -> None:
    guest = testbed.guests[0]
    guest.run("echo '<0>last words' >/dev/kmsg")
    with paused(guest), pytest.raises(CommandTimeout, match=r"(?s)guest vm0: .* within 1 s.*last words"):
        guest.run("echo alive", limit_s=1)
    assert guest.answers()


def test_status_output_and_input_come_through(hypervisor: Hypervisor) -> None:
    result = hypervisor.run("sh", "-c", "cat; echo error >&2; exit 3", input=b"\x00binary\xff", check=False)
    assert (result.code, result.out, result.err) == (3, b"\x00binary\xff", b"error\n")
    with pytest.raises(subprocess.CalledProcessError, match="no-such"):
        hypervisor.run("cat", "/no-such")
    assert hypervisor.run("/no-such-program", check=False).code == 127


def test_large_files_come_through_whole(hypervisor: Hypervisor) -> None:
    data = os.urandom(3_000_000)
    hypervisor.write_file("/run/large", data)
    assert hypervisor.read_file("/run/large") == data


def test_changed_files_of_the_project_are_seen(hypervisor: Hypervisor) -> None:
    """And the machine cannot change them."""
    path = CHECKOUT / ".cache" / f"lab-test-{os.getpid()}"
    path.parent.mkdir(exist_ok=True)
    try:
        for text in ("one", "another"):
            path.write_text(text)
            assert hypervisor.read_file(path).decode() == text
        assert hypervisor.run("sh", "-c", f"echo no >'{path}'", check=False).code != 0
        assert path.read_text() == "another"
    finally:
        path.unlink()


def test_this_machine_cannot_be_changed(hypervisor: Hypervisor) -> None:
    """What the lab writes stays in its memory."""
    victim = Path(f"/var/tmp/netconsole-lab-test-{os.getpid()}")  # /tmp is the machine's own
    new = victim.with_name(f"{victim.name}-new")
    try:
        victim.write_text("mine")
        hypervisor.shell(f"grep mine '{victim}' && echo theirs >'{victim}' && echo new >'{new}'")
        assert victim.read_text() == "mine"
        assert not new.exists()
    finally:
        victim.unlink()


@pytest.mark.long
def test_a_boot_that_stalls_is_given_up_before_its_limit(tree: KernelTree) -> None:
    reports = "for n in 1 2; do echo 'rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:'; done\n"
    with pytest.raises(MachineDied, match=r"(?s)boot: the machine stalls.*detected stalls"):
        bare_machine(tree, f"{reports}sleep 1000\n")


@pytest.mark.long
@pytest.mark.last_of_its_kernel
def test_a_hang_and_the_limit_show_the_last_console_lines(hanging: tuple[Future[Machine], Future[Machine]]) -> None:
    silent, limited = hanging
    with pytest.raises(MachineDied, match=r"(?s)boot: the machine does not answer.*last words"):
        silent.result()
    with pytest.raises(MachineDied, match=rf"(?s)cut off at its limit of {LIMIT_S} s.*last words"):
        limited.result()
