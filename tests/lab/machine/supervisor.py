"""Runs the lab's processes, and ends them at a time limit or when the test run has ended.

machine.py starts it as a process in its own session, so that a signal to the test run does not kill it, too. It watches
a pipe whose other end only the test run holds: the kernel closes that end however the test run dies. If the supervisor
itself is killed, the kernel sends SIGKILL to the processes (PR_SET_PDEATHSIG).

    supervisor.py LIFELINE_FD LIMIT_S COMMANDS_JSON

The last command is the machine. The commands before it serve it (a file server) and end with it. The limit begins anew
with each byte in the pipe. Exit status: that of the machine, 124 at the limit, 125 when the test run has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
EXIT_LIMIT = 124
EXIT_ORPHANED = 125
EXIT_STOPPED = 126


class Stopped(Exception):
    """Somebody asked for the end with a signal."""


def main() -> int:
    lifeline, limit_s, commands = int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])
    libc = ctypes.CDLL(None)
    me = os.getpid()

    def die_with_supervisor() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != me:
            os._exit(EXIT_ORPHANED)

    def stop(_signum: int, _frame: object) -> None:
        raise Stopped

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, stop)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    command["argv"],
                    stdin=subprocess.DEVNULL,
                    pass_fds=command["fds"],
                    preexec_fn=die_with_supervisor,
                    start_new_session=True,
                )
            )
            for fd in command["fds"]:
                os.close(fd)
        return watch(lifeline, limit_s, running[-1])
    except Stopped:
        return EXIT_STOPPED
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def watch(lifeline: int, limit_s: float, machine: subprocess.Popen[bytes]) -> int:
    """Waits for the first of: the machine's end, the test run's end, the limit since the last word of the test run."""
    deadline = time.monotonic() + limit_s
    ended = os.pidfd_open(machine.pid)
    poller = select.poll()
    poller.register(lifeline, select.POLLIN | select.POLLHUP)
    poller.register(ended, select.POLLIN)
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return EXIT_LIMIT
        ready = {fd for fd, _ in poller.poll(left_s * 1000)}
        if ended in ready:
            return machine.wait() & 0x7F
        if lifeline in ready:
            if not os.read(lifeline, 4096):
                return EXIT_ORPHANED
            deadline = time.monotonic() + limit_s


if __name__ == "__main__":
    sys.exit(main())
