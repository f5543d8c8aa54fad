"""Holds the packets that a namespace receives in a queue of netfilter, and lets go all of them together.

They have been through conntrack by then and are not confirmed yet: several first packets of one connection clash.
"""

from __future__ import annotations

from types import TracebackType

from tests.support.live.network import BARE_PYTHON, Namespace

TABLE = (
    "add table ip held",
    "add chain ip held way { type filter hook input priority 0 ; }",
    "add rule ip held way ct state new counter",
)
"""Whatever rule names conntrack makes the namespace track."""
# The rule is made by hand: nft knows the queue as an expression of its own, which not every kernel has, while the
# target of iptables is in all of them (net/netfilter/nft_compat.c, xt_NFQUEUE.c, nfnetlink_queue.c).
HOLD = """
import socket, struct, sys
NESTED, REQUEST, ACK, CREATE_LAST = 0x8000, 1, 4, 0xC00
QUEUE, TABLES, NEW_RULE, CONFIG, VERDICTS, BATCH, BATCH_END = 3, 10, 6, 2, 3, 0x10, 0x11
def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
def text(kind, value):
    return attribute(kind, value.encode() + bytes(1))
def nested(kind, *inside):
    return attribute(kind | NESTED, b"".join(inside))
def message(system, kind, body=b"", flags=REQUEST, number=0, family=socket.AF_INET):
    rest = struct.pack("=HHII", system << 8 | kind, flags, 0, 0) + struct.pack(">BBH", family, 0, number) + body
    return struct.pack("=I", 4 + len(rest)) + rest
def asked(wire, *messages):
    wire.send(b"".join(messages))
    (error,) = struct.unpack_from("=i", wire.recv(65536), 16)
    if error:
        raise OSError(-error, "refused by netfilter")
def made():
    wire = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
    wire.bind((0, 0))
    return wire
queue = made()
asked(queue, message(QUEUE, CONFIG, attribute(1, struct.pack(">BBH", 1, 0, 0)), REQUEST | ACK))  # bind
asked(queue, message(QUEUE, CONFIG, attribute(2, struct.pack(">IB", 0, 1)), REQUEST | ACK))  # no copies of packets
target = nested(2, text(1, "NFQUEUE"), attribute(2, bytes(4)), attribute(3, bytes(8)))
rule = text(1, "held") + text(2, "way") + nested(4, nested(1, text(1, "target"), target))
begin, end = (message(0, kind, number=TABLES, family=0) for kind in (BATCH, BATCH_END))
asked(made(), begin, message(TABLES, NEW_RULE, rule, REQUEST | ACK | CREATE_LAST), end)
print("ready", flush=True)
wanted, last = int(sys.argv[1]), 0
for _ in range(wanted):
    (last,) = struct.unpack_from(">I", queue.recv(65536), 20 + 4)  # the first attribute: NFQA_PACKET_HDR
print("held", flush=True)
sys.stdin.readline()
asked(queue, message(QUEUE, VERDICTS, attribute(2, struct.pack(">II", 1, last)), REQUEST | ACK))  # NF_ACCEPT
print("gone", flush=True)
sys.stdin.read()
"""


class Held:
    """Holds the next ``count`` packets that this namespace receives."""

    def __init__(self, namespace: Namespace, count: int) -> None:
        self._namespace = namespace
        for line in TABLE:
            namespace.run("nft", *line.split())
        self._process = namespace.start(HOLD, count, python=BARE_PYTHON)
        self._hear("ready")

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it may wait for packets that never came
        self._process.wait()
        self._namespace.run("nft", "delete", "table", "ip", "held")

    def let_go(self) -> None:
        """When all of them are there, pass them on, one after the other."""
        self._hear("held")
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._hear("gone")

    def _hear(self, word: str) -> None:
        assert self._process.stdout
        assert self._process.stdout.readline() == f"{word}\n"
