"""The lab itself: it leaves nothing behind however it ends, and says what a machine did last when it is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from . import initramfs
from .errors import CommandTimeout, LabUnavailable, MachineDied
from .fetch import KernelTree, cache_dir, fetch, kernels
from .hypervisor import CHECKOUT, Hypervisor
from .machine import Machine

pytestmark = pytest.mark.lab

GONE_LIMIT_S = 30.0
LIMIT_S = 40

# Boots a hypervisor and keeps a command running in it until it is killed.
VICTIM = """
import sys
from tests.lab.fetch import kernel_named
from tests.lab.hypervisor import Hypervisor
from tests.lab.machine import Machine
if sys.argv[2] == "booting":
    print("booting", flush=True)
machine = Hypervisor(kernel_named(sys.argv[1]))
print("running", flush=True)
machine.run("sleep", "1000", limit_s=1000)
"""


@pytest.fixture(scope="module")
def tree() -> KernelTree:
    try:
        return fetch(kernels()[0])
    except LabUnavailable as error:
        pytest.skip(str(error))


def bare_machine(tree: KernelTree, init: str, *, boot_limit_s: float = 60, limit_s: float = 60) -> Machine:
    """A machine with busybox alone, which never has a command server."""
    head = "#!/bin/sh\n/bin/busybox --install -s /bin\nmount -t proc proc /proc\n"
    return Machine(
        ["-accel", "tcg", "-m", "256", "-kernel", str(tree.image), "-append", "console=ttyS0 panic=-1 quiet"],
        initramfs=initramfs.build(tree, head + init, []),
        limit_s=limit_s,
        boot_limit_s=boot_limit_s,
    )


def descendants(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: set[int]) -> set[int]:
    """Those that are left at the limit."""
    deadline = time.monotonic() + GONE_LIMIT_S
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def names(pids: set[int]) -> set[str]:
    return {Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}


@pytest.mark.parametrize("kernel", [kernel.name for kernel in kernels()])
@pytest.mark.parametrize("moment", ["booting", "running"])
def test_nothing_survives_a_killed_test_run(moment: str, kernel: str, tree: KernelTree, tmp_path: Path) -> None:
    """SIGKILL at any moment: no process, mount or file of ours is left, neither by 9p nor by virtiofs."""
    mounts = Path("/proc/self/mountinfo").read_text()
    cached = set(cache_dir().iterdir())
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
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert list(tmp_path.iterdir()) == []
    assert set(cache_dir().iterdir()) == cached


def test_machine_dies_with_its_supervisor(hypervisor_of_its_own: Hypervisor) -> None:
    machine = hypervisor_of_its_own
    started = descendants(machine.supervisor_pid)
    os.kill(machine.supervisor_pid, signal.SIGKILL)
    assert not wait_until_gone(started)
    with pytest.raises(MachineDied, match="ended"):
        machine.run("true")


@pytest.fixture
def hypervisor_of_its_own(tree: KernelTree) -> Iterator[Hypervisor]:
    with Hypervisor(tree.kernel) as machine:
        yield machine


def test_a_hang_and_the_limit_show_the_last_console_lines(tree: KernelTree) -> None:
    """Side by side, because both take until their limit, which has to leave time for a boot on a busy machine."""
    hang = "echo last words\nsleep 1000\n"
    with ThreadPoolExecutor() as pool:
        silent = pool.submit(bare_machine, tree, hang, boot_limit_s=LIMIT_S)
        limited = pool.submit(bare_machine, tree, hang, limit_s=LIMIT_S)
        with pytest.raises(MachineDied, match=r"(?s)boot: the machine does not answer.*last words"):
            silent.result()
        with pytest.raises(MachineDied, match=rf"(?s)cut off at its limit of {LIMIT_S} s.*last words"):
            limited.result()


def test_panic_is_told(tree: KernelTree) -> None:
    with pytest.raises(MachineDied, match=r"(?s)the machine ended.*Kernel panic"):
        bare_machine(tree, "echo c >/proc/sysrq-trigger\n")


def test_command_is_cut_off_and_the_machine_goes_on(hypervisor: Hypervisor) -> None:
    with pytest.raises(CommandTimeout, match=r"(?s)cut off at its limit of 1 s.*before"):
        hypervisor.run("sh", "-c", "echo before; sleep 987; echo after", limit_s=1)
    # The signal went before this command: its whole session is gone.
    assert "sleep 987" not in hypervisor.run("ps", "ax").text


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
    victim = cache_dir() / f"lab-test-{os.getpid()}"
    new = victim.with_name(f"{victim.name}-new")
    try:
        victim.write_text("mine")
        hypervisor.shell(f"grep mine '{victim}' && echo theirs >'{victim}' && echo new >'{new}'")
        assert victim.read_text() == "mine"
        assert not new.exists()
    finally:
        victim.unlink()
