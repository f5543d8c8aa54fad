"""Measures how many packets of a mirror a core takes: mirror_xdp beside a reader in C.

The reader does what a worker does at least: it takes datagrams from a port that several share (SO_REUSEPORT), 64 at a
time (recvmmsg), and forgets them. Its figure is its own CPU time; what the kernel's stack takes to bring a datagram to
its socket is not in it. That of mirror_xdp is the run time of its program, with the reading of the clock. Frames are
those of flow_rate.py in VXLAN, over a veth. Checks nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.flow_rate import TARGET, Load
from bench.path_cost import STATISTICS_MS, Timing
from bench.storm import compiled
from tests.support.live.network import Namespace, Wire

VXLAN = 4789
IN_C = r"""
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define BATCH 64
static volatile sig_atomic_t ended;
static void end(int number) { ended = number; }
static double s(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

int main(int argc, char **argv)
{
    static char room[BATCH][2048];
    static struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    struct sigaction act = {.sa_handler = end};
    struct rusage used;
    int yes = 1, buffer = 64 << 20, wire = socket(AF_INET, SOCK_DGRAM, 0);
    unsigned long received = 0;

    sigaction(SIGTERM, &act, 0);
    setsockopt(wire, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    setsockopt(wire, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    if (bind(wire, (struct sockaddr *)&at, sizeof at))
        return 1;
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){room[i], sizeof room[i]};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    puts("ready");
    fflush(stdout);
    while (!ended) {
        int count = recvmmsg(wire, messages, BATCH, MSG_WAITFORONE, 0);
        received += count > 0 ? count : 0;
    }
    getrusage(RUSAGE_SELF, &used);
    printf("%lu %.6f\n", received, s(used.ru_utime) + s(used.ru_stime));
    return 0;
}
"""


def of_readers(load: Load, program: Path, count: int) -> tuple[str, float]:
    """What they received, and the CPU time of a datagram in nanoseconds."""
    words = ["ip", "netns", "exec", load.wire.b.name, str(program), str(VXLAN)]
    with ExitStack() as stack:
        readers = [
            stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) for _ in range(count)
        ]
        for one in readers:
            stack.callback(one.kill)
            assert one.stdout is not None and one.stdout.readline() == "ready\n"
        sent, _, _ = load.send()
        said = []
        for one in readers:
            one.terminate()
            said.append(one.communicate(timeout=60)[0].split())
    received, cpu_s = (sum(float(one[place]) for one in said) for place in range(2))
    return f"{int(received):,} of {sent:,}", 1e9 * cpu_s / received


def of_mirror(collector: Timing, load: Load) -> float:
    """The run time of a packet in nanoseconds."""
    collector.load("mirror_xdp", device=Wire.DEVICES[1])
    collector.begin()
    collector.statistics(STATISTICS_MS)
    load.send()
    collector.settle()
    runs, took_ns = (sum(one[place] for one in collector.runs.values()) for place in range(2))
    collector.statistics(0)
    collector.command(command="unload", probe="mirror_xdp")
    return took_ns / runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, nargs="+", default=[64, 64_000])
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("mirror_reader.py needs root: it loads BPF programs and makes network namespaces")
    with ExitStack() as stack:
        program = compiled(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "reader", IN_C)
        if program is None:
            raise SystemExit("mirror_reader.py needs a C compiler")
        ends = [Namespace(), Namespace()]
        for end in ends:
            stack.callback(end.remove)
        wire = Wire(*ends)
        wire.b.ip("address", "add", f"{TARGET}/32", "dev", Wire.DEVICES[1])
        wire.b.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", f"net.ipv4.conf.{Wire.DEVICES[1]}.rp_filter=0")
        wire.b.ip("route", "add", "default", "dev", Wire.DEVICES[1])
        collector = stack.enter_context(closing(Timing(inside=wire.b)))
        collector.statistics(0)
        print("| load | received | a reader: ns | mirror_xdp: ns | packets a core: times |")
        print("|---|---|---|---|---|")
        for load in (Load(wire, flows, vxlan=True, is_checked=True) for flows in options.flows):
            for _ in range(options.pairs):
                received, reader_ns = of_readers(load, program, options.readers)
                mirror_ns = of_mirror(collector, load)
                figures = f"{reader_ns:.0f} | {mirror_ns:.0f} | {reader_ns / mirror_ns:.1f}"
                print(f"| {load.title} | {received} | {figures} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
