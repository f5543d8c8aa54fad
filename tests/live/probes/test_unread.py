"""protocol_counters names the TCP socket that its program does not read, and what waits there."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from netconsole_collector.sources.base import SourceReading
from netconsole_collector.sources.net.protocol_counters import ProtocolCounters
from netconsole_collector.sources.net.unread import AFTER_NS
from tests.support.live.network import BARE_PYTHON, Wire

LISTENER = """
import array, fcntl, socket, sys, termios
server = socket.create_server(("", 9))
print("ready", flush=True)
one, peer = server.accept()
for line in sys.stdin:
    if line == "read\\n":
        one.recv(1 << 22)
    waiting = array.array("i", [0])
    fcntl.ioctl(one, termios.FIONREAD, waiting)
    print(peer[1], waiting[0], flush=True)
"""
SENDER = """
import socket, sys
one = socket.create_connection(("192.0.2.2", 9))
one.settimeout(1.0)
try:
    while True:
        one.send(bytes(8000))
except socket.timeout:
    print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.proves("protocol_counters", "tables.unread.{process,port,peer,peer_port,netns,waiting,unread_s}")
def test_a_socket_that_nobody_reads_is_named_until_its_program_reads(wire: Wire) -> None:
    listener = wire.b.start(LISTENER, python=BARE_PYTHON)
    assert listener.stdout is not None and listener.stdin is not None and listener.stdout.readline() == "ready\n"
    command = Path(f"/proc/{listener.pid}/comm").read_text().strip()
    now_ns = 0

    def rows(source: ProtocolCounters, after_ns: int) -> list[dict[str, Any]]:
        nonlocal now_ns
        now_ns += after_ns
        tables = source.read(SourceReading(after_ns, now_ns, is_whole=True))
        found = [row for one in tables if one.get("name") == "unread" for row in one["rows"]]
        return [row for row in found if row["labels"]["netns"] == wire.b.name]

    with closing(ProtocolCounters()) as source:
        source.open()
        rows(source, AFTER_NS)
        sender = wire.a.start(SENDER, python=BARE_PYTHON)
        assert sender.stdout is not None and sender.stdout.readline() == "ready\n"
        assert rows(source, AFTER_NS) == [], "for the first time"
        listener.stdin.write("look\n")
        listener.stdin.flush()
        peer_port, waiting = map(int, listener.stdout.readline().split())
        (row,) = rows(source, AFTER_NS)
        assert row["labels"] == {
            "process": f"{command}/{listener.pid}", "port": 9, "peer": Wire.ADDRESSES[0], "peer_port": peer_port,
            "netns": wire.b.name,
        }  # fmt: skip
        assert row["gauges"] == {"waiting": waiting, "unread_s": AFTER_NS // 1_000_000_000}
        listener.stdin.write("read\n")
        listener.stdin.flush()
        listener.stdout.readline()
        assert rows(source, AFTER_NS) == []
    for one in (sender, listener):
        one.kill()
        one.communicate()


DEAF = """
import socket, sys
one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
one.bind((0, 0x10))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.proves("protocol_counters", "tables.overruns.{process,kind,protocol,inode,netns,drops}")
def test_a_netlink_socket_that_loses_messages_is_named_with_what_the_kernel_counts(wire: Wire) -> None:
    program = wire.b.start(DEAF, python=BARE_PYTHON)
    with ExitStack() as stack:
        stack.callback(program.communicate)
        stack.callback(program.kill)
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        command = Path(f"/proc/{program.pid}/comm").read_text().strip()
        source = stack.enter_context(closing(ProtocolCounters()))
        source.open()
        source.read(SourceReading(1, 1, is_whole=True))
        for what in ("add", "del") * 20:
            wire.b.ip("address", what, "10.9.0.1/32", "dev", "lo")
        tables = source.read(SourceReading(1, 2, is_whole=True))
        lines = [one.split() for one in wire.b.run("cat", "/proc/net/netlink").splitlines()]
    rows = [row for one in tables if one.get("name") == "overruns" for row in one["rows"]]
    (row,) = (row for row in rows if row["labels"]["netns"] == wire.b.name)
    (line,) = (one for one in lines if one[2:4] == [str(program.pid), "00000010"])
    assert row["labels"] == {
        "process": f"{command}/{program.pid}", "kind": "netlink", "protocol": "route", "inode": int(line[9]),
        "netns": wire.b.name,
    }  # fmt: skip
    assert row["counts"]["drops"]["total"] == int(line[8]) > 0
