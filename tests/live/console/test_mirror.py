"""A mirror through the console: each loss is told by its place and cause, and all losses add up to what was sent.

One session watches the namespace to which the mirror comes, while packets are lost at one stage after the other.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from subprocess import Popen

import pytest

from netconsole.findings.incident import Incident
from netconsole.snapshot.mirror_ledger import LOST, MirrorStage
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import mirror
from netconsole.tui.scene.scene import Scene
from tests.live.console.test_faults import FOUND_AFTER, PROBES, SECOND_NS, Watch
from tests.live.probes.test_mirror_estimate import Cloud
from tests.support.live.network import Namespace, Wire, run

pytestmark = pytest.mark.costs  # its senders keep a pace, and need the machine for themselves

PROBE = "mirror"
VXLAN, GENEVE = 4789, 6081
SMALL, MIDDLE, LARGE = 8192, 32768, 64 << 20
TUPLES, PER_S, COUNT = 64, 2000, 6000
TOLD_NS = 2 * SECOND_NS
"""After so long a loss is told."""
LIMIT_S = 20.0
BACKLOG = "net.core.netdev_max_backlog"

# One worker, which reads what comes, or ("late") only when it is asked. It is asked once how many packets it has had.
WORK = """
import os, select, socket, sys
port, buffer = map(int, sys.argv[1:3])
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.setsockopt(socket.SOL_SOCKET, 33, buffer)  # SO_RCVBUFFORCE
one.bind(("", port))
one.setblocking(False)
print(os.fstat(one.fileno()).st_ino, flush=True)
got, awaited = 0, [sys.stdin] if sys.argv[3] == "late" else [sys.stdin, one]
while True:
    ready, _, _ = select.select(awaited, [], [])
    try:
        while one.recv(2048) is not None:
            got += 1
    except BlockingIOError:
        pass
    if sys.stdin in ready:
        break
print(got)
"""
CAPTURE = """
import socket, sys
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(sys.argv[2]))
one.bind((sys.argv[1], 0))
print("ready", flush=True)
sys.stdin.read()
"""
# Packets of a tunnel from so many source ports, several in one call if asked: then they come to one CPU at once.
SEND = """
import socket, struct, sys, time
target, port, tuples, count, per_s, at_once = sys.argv[1], *map(int, sys.argv[2:])
head = struct.pack(">II", 1 << 27, 7 << 8) if port == 4789 else struct.pack(">HHI", 0, 0x6558, 7 << 8)
ip = struct.pack(">BBHHHBBH", 0x45, 0, 48, 0, 0, 64, 17, 0) + bytes([10, 1, 0, 1, 10, 2, 0, 1])
frame = head + bytes.fromhex("02000000000b02000000000a0800") + ip + struct.pack(">HHHH", 1000, 53, 28, 0) + bytes(20)
senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(tuples)]
for number, one in enumerate(senders):
    one.bind(("", 40000 + number))
    if at_once > 1:
        one.setsockopt(socket.IPPROTO_UDP, 103, len(frame))  # UDP_SEGMENT
started = time.monotonic()
for number in range(0, count, at_once):
    while number > per_s * (time.monotonic() - started):
        time.sleep(0.001)
    senders[number // at_once % tuples].sendto(frame * at_once, (target, port))
"""


class Worker:
    """A process with a socket on the port of the mirror."""

    def __init__(self, namespace: Namespace, port: int, buffer: int, how: str) -> None:
        self.process: Popen[str] = namespace.start(WORK, port, buffer, how)
        assert self.process.stdout is not None
        self.inode = int(self.process.stdout.readline())

    def ends(self) -> int:
        """What it has received in all."""
        said, _ = self.process.communicate("\n", timeout=LIMIT_S)
        return int(said)


class Host:
    """Where the mirror comes to, and the session that watches it."""

    def __init__(self, stack: ExitStack) -> None:
        self._workers: list[Worker] = []
        ends = [Namespace(), Namespace()]
        for end in ends:
            stack.callback(end.remove)
        self.wire = Wire(*ends)
        self.watch = stack.enter_context(closing(Watch("mirror", (*PROBES, PROBE, "reuseport_skew"), ends[1].inode)))
        assert self.watch.until(self.watch.settled)

    def begin(self) -> None:
        """From here on, what comes is counted."""
        self.read()
        self._before = self._counters()

    def end(self) -> None:
        """Nobody reads any more."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()
        self._workers.clear()

    def worker(self, port: int, buffer: int = LARGE, how: str = "reads") -> Worker:
        """Another one; it ends with the test."""
        self._workers.append(Worker(self.wire.b, port, buffer, how))
        return self._workers[-1]

    def read(self) -> None:
        """Until all that has happened was read."""
        end = self.watch.intervals + FOUND_AFTER
        assert self.watch.until(lambda: self.watch.has_passed(end))

    def send(self, port: int = VXLAN, tuples: int = TUPLES, at_once: int = 1) -> int:
        """How many packets were sent."""
        self.wire.a.python(SEND, Wire.ADDRESSES[1], port, tuples, COUNT, PER_S, at_once)
        return COUNT

    def counted(self) -> dict[str, int]:
        """By the counters of the probe, since the beginning; without those that are 0."""
        now = self._counters()
        return {name: count for name in now if (count := now[name] - self._before[name])}

    def stages(self) -> Mapping[str, MirrorStage]:
        """The lines of the ledger by stage."""
        found = self.watch.of(self)
        with self.watch.view() as state:
            plan = self.watch.plan
            scene = Scene(state, plan.manifests, plan.profile, Connection("live"), findings=found)
            return {one.name: one for one in mirror.ledger(scene).stages}

    def told(self, cause: str, says: str) -> None:
        """What goes wrong now is told in time, and says this."""
        assert self.watch.until(lambda: any(self._says(cause, says)), LIMIT_S), self._sentences()
        one = next(self._says(cause, says))
        assert self.watch.first_ns[one.number] - one.since_ns <= TOLD_NS

    def is_of(self, incident: Incident) -> bool:
        """Not of what netconsole does to keep its budget."""
        return not incident.is_ours

    def _says(self, cause: str, says: str) -> Iterator[Incident]:
        return (one for one in self.watch.of(self) if one.cause == cause and re.search(says, one.sentence))

    def _sentences(self) -> list[str]:
        return [f"{one.cause}: {one.sentence}" for one in self.watch.of(self)]

    def _counters(self) -> dict[str, int]:
        names = ("arrived", *LOST.values(), "queued", "received", "malformed")
        with self.watch.view() as state:
            return {name: state.probes[PROBE].counters[name].count.total for name in names}


@pytest.fixture(scope="module")
def _host() -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(stack)


@pytest.fixture
def host(_host: Host) -> Iterator[Host]:
    _host.begin()
    yield _host
    _host.end()


def test_a_full_backlog(host: Host) -> None:
    """The limit of the whole machine is 1 meanwhile, and ten packets come at once: two of them have room."""
    workers = [host.worker(VXLAN) for _ in range(3)]
    host.wire.a.ip("link", "set", "dev", Wire.DEVICES[0], "gso_max_segs", "1")  # it cuts what was sent at once
    before = run("sysctl", "-n", BACKLOG).strip()
    run("sysctl", "-qw", f"{BACKLOG}=1")
    try:
        sent = host.send(at_once=10)
    finally:
        run("sysctl", "-qw", f"{BACKLOG}={before}")
    host.told("backlog-full", r"^CPU \d+: more packets come than may wait \(netdev_max_backlog = 1\)")
    got = sum(one.ends() for one in workers)
    host.read()
    assert re.search(r"^CPU \d+: more packets come than may wait", host.stages()["backlog"].where)
    assert host.counted() == {"arrived": got, "lost_backlog": sent - got, "queued": got, "received": got}
    assert 0 < got < sent


def test_a_worker_that_is_stopped(host: Host) -> None:
    workers = [host.worker(GENEVE), host.worker(GENEVE, MIDDLE), host.worker(GENEVE)]
    workers[1].process.send_signal(signal.SIGSTOP)
    sent = host.send(GENEVE)
    says = rf"^python \({workers[1].process.pid}\) UDP port {GENEVE} .*: its process is stopped: a worker of the mirror"
    host.told("receive-buffer-full", says)
    host.read()
    assert re.search(says, host.stages()["socket"].where)
    workers[1].process.send_signal(signal.SIGCONT)
    _all_else_is_lost_at_its_socket(host, sent, workers, workers[1])


def test_a_worker_that_does_not_read(host: Host) -> None:
    workers = [host.worker(VXLAN, SMALL, "late")]
    sent = host.send()
    says = rf"^python \({workers[0].process.pid}\) UDP port {VXLAN} .*: its process does not read"
    host.told("receive-buffer-full", says)
    host.read()
    assert re.search(says, host.stages()["socket"].where)
    _all_else_is_lost_at_its_socket(host, sent, workers, workers[0])


def _all_else_is_lost_at_its_socket(host: Host, sent: int, workers: Sequence[Worker], loser: Worker) -> None:
    got = sum(one.ends() for one in workers)
    host.read()
    lost = sent - got
    assert lost > 0
    assert host.counted() == {"arrived": sent, "queued": got, "received": got, "lost_socket": lost}
    with host.watch.view() as state:
        rows = {row.labels["inode"]: row.total("lost") for row in state.rows(PROBE, "workers")}
    assert rows[loser.inode] == lost


def test_one_source_port_feeds_one_worker(host: Host) -> None:
    """Though others did so before on this port: those are closed."""
    workers = [host.worker(VXLAN) for _ in range(3)]
    sent = host.send(tuples=1)
    host.told("reuseport-skew", rf"^UDP port {VXLAN} .*: 3 workers, 1 get everything: \d+ outer flows")
    assert sorted(one.ends() for one in workers) == [0, 0, sent]
    host.read()
    assert host.counted() == {"arrived": sent, "queued": sent, "received": sent}


def test_a_worker_that_reads_copies_and_misses_some(host: Host) -> None:
    """By AF_PACKET: each packet goes to the other workers all the same."""
    workers = [host.worker(VXLAN)]
    capture = host.wire.b.start(CAPTURE, Wire.DEVICES[1], SMALL)
    try:
        assert capture.stdout is not None and capture.stdout.readline() == "ready\n"
        sent = host.send()
        assert host.watch.until(lambda: "copies" in host.stages(), LIMIT_S)
        stage = host.stages()["copies"]
        assert f"/{capture.pid}" in stage.where and stage.lost is not None and 0 < stage.lost.total <= sent
    finally:
        capture.kill()
        capture.wait()
    assert workers[0].ends() == sent
    host.read()
    assert host.counted() == {"arrived": sent, "queued": sent, "received": sent}


def test_a_switch_before_the_mirror(host: Host) -> None:
    """What no counter here has seen is estimated by TCP inside, and said as such."""
    host.worker(VXLAN)
    with ExitStack() as stack:
        cloud = Cloud(host.wire, stack)
        cloud.lose(cloud.host, f"udp dport {VXLAN}", 5)
        end = host.watch.intervals + FOUND_AFTER
        while not host.watch.has_passed(end):
            cloud.talk()
        host.told("mirror-lost-before", rf"^{Wire.DEVICES[1]} .*: about .* bytes/s of TCP inside VXLAN 7 never came")
        assert ": about " in host.stages()["before this host"].where


def test_a_firewall_of_this_host(host: Host) -> None:
    workers, b = [host.worker(VXLAN) for _ in range(3)], host.wire.b
    b.run("nft", "add table inet f; add chain inet f in { type filter hook input priority 0; }")
    b.run("nft", f"add rule inet f in udp dport {VXLAN} numgen inc mod 10 0 drop")
    sent = host.send()
    host.told("firewall-drops", f"udp dport {VXLAN} numgen inc mod 10 0 drop .*1 in 10")
    b.run("nft", "delete table inet f")
    got = sum(one.ends() for one in workers)
    host.read()
    assert got == sent * 9 // 10
    assert host.stages()["firewall, IP, UDP"].where == f"{Wire.DEVICES[1]}: a rule or policy of nftables drops them"
    assert host.counted() == {"arrived": sent, "queued": got, "received": got, "lost_stack": sent - got}
