"""Makes a storm with an exact number of drops on a namespace's loopback, from a packet ring."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence

from tests.support.live.network import Namespace

CLOSED_PORT = 9
LIMIT_S = 120.0
_LOCAL = bytes([127, 0, 0, 1])
_MARTIAN_SYSCTLS = ("route_localnet", "accept_local")
"""With these, lo takes what a packet ring sends from 127.0.0.1 to 127.0.0.1."""


def _datagram(port: int) -> bytes:
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 17, 0, _LOCAL, _LOCAL)
    total = sum(struct.unpack(">10H", header))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    udp = struct.pack(">4H", 1111, port, 8, 0)
    return bytes(12) + b"\x08\0" + header[:10] + struct.pack(">H", checksum) + header[12:] + udp


TO_CLOSED_PORT = _datagram(CLOSED_PORT)
"""A UDP datagram: NO_SOCKET. The kernel answers each, so that a CPU has fewer of them than of others."""
OF_802_2 = bytes(12) + struct.pack(">H", 28) + bytes(32)
"""A frame with a length in place of a type: llc_rcv drops it, without an answer."""

_SENDER = """
import mmap, select, socket, struct, sys, time
rate, frames = float(sys.argv[1]), [bytes.fromhex(one) for one in sys.argv[2].split(",")]
FRAME, BLOCK = 128, 4096
BLOCKS = max(1, min(16, int(rate / 100 * FRAME / BLOCK)))  # a burst is of 10 ms at most, or of one block
COUNT = BLOCK * BLOCKS // FRAME
SOL_PACKET, PACKET_TX_RING, TP_STATUS_SEND_REQUEST = 263, 13, 1
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
wire.setsockopt(SOL_PACKET, PACKET_TX_RING, struct.pack("=4I", BLOCK, BLOCKS, FRAME, COUNT))
wire.bind(("lo", 0))  # it receives nothing
ring = mmap.mmap(wire.fileno(), BLOCK * BLOCKS)
image = b"".join(
    (struct.pack("=QIIHHII4x", TP_STATUS_SEND_REQUEST, len(one), len(one), 0, 0, 0, 0) + one).ljust(FRAME, b"\\0")
    for one in (frames * COUNT)[:COUNT]
)
size = sum(len(one) for one in (frames * COUNT)[:COUNT])
sent, begin = 0, time.monotonic()
while not select.select([sys.stdin], [], [], 0)[0]:  # until the end of standard input
    ring[:] = image
    done = wire.send(b"")
    assert done == size, done
    sent += COUNT
    ahead_s = begin + sent / rate - time.monotonic()
    if ahead_s > 0:
        time.sleep(ahead_s)
print(sent)
"""


class Storm:
    """At most ``rate_per_s`` packets until it is stopped, in small bursts; every one of them is dropped."""

    def __init__(self, namespace: Namespace, rate_per_s: int, frames: Sequence[bytes] = (OF_802_2,)) -> None:
        """``frames``: these, in turn."""
        for name in _MARTIAN_SYSCTLS:
            namespace.run("sysctl", "-qw", f"net.ipv4.conf.lo.{name}=1")
        encoded = ",".join(one.hex() for one in frames)
        self._process: subprocess.Popen[str] = namespace.start(_SENDER, rate_per_s, encoded)

    def __enter__(self) -> Storm:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> int:
        """End it; how many it was."""
        out, _ = self._process.communicate(timeout=LIMIT_S)
        assert self._process.returncode == 0
        return int(out)
