#!/usr/bin/env bash
# scapy 2.8.0 and python-pcapng 2.1.1 leave out the offset of a pcapng interface's times (if_tsoffset).
#
# Guess, before it was run: both add it, as both honour if_tsresol, which stands beside it in the same block.
# Seen: a packet at 1700000000.5 s (November 2023) comes at 0.5 s (January 1970), from both, with no error or warning.
# python-pcapng shows the option among those of the interface, and does not use it for the time of a packet.
# The time of a packet is the sum of both (draft-ietf-opsawg-pcapng, section 4.2: if_tsoffset, in seconds).
# Wireshark 4.0, libpcap and dpkt 1.9.8 add it.
# Devices that stamp with a clock that starts at boot write such files. Merged with another host's capture by one of
# these libraries, no packet lies beside its counterpart, and a delay between two hosts becomes one of 53 years.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scapy==2.8.0 python-pcapng==2.1.1 dpkt==1.9.8
"$work/venv/bin/python" - "$work/offset.pcapng" 2>/dev/null <<'PYTHON'
import struct
import sys
from importlib.metadata import version

import dpkt
from pcapng import FileScanner
from pcapng.blocks import EnhancedPacket
from scapy.utils import PcapNgReader


def block(kind: int, body: bytes) -> bytes:
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + value + bytes(-len(value) % 4)


nanoseconds, offset = option(9, b"\x09"), option(14, struct.pack("=q", 1_700_000_000))
with open(sys.argv[1], "wb") as file:
    file.write(block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1)))
    file.write(block(1, struct.pack("=HHI", 1, 0, 0) + nanoseconds + offset + option(0, b"")))
    file.write(block(6, struct.pack("=IIIII", 0, 0, 500_000_000, 60, 60) + bytes(60)))

with open(sys.argv[1], "rb") as file:
    assert [time for time, _ in dpkt.pcapng.Reader(file)] == [1_700_000_000.5]
with open(sys.argv[1], "rb") as file:
    [packet] = [one for one in FileScanner(file) if isinstance(one, EnhancedPacket)]
assert packet.interface.options["if_tsoffset"] == 1_700_000_000
[other] = PcapNgReader(sys.argv[1])
assert packet.timestamp == 0.5 and float(other.time) == 0.5, (packet.timestamp, other.time)
for name, time in (("scapy", other.time), ("python-pcapng", packet.timestamp), ("dpkt", 1_700_000_000.5)):
    print(f"{name} {version(name)}: the packet at 1700000000.5 s is at {time} s")
PYTHON
