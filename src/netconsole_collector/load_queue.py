"""The probes that are to be loaded: a few compile at the same time, the others wait."""

from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from netconsole_collector.compile.job import CompileJob
from netconsole_collector.kernel import cpus

MAX_WORKERS = 2

Json = Dict[str, Any]


class Load:
    """A load command that waits for a worker, or compiles."""

    def __init__(self, command: Json) -> None:
        self.id: int = command["id"]
        self.probe: str = command["probe"]
        self.command = command
        self.job: Optional[CompileJob] = None


class LoadQueue:
    """``python`` is the interpreter for compile workers. ``keep_in`` is where they keep compiled programs."""

    def __init__(self, python: Optional[str], keep_in: Optional[str], has_ring_buffer: bool) -> None:
        self._python = python
        self._keep_in = keep_in
        self._has_ring_buffer = has_ring_buffer
        self._waiting: Deque[Load] = deque()
        self._compiling: List[Load] = []

    def add(self, load: Load) -> None:
        self._waiting.append(load)

    def of_probe(self, name: Any) -> Optional[Load]:
        """The load of this probe; None when there is none."""
        return next((load for load in [*self._waiting, *self._compiling] if load.probe == name), None)

    def fds(self) -> List[int]:
        """Descriptors that are readable when an answer arrives."""
        return [load.job.fileno() for load in self._compiling if load.job]

    def workers(self) -> List[int]:
        """Ids of the processes that compile."""
        return [load.job.pid for load in self._compiling if load.job]

    def job_of(self, load: Load) -> Json:
        """The job of a load (compile/worker.py)."""
        job = {key: load.command.get(key) for key in ("spec", "source", "config", "compiled", "kprobes")}
        job.update(cpus=cpus.nr_cpu_ids(), ring=self._has_ring_buffer, keep_in=self._keep_in)
        return job

    def start(self) -> List[Tuple[Load, Json]]:
        """Starts workers for loads that wait. Returns loads whose worker cannot start, with the answer for them."""
        failed = []
        while self._waiting and len(self._compiling) < MAX_WORKERS:
            load = self._waiting.popleft()
            try:
                load.job = CompileJob(self.job_of(load), self._python or "")
            except OSError as error:
                why = "the compile worker cannot start: {}: {}".format(self._python, error.strerror)
                failed.append((load, failure(why)))
            else:
                self._compiling.append(load)
        return failed

    def answered(self) -> List[Tuple[Load, Json]]:
        """Takes loads whose worker has answered out of the queue, and returns them with their answers."""
        done = []
        for load in list(self._compiling):
            if load.job and load.job.advance():
                self._compiling.remove(load)
                done.append((load, load.job.answer or {}))
        return done

    def cancel(self, load: Load) -> None:
        if load in self._waiting:
            self._waiting.remove(load)
        else:
            self._compiling.remove(load)
        if load.job:
            load.job.cancel()

    def cancel_all(self) -> None:
        for load in [*self._waiting, *self._compiling]:
            self.cancel(load)


def failure(why: str) -> Json:
    """The answer for a probe that fails without the worker's help."""
    return {"state": "failed", "why": why, "help": None, "missing": []}
