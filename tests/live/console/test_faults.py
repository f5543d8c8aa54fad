"""Faults made by hand: each is one incident, which says cause and place, and counts exactly what was lost.

The faults are data (faults.toml). All are made side by side, each in two namespaces of its own, on one running session.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from netconsole.base.readers import read_toml
from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from tests.support.live.network import BARE_PYTHON, Namespace, SleepingReceiver, Wire

pytestmark = pytest.mark.costs  # its senders keep a pace, and need the machine for themselves

PROBES = (
    "kernel_drops",
    "tx_queue_latency",
    "socket_drops",
    "socket_groups",
    "link_rates",
    "softnet",
    "protocol_counters",
)
LIMIT_S = 120.0
PORT = 9
FLOWS = 64
"""Enough that some reach each socket of a group: the kernel spreads them by a hash."""
SECOND_NS = 1_000_000_000
PACED = """
import socket, sys, time
family, kind, target, port, count, per_s, flows = (sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:8]))
senders = [socket.socket(getattr(socket, family), getattr(socket, kind)) for _ in range(flows)]
payload = bytes.fromhex(sys.argv[8])
if family == "AF_PACKET":
    senders[0].bind((target, 0))
started = time.monotonic()
for number in range(count):
    while number > per_s * (time.monotonic() - started):
        time.sleep(0.001)
    sender = senders[number % flows]
    try:
        sender.send(payload) if family == "AF_PACKET" else sender.sendto(payload, (target, port))
    except OSError:  # a firewall refuses it, or the device is down: it is dropped all the same
        pass
"""
READER = """
import socket, sys
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
reader.bind(("", 9))
print("ready", flush=True)
while True:
    reader.recv(64)
"""
GROUP = """
import os, socket, sys, threading
def make():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.bind(("", 9))
    return one
sleeper, *readers = [make() for _ in range(3)]
def read(one):
    while True:
        one.recv(64)
for one in readers:
    threading.Thread(target=read, args=(one,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Fault:
    """One fault of faults.toml, and what it needs while it lasts."""

    name: str
    send: str
    count: int
    per_s: int
    cause: str
    says: str
    make: Sequence[str] = ()
    undo: Sequence[str] = ()
    lost: int | None = None
    is_small: bool = False
    needs: str = ""
    until: Sequence[str] = ()
    a: Namespace = field(init=False)
    b: Namespace = field(init=False)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    sender: subprocess.Popen[str] | None = None

    def prepare(self, stack: ExitStack) -> None:
        """The wire, what stands at its ends, and the fault itself."""
        self.a = Namespace()
        stack.callback(self.a.remove)
        self.b = Namespace()
        stack.callback(self.b.remove)
        wire = Wire(self.a, self.b)
        if self.send == "udp6":
            wire.use_ipv6()
        if "reader" in self.send:
            self._stand(stack, READER)
        if "group" in self.send:
            self._stand(stack, GROUP)
        if "sleeper" in self.send:
            self.port = stack.enter_context(SleepingReceiver(self.b)).port
        for line in self.make:
            try:
                self._run(line)
            except AssertionError as error:
                if not self.needs or self.needs not in str(error):
                    raise
                self.cannot = str(error)
        if self.until:
            asks, shown = self.until
            while shown not in self._run(asks):
                pass  # the kernel tells of a carrier some time after it was lost
        if "198.51.100.7" in self.send:
            self.a.ip("route", "add", "198.51.100.0/24", "via", Wire.ADDRESSES[1])

    port: int = PORT
    cannot: str = ""
    """What this kernel lacks for it."""

    def _run(self, line: str) -> str:
        end, _, command = line.partition(" ")
        return {"a": self.a, "b": self.b}[end].run(*command.split())

    def _stand(self, stack: ExitStack, code: str) -> None:
        process = self.b.start(code)
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        """Start to send."""
        if self.send.startswith("frame"):
            words = ("AF_PACKET", "SOCK_RAW", Wire.DEVICES[0], 0, self.count, self.per_s, 1, frame(self.send).hex())
        elif self.send == "udp6":
            words = ("AF_INET6", "SOCK_DGRAM", Wire.ADDRESSES6[1], PORT, self.count, self.per_s, 1, "78" * 64)
        else:
            target = "198.51.100.7" if "198.51.100.7" in self.send else Wire.ADDRESSES[1]
            flows = FLOWS if "group" in self.send else 1
            words = ("AF_INET", "SOCK_DGRAM", target, self.port, self.count, self.per_s, flows, "78" * 64)
        self.sender = self.a.start(PACED, *words, python=BARE_PYTHON)

    def end(self) -> None:
        """Wait until all is sent, and take back what would go on by itself."""
        assert self.sender is not None
        self.sender.communicate(timeout=LIMIT_S)
        for line in self.undo:
            self._run(line)

    def is_of(self, incident: Incident) -> bool:
        """Whether an incident lies in this fault's namespaces."""
        names = {self.a.name, self.b.name, str(self.a.inode), str(self.b.inode)}
        labels = [dict(evidence.key).get("netns") for evidence in incident.evidence]
        return bool(names & {str(label) for label in (*labels, incident.where.get("netns"))})


def checksum(data: bytes) -> int:
    """Of the internet protocols (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) & ~1])) + (data[-1] << 8 if len(data) % 2 else 0)
    total = (total & 0xFFFF) + (total >> 16)
    return int(~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)


def frame(kind: str) -> bytes:
    """An Ethernet frame from a to b, with what its kind says is wrong with it."""
    source = kind.rpartition("from ")[2] if " from " in kind else Wire.ADDRESSES[0]
    ends = socket.inet_aton(source) + socket.inet_aton("198.51.100.7" if "forwarded" in kind else Wire.ADDRESSES[1])
    protocol = 6 if "TCP" in kind else 253 if "253" in kind else 1 if "ICMP" in kind else 17
    if protocol == 1:
        body = struct.pack("!BBHHH", 8, 0, 0xDEAD, 1, 1) + b"x" * 16
    elif protocol == 6:
        body = struct.pack("!HHIIBBHHH", 40000, PORT, 1, 0, 5 << 4, 2, 1024, 0xDEAD, 0)
    else:
        wrong = 0xDEAD if "UDP checksum" in kind else 0
        body = struct.pack("!HHHH", 40000, PORT, 8 + 16, wrong) + b"x" * 16
    length = 20 + len(body) + (100 if "is cut" in kind else 0)
    words = 4 if "short IP header" in kind else 5
    version, hops = (9 if "version 9" in kind else 4), (1 if "one hop" in kind else 64)
    head = struct.pack("!BBHHHBBH", version << 4 | words, 0, length, 1, 0, hops, protocol, 0) + ends
    right = checksum(head) ^ (0x5555 if "IP checksum" in kind else 0)
    head = head[:10] + struct.pack("!H", right) + head[12:]
    target = "02:00:00:00:00:ff" if "somebody else" in kind else Wire.MACS[1]
    macs = b"".join(bytes.fromhex(mac.replace(":", "")) for mac in (target, Wire.MACS[0]))
    return macs + (b"\x88\xb5" if "nobody speaks" in kind else b"\x08\x00") + head + body


class Made(Protocol):
    """Something that is wrong, in namespaces of its own."""

    def is_of(self, incident: Incident) -> bool:
        """Whether an incident lies in its namespaces."""
        ...


FOUND_AFTER = 3
"""Intervals after which new namespaces are known."""


class Watch:
    """The incidents of a live session, as the console would follow them."""

    def __init__(self) -> None:
        manifests = load_all()
        profile = load("summary", manifests)
        requests = [one for one in plan(profile, manifests, PROBES) if one.name in PROBES]
        self._session = session_of(requests, profile, manifests)
        self._incidents = Incidents(manifests)
        self._changed = threading.Condition()
        self.intervals = 0
        self.first_ns: dict[int, int] = {}
        """When each incident was first listed, by its number (wall clock of the frames)."""
        self._session.on_news(self._note)
        self._session.start()

    def _note(self, _news: object) -> None:
        with self._session.view() as state:
            for one in self._incidents.update(state, self._session.connection()):
                self.first_ns.setdefault(one.number, state.collector.closed_wall_ns or 0)
            intervals = state.collector.intervals
        with self._changed:
            self.intervals = intervals
            self._changed.notify_all()

    def until(self, true: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
        """Wait; False at the limit."""
        with self._changed:
            return self._changed.wait_for(true, limit_s)

    def settled(self) -> bool:
        return self._session.settled() and self.intervals > 1

    def of(self, fault: Made) -> list[Incident]:
        """All incidents of a fault since the start."""
        with self._session.view():
            return [one for one in list(self._incidents.log) if fault.is_of(one)]

    def has_passed(self, interval: int) -> bool:
        return self.intervals >= interval

    def are_over(self, made: Sequence[Fault]) -> bool:
        """Whether each has an incident, and all have ended."""
        return all(found and all(one.ended_ns for one in found) for found in map(self.of, made))

    def close(self) -> None:
        self._session.close()


def faults() -> list[dict[str, Any]]:
    found: Any = read_toml(Path(__file__).with_name("faults.toml"))["fault"]
    return list(found)


@pytest.fixture(scope="module")
def after() -> Iterator[tuple[Watch, dict[str, tuple[Fault, list[Incident]]]]]:
    """Every fault that this kernel can have, after it is over, with its incidents."""
    known: dict[str, tuple[Fault, list[Incident]]] = {}
    with closing(Watch()) as watch:
        assert watch.until(watch.settled)
        made = [Fault(**one) for one in faults()]
        with ExitStack() as stack:
            for one in made:
                one.prepare(stack)
            made = [one for one in made if not one.cannot]
            begun = watch.intervals
            assert watch.until(partial(watch.has_passed, begun + FOUND_AFTER))
            for one in made:
                one.begin()
            for one in made:
                one.end()
            watch.until(partial(watch.are_over, made))
            known |= {one.name: (one, watch.of(one)) for one in made}
        yield watch, known


@pytest.mark.parametrize("name", [one["name"] for one in faults()])
@pytest.mark.proves(
    "kernel_drops",
    "findings.drops.count.!.{fault,refused,unwanted}",
)
@pytest.mark.proves("socket_drops", "findings.sockets.buffer_full.!!")
def test_each_fault_is_one_incident_that_says_its_cause_and_counts_exactly(
    name: str, after: tuple[Watch, dict[str, tuple[Fault, list[Incident]]]]
) -> None:
    watch, known = after
    if name not in known:
        pytest.skip("cannot run here: the kernel lacks what the fault is made with")
    fault, incidents = known[name]
    assert [one.cause for one in incidents] == [fault.cause], [one.sentence for one in incidents]
    (one,) = incidents
    assert re.search(fault.says, one.sentence), one.sentence
    assert one.ended_ns is not None, "it goes on"
    assert one.peak is not None and one.peak > 0
    assert fault.is_small or watch.first_ns[one.number] - one.since_ns <= 3 * SECOND_NS
    if fault.lost != 0:
        assert (one.total, one.at_least) == (fault.lost or fault.count, False)
