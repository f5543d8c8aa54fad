"""Makes a storm with an exact number of drops: UDP to a closed port on a namespace's loopback, from a packet ring."""

from __future__ import annotations

import subprocess

from tests.support.live.network import Namespace

CLOSED_PORT = 9
LIMIT_S = 120.0

_SENDER = """
import mmap, select, socket, struct, sys, time
rate, port = float(sys.argv[1]), int(sys.argv[2])
FRAME, BLOCK = 128, 4096
BLOCKS = max(1, min(16, int(rate / 100 * FRAME / BLOCK)))  # a burst is of 10 ms at most, or of one block
COUNT = BLOCK * BLOCKS // FRAME
SOL_PACKET, PACKET_TX_RING, TP_STATUS_SEND_REQUEST = 263, 13, 1
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
wire.setsockopt(SOL_PACKET, PACKET_TX_RING, struct.pack("=4I", BLOCK, BLOCKS, FRAME, COUNT))
wire.bind(("lo", 0x0800))
ring = mmap.mmap(wire.fileno(), BLOCK * BLOCKS)
local = bytes([127, 0, 0, 1])
ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 17, 0, local, local)
total = sum(struct.unpack(">10H", ip))
checksum = ~((total & 0xffff) + (total >> 16)) & 0xffff
udp = struct.pack(">4H", 1111, port, 8, 0)
packet = bytes(12) + b"\\x08\\0" + ip[:10] + struct.pack(">H", checksum) + ip[12:] + udp
header = struct.pack("=QIIHHII", TP_STATUS_SEND_REQUEST, len(packet), len(packet), 0, 0, 0, 0)  # struct tpacket_hdr
image = (header + packet).ljust(FRAME, b"\\0") * COUNT
sent, begin = 0, time.monotonic()
while not select.select([sys.stdin], [], [], 0)[0]:  # until the end of standard input
    ring[:] = image
    done = wire.send(b"")
    assert done == COUNT * len(packet), done
    sent += COUNT
    ahead_s = begin + sent / rate - time.monotonic()
    if ahead_s > 0:
        time.sleep(ahead_s)
print(sent)
"""


class Storm:
    """At most ``rate_per_s`` packets until it is stopped, in small bursts; every one of them is dropped."""

    def __init__(self, namespace: Namespace, rate_per_s: int) -> None:
        self._process: subprocess.Popen[str] = namespace.start(_SENDER, rate_per_s, CLOSED_PORT)

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
