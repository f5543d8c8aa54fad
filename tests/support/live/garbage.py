"""Sends broken packets as fast as one process can: lengths, tags, options and headers are often wrong."""

from __future__ import annotations

import os

PACKETS = int(os.environ.get("NETCONSOLE_GARBAGE", "100000"))
"""How many a test sends. A million take half a minute: NETCONSOLE_GARBAGE=1000000."""
LIMIT_S = 600.0

FUZZ = """
import random, socket, sys
device, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((device, 0))
macs = bytes.fromhex("02000000010b02000000010a")
types = [b"\\x08\\x00", b"\\x86\\xdd", b"\\x81\\x00", b"\\x88\\xa8", b"\\x08\\x06", b"\\x00\\x10"]
def packet():
    # Ethertype and body: IPv4, IPv6 or another, with lengths, options and extension headers that are often wrong.
    kind, body = rng.randrange(8), rng.randbytes(rng.randrange(0, 200))
    ports = rng.randbytes(2) + rng.choice([b"\\x12\\xb5", b"\\x21\\x18", b"\\x17\\xc1", rng.randbytes(2)])
    if kind < 4:
        first, protocol = rng.choice([0x45, 0x45, 0x4f, 0x44, 0x40, 0x65]), rng.choice([1, 6, 17, 17, 47, 255])
        head = bytes([first]) + rng.randbytes(8) + bytes([protocol]) + rng.randbytes(10)
        return b"\\x08\\x00", head + ports + body
    if kind < 6:
        chain = bytes([rng.choice([0, 6, 17, 43, 44, 51, 58, 60])])
        return b"\\x86\\xdd", bytes([0x60]) + rng.randbytes(5) + chain + rng.randbytes(33) + ports + body
    return rng.choice(types), body
def tag():
    return rng.choice([b"\\x81\\x00", b"\\x88\\xa8"]) + rng.randbytes(2)
made = []
for _ in range(8192):
    ethertype, body = packet()
    if rng.randrange(4) == 0 and body:
        body = body[: rng.randrange(len(body))]
    made.append(macs + b"".join(tag() for _ in range(rng.choice([0, 0, 0, 1, 2, 5]))) + ethertype + body)
sent = 0
while sent < count:
    try:
        wire.send(made[sent % len(made)])
    except OSError:
        pass
    sent += 1
"""
