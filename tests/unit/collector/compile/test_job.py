"""The answer of a compile worker is taken whole or not at all, and nothing of it is left open."""

from __future__ import annotations

import os
import resource
import select
import sys
from pathlib import Path

from netconsole_collector.compile.job import CompileJob

DESCRIPTORS = 20
LIMIT_MS = 120_000
OPEN = Path("/proc/self/fd")
WORKER = f"""#!{sys.executable}
import array, json, os, socket, struct, sys
answer = {{"ok": True, "programs": [], "missing": [], "names": {{}}}}
answer["maps"] = {{str(number): number for number in range({DESCRIPTORS})}}
message = json.dumps(answer).encode()
fds = array.array("i", [os.open(os.devnull, os.O_RDONLY) for _ in range({DESCRIPTORS})])
far = socket.socket(fileno=int(sys.argv[-2]))
far.sendmsg([struct.pack("=I", len(message)) + message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
far.recv(1)
"""


def finished(tmp_path: Path, may_open: int) -> CompileJob:
    """A job whose collector may have so many more files open than it has now."""
    worker = tmp_path / "python"
    worker.write_text(WORKER)
    worker.chmod(0o700)
    job = CompileJob({}, str(worker))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(fd.name) for fd in OPEN.iterdir()}
    limit = [fd for fd in range(len(taken) + may_open + 1) if fd not in taken][may_open]
    poller = select.poll()
    poller.register(job.fileno(), select.POLLIN)
    assert poller.poll(LIMIT_MS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        while not job.advance():
            assert poller.poll(LIMIT_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return job


def open_files() -> int:
    return sum(1 for _ in OPEN.iterdir())


def test_every_descriptor_is_taken_over(tmp_path: Path) -> None:
    before = open_files()
    answer = finished(tmp_path, 1000).answer
    assert answer is not None and answer["ok"]
    fds = list(answer["maps"].values())
    assert len(set(fds)) == DESCRIPTORS == open_files() - before
    for fd in fds:
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_descriptors_for_which_there_is_no_room_are_a_failure_that_says_so(tmp_path: Path) -> None:
    before = open_files()
    answer = finished(tmp_path, 8).answer
    assert answer is not None and not answer["ok"]
    assert "open files" in answer["why"] and "ulimit -n" in answer["help"]
    assert open_files() == before
