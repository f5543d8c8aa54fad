"""However the collector or its worker ends, nothing of theirs stays: no program, map, process, or file."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.telemetry import frames
from netconsole_collector.kernel import bpf_maps, syscalls
from tests.support.live import bpf_objects
from tests.support.live.collector_driver import (
    MAPS,
    PROGRAM,
    PYTHON,
    SOURCE,
    START,
    Driver,
    call,
    calls_spec,
    load_command,
    of,
)

pytestmark = pytest.mark.starting

LIMIT_S = 60.0
"""What is left behind stays for good; what goes is gone within milliseconds, or when a busy kernel comes to it."""
ROUNDS = 10
SEED = 20260101
"""Moments are random, and the same in every run."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def named_maps() -> set[int]:
    """Ids of maps that are called like those of the tests' probe."""
    return {number for number in bpf_objects.map_ids() if _map_name(number) in MAPS}


def named_programs() -> set[int]:
    """Ids of programs that are called like that of the tests' probe; the other maps live and die with them."""
    return {number for number in bpf_objects.program_ids() if _program_name(number) == PROGRAM}


def _map_name(number: int) -> str:
    with contextlib.suppress(OSError), _closing(bpf_objects.map_fd(number)) as fd:
        return bpf_maps.map_info(fd).name
    return ""


def _program_name(number: int) -> str:
    with contextlib.suppress(OSError), _closing(bpf_objects.program_fd(number)) as fd:
        return syscalls.program_info(fd).name
    return ""


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def children(pid: int) -> set[int]:
    """Processes whose parent this is."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(entry.name))
    return found


def await_children(pid: int) -> set[int]:
    """Its children, as soon as there are any."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := children(pid)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert found
    return found


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def leftovers() -> set[str]:
    """Header trees of compile workers."""
    return {str(path) for place in TEMPORARY for path in Path(place).glob("netconsole-types-*")}


class Before:
    """What was there already; :meth:`assert_nothing_more` waits for the kernel to take the rest back."""

    def __init__(self) -> None:
        self.maps, self.programs, self.files = bpf_objects.map_ids(), bpf_objects.program_ids(), leftovers()

    def assert_nothing_more(self, processes: set[int]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while (left := self.left(processes)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left

    def left(self, processes: set[int]) -> list[str]:
        left = [f"map {number}" for number in named_maps() - set(self.maps)]
        left += [f"program {number}" for number in named_programs() - set(self.programs)]
        left += [f"process {number}" for number in processes if alive(number)]
        left += [f"file {path}" for path in leftovers() - self.files]
        left += [f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines() if "netconsole" in line]
        return left


@pytest.fixture
def before() -> Before:
    return Before()


def test_the_check_sees_what_is_there(before: Before) -> None:
    """Otherwise the tests below could not fail."""
    with Driver() as driver:
        driver.load()
        left = before.left({driver.process.pid})
        assert any(entry.startswith("program") for entry in left)
        assert sum(entry.startswith("map") for entry in left) == 2
        assert f"process {driver.process.pid}" in left


@pytest.mark.parametrize("how", ["stdin", "stop", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_an_orderly_end_is_quick_and_says_goodbye(how: str, before: Before) -> None:
    started = time.monotonic()
    with Driver() as driver:
        driver.load()
        loaded_s = time.monotonic() - started
        call(4, 5)
        started = time.monotonic()
        if how == "stdin":
            assert driver.process.stdin is not None
            driver.process.stdin.close()
        elif how == "stop":
            driver.send(command="stop")
        else:
            driver.signal(signal.Signals[how])
        rest = driver.rest()
        assert driver.process.wait(LIMIT_S) == 0
        assert time.monotonic() - started < loaded_s, "ending takes a tenth of the time of starting and compiling"
        assert isinstance(rest[-1], frames.Bye)
        expected = {"stdin": "end of standard input", "stop": "stop"}.get(how, how)
        assert rest[-1].why == expected
        assert of(frames.Counters, rest)[-1].values["calls"].total == 5
    before.assert_nothing_more({driver.process.pid})


def test_it_ends_when_nobody_reads_any_more(before: Before) -> None:
    with Driver() as driver:
        driver.load()
        driver.ask(command="interval", ms=50)
        assert driver.process.stdout is not None
        read_end = driver.process.stdout.fileno()
        os.dup2(os.open(os.devnull, os.O_RDONLY), read_end)  # the reading thread sees the end of the stream
        assert driver.process.wait(LIMIT_S) == 0
    before.assert_nothing_more({driver.process.pid})


def test_it_ends_with_a_worker_in_the_middle_of_its_work(before: Before) -> None:
    with Driver() as driver:
        driver.until(frames.Hello)
        driver.send(**load_command())
        driver.until(frames.Status, lambda status: status.state == "compiling")
        workers = await_children(driver.process.pid)
        assert driver.process.stdin is not None
        driver.process.stdin.close()
        assert driver.process.wait(LIMIT_S) == 0
    before.assert_nothing_more({driver.process.pid, *workers})


def test_kill_9_of_the_collector_with_several_workers(before: Before) -> None:
    """Under a console, and more often: test_cleanup_console.py."""
    moments = random.Random(SEED)
    for _ in range(ROUNDS):
        with Driver() as driver:
            driver.until(frames.Hello)
            for number in range(3):
                driver.send(**load_command(probe=f"calls{number}"))
            time.sleep(moments.uniform(0.0, 1.0))  # the moment is what is tested
            processes = {driver.process.pid, *children(driver.process.pid)}
            driver.process.kill()
            driver.process.wait()
            before.assert_nothing_more(processes)


def test_kill_9_of_the_collector_while_it_attaches_and_detaches_for_a_share_of_the_time(before: Before) -> None:
    chance = random.Random(SEED)
    spec = calls_spec()
    spec["knobs"]["seen_pct"] = 100
    for _ in range(ROUNDS):
        with Driver() as driver:
            driver.ask(**load_command(spec=spec, knobs={"pid": os.getpid(), "seen_pct": 30}))
            time.sleep(chance.random())  # any moment of a period
            driver.process.kill()
            driver.process.wait()
        before.assert_nothing_more({driver.process.pid})


def test_kill_9_of_the_worker_at_random_moments(before: Before) -> None:
    """The probe fails alone, in one sentence; the collector and the other probe go on."""
    moments = random.Random(SEED)
    killed = 0
    with Driver() as driver:
        driver.load(probe="steady")
        while killed < ROUNDS:
            number = driver.send(**load_command())
            driver.until(frames.Status, lambda status: status.state == "compiling" and status.probe == "calls")
            workers = await_children(driver.process.pid)
            time.sleep(moments.uniform(0.0, 0.4))  # the moment is what is tested
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            reply = driver.until(frames.Reply, lambda reply, number=number: reply.id == number)  # type: ignore[misc]
            if reply.ok:  # it was faster
                assert driver.ask(command="unload", probe="calls").ok
                continue
            killed += 1
            assert reply.error is not None
            assert "SIGKILL" in reply.error
            status = of(frames.Status, driver.seen)[-1]
            assert (status.state, status.why) == ("failed", reply.error)
        assert driver.ask(command="unload", probe="steady").ok
        before.assert_nothing_more(set())
        assert driver.ask(command="stop").ok


WITHOUT_SYS_ADMIN = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21
assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_without_a_private_mount_the_files_of_a_killed_worker_are_swept_up(before: Before) -> None:
    """CAP_BPF and CAP_PERFMON are enough to measure, but not for a tmpfs of the worker's own."""
    with Driver(before=[PYTHON, "-c", WITHOUT_SYS_ADMIN]) as driver:
        hello = driver.until(frames.Hello)
        if not hello.capabilities["privileges"].ok:
            pytest.skip("cannot run here: this kernel knows no CAP_BPF")
        assert not hello.capabilities["statistics"].ok
        killed = 0
        while not killed:
            number = driver.send(**load_command())
            while not (trees := leftovers() - before.files) and driver.process.poll() is None:
                if any(isinstance(frame, frames.Reply) and frame.id == number for frame in driver.seen):
                    break
                time.sleep(0.005)  # a directory that another process makes
            for worker in children(driver.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            reply = driver.until(frames.Reply, lambda reply, number=number: reply.id == number)  # type: ignore[misc]
            if reply.ok:  # it was faster
                assert driver.ask(command="unload", probe="calls").ok
                continue
            assert trees
            killed += 1
        driver.load()
        call(3, 9)
        assert driver.ask(command="unload", probe="calls").ok
        assert of(frames.Counters, driver.seen)[-1].values["calls"].total == 9
        before.assert_nothing_more(set())


def test_the_collector_goes_when_its_parent_does(before: Before) -> None:
    """Also when somebody else still holds the other end of its standard input."""
    read_end, write_end = os.pipe()
    hello_read, hello_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child == 0:
            os.dup2(read_end, 0)
            os.dup2(hello_write, 1)
            os.execv(PYTHON, [PYTHON, "-I", "-c", START, str(SOURCE)])
        os.read(hello_read, 1)  # it has said hello
        os._exit(0)
    os.close(hello_write)
    os.waitpid(middle, 0)
    said = b""
    while chunk := os.read(hello_read, 65536):
        said += chunk
    for fd in (read_end, write_end, hello_read):
        os.close(fd)
    assert b'"kind":"bye"' in said
    assert b"has ended" in said
