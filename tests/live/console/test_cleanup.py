"""Whichever process of a running console is killed, and whenever: two seconds later nothing of it is there."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.live.collector.test_cleanup import LIMIT_S, SEED, leftovers
from tests.support.console_command import COMMAND
from tests.support.live import bpf_objects
from tests.support.terminal_process import TerminalProcess, alive

pytestmark = pytest.mark.starting

ROUNDS = [20, pytest.param(50, marks=pytest.mark.long)]
LANES = 2
"""Consoles at a time: mostly they wait, for each other's processes to be gone too."""
WITH_SCREEN: tuple[str, ...] = ()
WITHOUT_SCREEN = ("snapshot", "--profile", "minimal", "--duration", "10m")
"""The same session, sooner there."""
EVERY_WITH_SCREEN = 10
STAGES = ("collector", "worker", "probes", "probes")
"""How far it has come; a kill is at most LATER_S later. Not a time alone: machines differ."""
LATER_S = 0.3
VICTIMS = ("console", "collector", "worker")
HELD = re.compile(rb"^(prog_id|map_id):\t(\d+)", re.MULTILINE)


def children(pid: int) -> list[int]:
    """Processes that it started and that live, whichever of its threads did."""
    with contextlib.suppress(OSError):
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


def held_by(pid: int) -> set[tuple[str, int]]:
    """The programs and maps that a process has descriptors of, as ("prog_id" or "map_id", id)."""
    held = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                held |= {(kind.decode(), int(number)) for kind, number in HELD.findall(entry.read_bytes())}
    return held


def left_of(held: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those that the kernel still has."""
    there = {("prog_id", number) for number in bpf_objects.program_ids()} | {
        ("map_id", number) for number in bpf_objects.map_ids()
    }
    return set(held) & there


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """A signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Running:
    """A running console on a terminal of its own, and all that it started, as they stand at a moment."""

    def __init__(self, directory: Path, *arguments: str, cache: Path | None = None) -> None:
        """``cache``: of compiled programs; None: the user's own, in which they are."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment = {**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_CONFIG_HOME": str(directory)}
        if cache is not None:
            environment["XDG_CACHE_HOME"] = str(cache)
        self.console = TerminalProcess((*COMMAND, *arguments), environment)
        self.collectors: list[int] = []
        self.workers: list[int] = []
        self.held: set[tuple[str, int]] = set()

    def look(self) -> None:
        """What it has started, and what that holds."""
        self.collectors = children(self.console.pid)
        self.workers = [worker for collector in self.collectors for worker in children(collector)]
        self.held = {one for pid in (*self.collectors, *self.workers) for one in held_by(pid)}

    def freeze(self, stage: str, later_s: float) -> None:
        """A while after it came so far, stop all of it, so that it can be seen whole."""
        self.console.until(stage, lambda: self._is_at(stage))
        end = time.monotonic() + later_s
        while time.monotonic() < end:
            self.console.pump(0.01)
        send(signal.SIGSTOP, [self.console.pid])
        send(signal.SIGSTOP, children(self.console.pid))
        self.look()
        send(signal.SIGSTOP, self.workers)
        self.look()

    def _is_at(self, stage: str) -> bool:
        self.look()
        # What the collector tries before it begins holds one object for a moment; a probe has several.
        return {"collector": bool(self.collectors), "worker": bool(self.workers), "probes": len(self.held) > 1}[stage]

    def kill(self, victim: str) -> list[int]:
        """SIGKILL to one kind, while it stands still; then the rest goes on. Gives back who has to be gone."""
        if victim == "worker" and self.workers:
            killed = gone = self.workers
        elif victim == "collector" and self.collectors:
            killed, gone = self.collectors, [*self.collectors, *self.workers]
        else:
            killed, gone = [self.console.pid], [*self.collectors, *self.workers]
        send(signal.SIGKILL, killed)
        send(signal.SIGCONT, [*self.workers, *self.collectors, self.console.pid])
        return gone


def await_gone(processes: Iterable[int], held: Iterable[tuple[str, int]], files: set[str]) -> None:
    """Fails, with what is left, when it does not go."""
    deadline = time.monotonic() + LIMIT_S
    while left := ([pid for pid in processes if alive(pid)], left_of(held), leftovers() - files):
        if not any(left):
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.02)  # nobody tells when the kernel has taken something back


def kill_one_after_another(home: Path, rounds: int, lane: int) -> dict[str, int]:
    """A share of the rounds; how often a victim's probes were there already, by victim."""
    moments, files = random.Random(SEED + lane), leftovers()
    times_held = dict.fromkeys(VICTIMS, 0)
    for number in range(lane, rounds, LANES):
        victim = VICTIMS[number % len(VICTIMS)]
        stage = "worker" if victim == "worker" else moments.choice(STAGES)
        how = WITH_SCREEN if number % EVERY_WITH_SCREEN == 0 else WITHOUT_SCREEN
        # A worker compiles only what was never compiled.
        running = Running(home, *how, cache=home / f"cache-{number}" if stage == "worker" else None)
        with running.console:
            running.freeze(stage, moments.uniform(0.0, LATER_S))
            gone = running.kill(victim)
            # Of the collector's descriptors nothing may stay; a worker may have handed its own over.
            await_gone(gone, () if gone == running.workers else running.held, files)
            # A console that lives starts another: now it is its turn, and the new ones have to go as well.
            later = [one for pid in children(running.console.pid) for one in (pid, *children(pid))]
            send(signal.SIGKILL, [running.console.pid])
            running.console.wait()
            await_gone({*running.collectors, *running.workers, *later}, running.held, files)
        times_held[victim] += bool(running.held)
    return times_held


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kill_9_of_any_process_at_random_moments(tmp_path: Path, rounds: int) -> None:
    with ThreadPoolExecutor(LANES) as lanes:
        held = list(lanes.map(partial(kill_one_after_another, tmp_path, rounds), range(LANES)))
    for victim in ("console", "collector"):
        assert any(one[victim] for one in held), f"no {victim} was killed while there was anything to leave behind"


def test_a_stopped_collector_does_not_outlive_the_console(tmp_path: Path) -> None:
    """As after SIGSTOP by hand: nobody is left who would continue it."""
    running = Running(tmp_path, *WITHOUT_SCREEN)
    with running.console:
        running.freeze("probes", 0.0)
        assert running.held
        send(signal.SIGKILL, [running.console.pid])
        running.console.wait()
        await_gone([*running.collectors, *running.workers], running.held, leftovers())
