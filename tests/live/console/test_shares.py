"""The share of a loss, made for real: of all that comes to a place, in the direction of the loss, and when it is over.

All losses are made side by side, each in two namespaces of its own, on one running session: some of what a sender sends
is refused, the rest arrives. In some of them the device sends ten times more in the other direction.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from netconsole.findings.incident import Incident
from tests.live.console.test_faults import SECOND_NS, Watch
from tests.support.live.faults import LIMIT_S, frame
from tests.support.live.network import BARE_PYTHON, Namespace, SleepingReceiver, Wire

pytestmark = pytest.mark.costs  # its senders keep a pace, and need the machine for themselves

CLOSED, OPEN, BACK = 9, 10, 11
SECONDS = 24
PER_S = 200
BACK_TIMES = 10
A, B = Wire.ADDRESSES
SENDER = """
import json, socket, sys, time
ways, share, count, per_s = json.loads(sys.argv[1])
def sender(way):
    if "frame" in way:
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        one.bind((way["device"], 0))
        return one, (bytes.fromhex(way["frame"]),)
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, way.get("priority", 0))
    return one, (bytes(64), (way.get("target"), way.get("port")))
refused, fine = map(sender, ways)
started, of_refused = time.monotonic(), []
for number in range(count):
    while number > per_s * (time.monotonic() - started):
        time.sleep(0.001)
    one, words = refused if int((number + 1) * share) > int(number * share) else fine
    if one is refused[0]:
        of_refused = [*of_refused[:1], time.time_ns()]
    one.sendto(*words) if len(words) == 2 else one.send(*words)
print(json.dumps(of_refused))
"""
READER = """
import socket, sys
readers = []
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
reader.bind(("", int(sys.argv[1])))
print("ready", flush=True)
while True:
    reader.recv(64)
"""
TAP = """
import fcntl, os, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH", b"tap-a", 0x1002))  # TUNSETIFF: IFF_TAP | IFF_NO_PI
print("ready", flush=True)
sys.stdin.read()
"""
DROP_CLOSED = """
import ctypes, platform, socket, struct, sys
BPF, PROG_LOAD, XDP = {"x86_64": 321}.get(platform.machine(), 280), 5, 6
def step(code, registers=0, offset=0, value=0):
    return struct.pack("=BBhi", code, registers, offset, value)
code = b"".join([
    step(0x61, 0x12, 0),                   # r2 = data
    step(0x61, 0x13, 4),                   # r3 = data_end
    step(0xBF, 0x24), step(0x07, 4, 0, 38),
    step(0x2D, 0x34, 4),                   # too short: pass
    step(0x69, 0x25, 36),                  # r5 = the port of UDP
    step(0x55, 5, 2, socket.htons(int(sys.argv[2]))),
    step(0xB7, 0, 0, 1), step(0x95),       # XDP_DROP
    step(0xB7, 0, 0, 2), step(0x95),       # XDP_PASS
])
code, text = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
both = map(ctypes.addressof, (code, text))
words = struct.pack("=IIQQ", XDP, len(code) // 8, *both).ljust(120, bytes(1))
request, libc = ctypes.create_string_buffer(words, len(words)), ctypes.CDLL(None, use_errno=True)
program = libc.syscall(BPF, PROG_LOAD, request, len(words))
assert program >= 0, ctypes.get_errno()
values = struct.pack("=HHi", 8, 1, program)  # IFLA_XDP_FD in IFLA_XDP of RTM_SETLINK
index = socket.if_nametoindex(sys.argv[1])
body = struct.pack("=BxHiII", 0, 0, index, 0, 0) + struct.pack("=HH", 4 + len(values), 43 | 0x8000) + values
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
netlink.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
assert struct.unpack_from("=i", netlink.recv(4096), 16)[0] == 0
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Refusal:
    """Some of what is sent is refused: ``kind`` is by what. ``back``: the other direction is ten times as busy."""

    kind: str
    cause: str
    share: float
    back: bool = False
    per_s: int = PER_S
    a: Namespace = field(init=False)
    b: Namespace = field(init=False)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    began_ns: int = 0
    ended_ns: int = 0
    """When the first and the last packet were sent that are refused."""

    @property
    def name(self) -> str:
        return f"{self.kind}, {100 * self.share:g} %{', busier the other way' if self.back else ''}, {self.per_s}/s"

    def prepare(self, stack: ExitStack) -> None:
        self.a, self.b = Namespace(), Namespace()
        for one in (self.a, self.b):
            stack.callback(one.remove)
        Wire(self.a, self.b)
        far = self.a if self.kind.startswith("lo") else self.b
        self._stand(stack, far, READER, OPEN)
        if self.back:
            self._stand(stack, self.a, READER, BACK)
        self.closed = CLOSED
        if "nft" in self.kind:
            far.run("nft", "add table inet f; add chain inet f in { type filter hook input priority 0; }")
            far.run("nft", f"add rule inet f in udp dport {CLOSED} drop")
        elif self.kind == "rp_filter":
            for device in ("all", Wire.DEVICES[1]):
                self.b.run("sysctl", "-qw", f"net.ipv4.conf.{device}.rp_filter=1")
        elif self.kind == "full socket":
            self.closed = stack.enter_context(SleepingReceiver(self.b)).port
        elif self.kind == "XDP":
            self._stand(stack, self.b, DROP_CLOSED, Wire.DEVICES[1], CLOSED)
        elif self.kind == "qdisc":
            self.a.tc("qdisc", "add", "dev", Wire.DEVICES[0], "root", "handle", "1:", "htb", "direct_qlen", "0")
            classed = ("parent", "1:", "classid", "1:10", "htb", "rate", "1gbit")
            self.a.tc("class", "add", "dev", Wire.DEVICES[0], *classed)
        elif self.kind == "tap ring":
            self._stand(stack, self.a, TAP)
            self.a.run("sysctl", "-qw", "net.ipv6.conf.tap-a.disable_ipv6=1")  # it talks by itself
            self.a.ip("link", "set", "tap-a", "txqueuelen", "32", "up")
            self.a.ip("address", "add", "203.0.113.1/24", "dev", "tap-a")
            self.a.ip("neighbour", "replace", "203.0.113.2", "lladdr", Wire.MACS[1], "dev", "tap-a", "nud", "permanent")

    def _stand(self, stack: ExitStack, where: Namespace, code: str, *words: object) -> None:
        process = where.start(code, *words, python=BARE_PYTHON)
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None and process.stdout.readline() == "ready\n", self.name

    def _ways(self) -> list[dict[str, object]]:
        target = "127.0.0.1" if self.kind.startswith("lo") else "203.0.113.2" if self.kind == "tap ring" else B
        fine: dict[str, object] = {"target": target, "port": OPEN}
        refused: dict[str, object] = {"target": target, "port": self.closed}
        if self.kind == "rp_filter":
            refused = {"frame": frame(source="198.51.100.9").hex(), "device": Wire.DEVICES[0]}
        elif self.kind == "qdisc":
            fine, refused = {**fine, "priority": 0x10010}, fine
        return [refused, fine]

    def begin(self) -> None:
        ways = json.dumps([self._ways(), self.share, SECONDS * self.per_s, self.per_s])
        self.running.append(self.a.start(SENDER, ways, python=BARE_PYTHON))
        if self.back:
            per_s = max(900, BACK_TIMES * self.per_s)
            back = json.dumps([[{}, {"target": A, "port": BACK}], 0.0, SECONDS * per_s, per_s])
            self.running.append(self.b.start(SENDER, back, python=BARE_PYTHON))

    def end(self) -> None:
        said = [one.communicate(timeout=LIMIT_S)[0] for one in self.running]
        self.began_ns, self.ended_ns = json.loads(said[0])

    def is_of(self, incident: Incident) -> bool:
        names = {self.a.name, self.b.name, str(self.a.inode), str(self.b.inode)}
        labels = [dict(evidence.key).get("netns") for evidence in incident.evidence]
        return bool(names & {str(label) for label in (*labels, incident.where.get("netns"))})


LISTENS, RULE, QDISC = "nobody-listens", "firewall-drops", "qdisc-drops"
REFUSALS = [
    *(Refusal("closed port", LISTENS, share) for share in (1.0, 0.5, 0.01)),
    *(Refusal("nft rule", RULE, share) for share in (1.0, 0.5, 0.01)),
    *(Refusal("rp_filter", "reverse-path", share) for share in (1.0, 0.5, 0.01)),
    *(Refusal("full socket", "receive-buffer-full", share) for share in (1.0, 0.5)),
    Refusal("full socket", "receive-buffer-full", 0.01, per_s=3 * PER_S),
    *(Refusal("XDP", "xdp-drops", share) for share in (1.0, 0.5, 0.01)),
    *(Refusal("qdisc", QDISC, share) for share in (1.0, 0.5, 0.01)),
    Refusal("tap ring", "tap-ring-full", 1.0),
    *(Refusal("lo, closed port", LISTENS, share) for share in (1.0, 0.5, 0.01)),
    *(Refusal("lo, nft rule", RULE, share) for share in (1.0, 0.01)),
    *(Refusal("closed port", LISTENS, share, back=True) for share in (1.0, 0.01)),
    Refusal("qdisc", QDISC, 0.5, back=True),
    Refusal("closed port", LISTENS, 1.0, back=True, per_s=3),
]


@pytest.fixture(scope="module")
def after() -> Iterator[dict[str, tuple[Refusal, list[Incident], list[Incident]]]]:
    """Every refusal, with its incidents while it went on and when it was over."""
    with ExitStack() as stack:
        watch = Watch()
        stack.callback(watch.close)
        for one in REFUSALS:
            one.prepare(stack)
        assert watch.until(watch.settled)
        for one in REFUSALS:
            one.begin()
        before_end = watch.intervals + SECONDS - 4
        assert watch.until(lambda: watch.intervals >= before_end)
        going_on = {one.name: watch.of(one) for one in REFUSALS}
        for one in REFUSALS:
            one.end()
        watch.until(lambda: all(found and all(i.ended_ns for i in found) for found in map(watch.of, REFUSALS)))
        yield {one.name: (one, going_on[one.name], watch.of(one)) for one in REFUSALS}


@pytest.mark.parametrize("name", [one.name for one in REFUSALS])
def test_the_share_is_of_all_that_came_while_it_lasts_and_when_it_is_over(
    name: str, after: dict[str, tuple[Refusal, list[Incident], list[Incident]]]
) -> None:
    refusal, going_on, over = after[name]
    assert [one.cause for one in over] == [refusal.cause], [one.sentence for one in over]
    assert [one.cause for one in going_on] == [refusal.cause], [one.sentence for one in going_on]
    wanted = 100 * refusal.share
    for (one,) in (going_on, over):
        one_packet = 100 / (10 * refusal.per_s)  # of ten seconds: in the interval of one source, in the next of another
        assert one.share_pct == pytest.approx(wanted, abs=max(1.0, one_packet), rel=0.0), one.sentence
        assert wanted > 1 or one.share_pct == pytest.approx(wanted, rel=0.25), one.sentence
        assert "packets)" in one.sentence
    (one,) = over
    assert one.ended_ns is not None
    has_room = refusal.kind in ("full socket", "tap ring")  # for the first ones
    assert has_room or abs(one.since_ns - refusal.began_ns) < 2.5 * SECOND_NS
    assert abs(one.ended_ns - refusal.ended_ns) < 2.5 * SECOND_NS
