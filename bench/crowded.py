"""Measures the console on a host at load 100: the first line, the first picture, keys, and leaving (needs root).

Busy loops of the usual priority, each in a session of its own, so that no kernel takes them for one. The console has to
say what it does within a second, to draw a picture within 2 s, to answer keys within 1 s, and to leave within 2 s with
exit code 0 and nothing left.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.live import bpf_objects
from tests.support.terminal_process import TerminalProcess, alive

COMMAND = (str(Path(sys.executable).with_name("netconsole")),)
"""The script that is installed: it raises its priority before it imports the rest."""
LINE_S, PICTURE_S, KEY_S, LEAVE_S = 1.0, 2.0, 1.0, 2.0
TURNS = (("4", "Where packets die"), ("6", "Softirq"), ("?", "Esc"), ("\x1b", "6Host"), ("1", "STANDS OUT"))
"""Keys, and what is on the screen when they are answered."""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many loops, as long as this process lives."""
    parent, pids = os.getpid(), []
    try:
        for _ in range(count):
            pid = os.fork()
            if not pid:
                os.setsid()
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
                while os.getppid() == parent:
                    sum(range(10_000))
                os._exit(0)
            pids.append(pid)
        while float(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) < count:
            time.sleep(0.1)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=98, help="busy loops (default 98)")
    parser.add_argument("--rounds", type=int, default=1, help="consoles, one after the other (default 1)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("not on this host: that needs root")
        return 0
    # The terminal itself must not wait for a CPU; what it starts has the usual priority again.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    with busy(options.loops), tempfile.TemporaryDirectory() as directory:
        return sum(one_round(directory) for _ in range(options.rounds)) and 1


def one_round(directory: str) -> int:
    """One console from its start to its end; how many promises it broke."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_CONFIG_HOME": directory}
    programs, started = set(bpf_objects.program_ids()), time.monotonic()
    with TerminalProcess(COMMAND, environment, 80, 24) as console:
        console.until("a first line", lambda: bool(console.output))
        line_s = time.monotonic() - started
        console.until_first("STANDS OUT")
        keys = [answered_s(console, key, text) for key, text in TURNS]
        console.until_text(" ok")  # a probe measures
        measures_s = time.monotonic() - started
        keys += [answered_s(console, key, text) for key, text in TURNS]
        children = console.children()
        console.press("q")
        left_s = console.wait()
        left = [pid for pid in children if alive(pid)] + sorted(set(bpf_objects.program_ids()) - programs)
    load = Path("/proc/loadavg").read_text().split()[3]
    typical, longest = sorted(keys)[len(keys) // 2], max(keys)
    print(
        f"{load} threads; first line {line_s:.1f} s, first picture {console.first_s:.1f} s, measures {measures_s:.1f} s"
    )
    print(f"  keys {typical:.2f} s (median), {longest:.2f} s (longest); left in {left_s:.1f} s, exit {console.status}")
    print(f"  left behind: {left or 'nothing'}")
    kept = (
        line_s <= LINE_S,
        console.first_s <= PICTURE_S,
        max(keys) <= KEY_S,
        left_s <= LEAVE_S,
        console.status == 0 and not left,
    )
    return kept.count(False)


def answered_s(console: TerminalProcess, key: str, text: str) -> float:
    """How long it takes until the answer to a key is on the screen."""
    pressed = time.monotonic()
    console.press(key)
    console.until_text(text)
    return time.monotonic() - pressed


if __name__ == "__main__":
    raise SystemExit(main())
