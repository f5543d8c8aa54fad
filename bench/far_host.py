"""A host over ssh, on a line with a round trip of 50 ms: started to first figures, and what it costs there.

    .venv/bin/python bench/far_host.py [ROUND_TRIP_MS] [SECONDS]

A real sshd in a network namespace of its own measures this machine's kernel. The first start fetches the kernel's types
and compiles; the second does neither. Needs root, BCC and openssh-server.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.console_command import COMMAND
from tests.support.live.network import Namespace, Wire
from tests.support.live.ssh_server import ADDRESS, SshServer

READY = "measuring with"
FIRST_S, SECOND_S = 8.0, 4.0
CUT_S, LIMIT_MS = 2.0, 10_000
MOST_CPU_PCT, MOST_MB, MOST_BYTES_PER_S = 2.0, 20.0, 10_000.0
DELAY = """
import os, selectors, socket, sys, time
late_s, far = float(sys.argv[1]) / 2000, socket.create_connection((sys.argv[2], 22))
far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
ways = {0: far.fileno(), far.fileno(): 1}
waiting = []
ready = selectors.DefaultSelector()
for fd in ways:
    ready.register(fd, selectors.EVENT_READ)
while True:
    due = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
    for key, _ in ready.select(due):
        data = os.read(key.fd, 65536)
        waiting.append((time.monotonic() + late_s, ways[key.fd], data))
    while waiting and waiting[0][0] <= time.monotonic():
        _, fd, data = waiting.pop(0)
        if not data:
            sys.exit()
        os.write(fd, data)
"""


@contextlib.contextmanager
def server(round_trip_ms: float) -> Iterator[SshServer]:
    """A host at the end of a slow line."""
    near, far = Namespace(), Namespace()
    with tempfile.TemporaryDirectory() as place:
        one = SshServer(Path(place), Wire(near, far))
        try:
            delay = Path(place, "delay.py")
            delay.write_text(DELAY)
            with Path(place, "config").open("a") as config:
                config.write(f"  ProxyCommand {sys.executable} {delay} {round_trip_ms:g} %h\n")
            yield one
        finally:
            one.close()
            near.remove()
            far.remove()


def started(one: SshServer, *arguments: str) -> tuple[subprocess.Popen[str], float]:
    """A console without a screen, and how long it took to its first figures."""
    began = time.monotonic()
    words = [*COMMAND, "snapshot", "--host", ADDRESS, "-o", "/dev/null", *arguments]
    process = subprocess.Popen(words, env=one.environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if READY in line:
            return process, time.monotonic() - began
    sys.exit("".join(said))


def carried(one: SshServer) -> int:
    """Bytes on the wire so far, both ways."""
    statistics = f"/sys/class/net/{one.wire.DEVICES[1]}/statistics/{{}}_bytes"
    both = one.wire.b.run("sh", "-c", f"cat {statistics.format('rx')} {statistics.format('tx')}")
    return sum(map(int, both.split()))


def cost(one: SshServer, seconds: float) -> tuple[float, float, float, float]:
    """Percent of a core of our programs there, and of sshd beside them; their memory in MB; the line's bytes/s."""

    def used(processes: list[psutil.Process]) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    there = psutil.Process(one.pid).children(recursive=True)
    ours = [process for process in there if "python" in process.name()]
    sshd = [process for process in there if "sshd" in process.name()]
    before = used(ours), used(sshd), carried(one), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - before[3]
    memory = sum(process.memory_full_info().pss for process in ours) / 1e6
    pcts = [100 * (used(those) - then) / elapsed for those, then in zip((ours, sshd), before, strict=False)]
    return pcts[0], pcts[1], memory, (carried(one) - before[2]) / elapsed


def ended_after_s(one: SshServer) -> float:
    """From the moment when the line is cut, and nothing says goodbye, to the end of our last program there."""
    there = [process for process in psutil.Process(one.pid).children(recursive=True) if "python" in process.name()]
    ends = select.poll()
    left = {os.pidfd_open(process.pid) for process in there}
    for end in left:
        ends.register(end, select.POLLIN)
    began = time.monotonic()
    one.cut()
    while left and (ended := ends.poll(LIMIT_MS)):
        for end, _ in ended:
            ends.unregister(end)
            left.remove(end)
            os.close(end)
    return float("inf") if left or not there else time.monotonic() - began


def main() -> int:
    round_trip_ms = float(sys.argv[1]) if len(sys.argv) > 1 else 50.0
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    if os.geteuid() != 0:
        sys.exit("needs root")
    with server(round_trip_ms) as one:
        process, first_s = started(one, "--duration", "1s")
        process.wait()
        process, second_s = started(one, "--duration", "10m")
        time.sleep(5)  # starting up is dear
        cpu_pct, sshd_pct, memory_mb, bytes_per_s = cost(one, seconds)
        cut_s = ended_after_s(one)
        one.cut(False)
        process.send_signal(signal.SIGINT)
        process.wait()
    print(f"round trip of {round_trip_ms:g} ms, profile summary, {seconds:g} s")
    print(f"started to first figures: {first_s:.1f} s the first time (at most {FIRST_S:g} s),", end=" ")
    print(f"{second_s:.1f} s the second time (at most {SECOND_S:g} s)")
    print(
        f"cost there: {cpu_pct:.2f} % of a core (at most {MOST_CPU_PCT:g} %), sshd beside it {sshd_pct:.2f} %,", end=" "
    )
    print(f"{memory_mb:.1f} MB (at most {MOST_MB:g} MB)")
    print(f"on the line: {bytes_per_s / 1000:.1f} kB/s both ways (at most {MOST_BYTES_PER_S / 1000:g} kB/s)")
    print(f"the line is cut: the last program there ends after {cut_s:.2f} s (at most {CUT_S:g} s)")
    kept = (cut_s <= CUT_S, first_s <= FIRST_S, second_s <= SECOND_S, cpu_pct <= MOST_CPU_PCT, memory_mb <= MOST_MB)
    return 0 if all(kept) and bytes_per_s <= MOST_BYTES_PER_S else 1


if __name__ == "__main__":
    sys.exit(main())
