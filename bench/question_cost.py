"""Measures what questions about causes cost on a host that has much of what they look at: rules, routes, sockets.

Each is asked in a process of its own, twice: the first time its module is imported, too. Prints the CPU time of both in
ms, with that of programs that it starts (nft). `--scale 0.1`: a tenth of everything. It needs root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.live.network import Namespace, Wire

ASKING = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from netconsole_collector.questions import known
def cpu_s():
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)
for _ in range(2):
    began = cpu_s()
    known.answer(sys.argv[2], json.loads(sys.argv[3]))
    print(1000 * (cpu_s() - began))
"""
SOCKETS = """
import socket, sys
kept = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sys.argv[1]))]
for one in kept:
    one.bind(("", 0))
print("ready", flush=True)
sys.stdin.read()
"""
SOURCE, TARGET = Wire.ADDRESSES
DEVICE = Wire.DEVICES[1]
PACKET = {"source": SOURCE, "target": TARGET, "source_port": 40000, "target_port": 9, "transport": "UDP"}
SOCKETS_A_PROCESS = 900


class Host(NamedTuple):
    """``fill``: makes so much of something in a namespace."""

    about: str
    size: int
    fill: Callable[[Namespace, int, ExitStack], None]
    question: str
    arguments: dict[str, object]


def rules(namespace: Namespace, size: int, _: ExitStack) -> None:
    """All in one chain, as for the services of a cluster; the last one drops."""
    lines = [
        "add table ip f",
        "add chain ip f in { type filter hook input priority 0; }",
        "add chain ip f services",
        *(f"add rule ip f services ip daddr 10.{n >> 8}.{n & 255}.1 udp dport 53 counter accept" for n in range(size)),
        "add rule ip f in jump services",
        "add rule ip f in udp dport 9 drop",
    ]
    namespace.run("nft", "-f", "-", input="\n".join(lines) + "\n")


def routes(namespace: Namespace, size: int, _: ExitStack) -> None:
    """Of which one refuses."""
    lines = [f"route add 10.{n >> 8}.{n & 255}.0/24 via {SOURCE}" for n in range(size)]
    namespace.run("ip", "-batch", "-", input="\n".join([*lines, "route add blackhole 172.16.0.0/16"]) + "\n")


def sockets(namespace: Namespace, size: int, stack: ExitStack) -> None:
    for _ in range(max(1, size // SOCKETS_A_PROCESS)):
        process = namespace.start(SOCKETS, min(size, SOCKETS_A_PROCESS))
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"


FIREWALL = {"hook": "input", "protocol": "IPv4", "device": DEVICE, **PACKET}
ROUTE = {"device": DEVICE, "source": SOURCE, "target": "172.16.1.1"}
HOSTS = (
    Host("firewall rules", 10, rules, "firewall", FIREWALL),
    Host("firewall rules", 1000, rules, "firewall", FIREWALL),
    Host("firewall rules", 5000, rules, "firewall", FIREWALL),
    Host("routes, and the way is asked", 20_000, routes, "route", {**ROUTE, "target": TARGET}),
    Host("routes, and one refuses", 20_000, routes, "route", {**ROUTE, "refused": True}),
    Host("UDP sockets", 18_000, sockets, "sockets", {"wanted": "port", "protocol": "UDP", "port": 9}),
    Host("sockets, and a queue is asked", 900, sockets, "queue", {"device": DEVICE}),
)


@contextmanager
def filled(host: Host, size: int) -> Iterator[Namespace]:
    with ExitStack() as stack:
        a, b = Namespace(), Namespace()
        stack.callback(a.remove)
        stack.callback(b.remove)
        Wire(a, b)
        host.fill(b, size, stack)
        yield b


def cost_ms(host: Host, size: int) -> tuple[float, float]:
    """The first time, and the second."""
    with filled(host, size) as namespace:
        arguments = json.dumps({"netns": namespace.name, **host.arguments})
        words = (sys.executable, "-ISc", ASKING, str(Path(__file__).parents[1] / "src"), host.question, arguments)
        first, second = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    return float(first), float(second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="so much of everything (default 1)")
    scale = parser.parse_args().scale
    print(f"{'question':10} {'the host has':42} {'first ms':>9} {'ms':>7}")
    for host in HOSTS:
        size = max(1, round(host.size * scale))
        first, second = cost_ms(host, size)
        print(f"{host.question:10} {f'{size} {host.about}':42} {first:9.1f} {second:7.1f}", flush=True)


if __name__ == "__main__":
    main()
