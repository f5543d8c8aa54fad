"""reuseport_skew: what each socket of a shared port gets is what its process counted, and few flows leave some idle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netconsole.telemetry import frames
from tests.support.live.measurement import Measurement
from tests.support.live.network import Wire

PROBE = "reuseport_skew"
WORKERS, FLOWS, EACH = 4, 2, 3000
B = Wire.ADDRESSES[1]
LIMIT_S = 60.0

# Sockets with room for all (33: SO_RCVBUFFORCE); at each line it says what each has got so far.
SERVE = """
import os, socket, sys
workers, each = int(sys.argv[1]), int(sys.argv[2])
sockets, port = [], 0
for _ in range(workers):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    one.setblocking(False)
    one.bind(("", port))
    port = one.getsockname()[1]
    sockets.append(one)
print(port, *(os.fstat(one.fileno()).st_ino for one in sockets), flush=True)
got = [0] * workers
for _ in sys.stdin:
    for number, one in enumerate(sockets):
        try:
            while one.recv(64) is not None:
                got[number] += 1
        except BlockingIOError:
            pass
    print(*got, flush=True)
"""
SEND = """
import socket, sys
target, port, flows, each = sys.argv[1], *map(int, sys.argv[2:])
senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
for number, one in enumerate(senders):
    one.bind(("", 40000 + number))
for number in range(flows * each):
    senders[number % flows].sendto(b"x", (target, port))
"""


@pytest.fixture
def skew(collector: Measurement, wire: Wire) -> Iterator[Measurement]:
    if PROBE not in collector.statuses:
        collector.load(PROBE)
    collector.set(PROBE, netns=wire.b.inode)
    collector.begin()
    yield collector


def test_each_socket_gets_what_its_process_reads(skew: Measurement, wire: Wire) -> None:
    server = wire.b.start(SERVE, WORKERS, EACH)
    assert server.stdin and server.stdout
    try:
        port, *inodes = map(int, server.stdout.readline().split())
        wire.a.python(SEND, B, port, FLOWS, EACH)
        server.stdin.write("now\n")
        server.stdin.flush()
        got = dict(zip(inodes, map(int, server.stdout.readline().split()), strict=True))
        assert sum(got.values()) == FLOWS * EACH
        skew.settle()
        labels: dict[str, frames.Label] = {"netns": wire.b.name, "protocol": "UDP", "port": port, "address": "0.0.0.0"}

        def has_names() -> bool:  # processes are looked for every few seconds
            rows = skew.rows(PROBE, "members", **labels)
            return bool(rows) and all(str(row.labels["process"]).endswith(f"({server.pid})") for row in rows)

        skew.until(has_names, "processes of the sockets")
        rows = skew.rows(PROBE, "members", **labels)
        assert {row.labels["inode"]: row.counts["received"] for row in rows} == {
            inode: count for inode, count in got.items() if count
        }
        assert sum(row.counts["flows"] for row in rows) == FLOWS
        assert skew.counter(PROBE, "received") == FLOWS * EACH
        (group,) = skew.all_rows(PROBE, "groups", **labels)
        busy = sum(count > 0 for count in got.values())
        assert group.gauges == {"flows": FLOWS, "workers": WORKERS, "busy": busy, "idle": WORKERS - busy}
    finally:
        server.communicate(timeout=LIMIT_S)


def test_a_socket_alone_is_no_group(skew: Measurement, wire: Wire) -> None:
    wire.b.python("import socket; one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind(('', 41000))")
    wire.a.python(SEND, B, 41000, 1, 10)
    skew.settle()
    assert skew.counter(PROBE, "received") == 0


# Three sockets of one port; before each line of its input but the first one the socket of that number is opened anew.
# It says how many datagrams each of them got, in the order in which they were opened first.
REOPEN = """
import socket, sys
def opened(port):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    one.setblocking(False)
    one.bind(("", port))
    return one
first = opened(0)
port = first.getsockname()[1]
sockets = [first, opened(port), opened(port)]
print(port, flush=True)
for line in sys.stdin:
    got = []
    for one in sockets:
        got.append(0)
        try:
            while one.recv(64) is not None:
                got[-1] += 1
        except BlockingIOError:
            pass
    if line.strip() != "now":
        number = int(line)
        sockets[number].close()
        sockets[number] = opened(port)
    print(*got, flush=True)
"""


# Each of the senders sends another number, so that the kernel's hash gives no two sockets equally many by chance.
SEND_UNEVENLY = """
import socket, sys
target, port, flows = sys.argv[1], *map(int, sys.argv[2:])
for number in range(flows):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 40000 + number))
        for _ in range(1500 + number * number * 37 % 997):
            one.sendto(b"x", (target, port))
"""


def test_a_socket_that_is_opened_anew_lets_the_flows_of_two_move(skew: Measurement, wire: Wire) -> None:
    """The kernel puts the last of the group into its place: who got something in the last place, gets that now."""
    server = wire.b.start(REOPEN)
    assert server.stdin and server.stdout
    try:
        port = int(server.stdout.readline())
        flows = 24
        got: list[list[int]] = []
        for line in ("0", "now"):
            wire.a.python(SEND_UNEVENLY, B, port, flows)
            server.stdin.write(f"{line}\n")
            server.stdin.flush()
            got.append([int(word) for word in server.stdout.readline().split()])
        assert [sum(one) for one in got] == [sum(1500 + number * number * 37 % 997 for number in range(flows))] * 2
        before, after = got
        assert after == [before[2], before[1], before[0]] and before[0] != before[2], "what the kernel does"
        place: dict[str, frames.Label] = {"netns": wire.b.name, "protocol": "UDP", "port": port, "address": "0.0.0.0"}
        skew.until(lambda: skew.total(PROBE, "groups", "moved", **place) == 1, "a socket in another place")
    finally:
        server.communicate(timeout=LIMIT_S)
