#!/usr/bin/env bash
# scapy 2.8.0 reads a pcapng file of two sections with the interfaces of the first section alone.
#
# Guess, before it was run: each packet has the device and the clock of its own section.
# Seen: a packet of the second section gets the name of the first section's interface, and its time is counted in that
# interface's unit: here 1700000.000000005 s (in January 1970) instead of 1700000000.000005 s. No error, no warning.
# The file is valid. The numbers of interfaces begin anew with each section (draft-ietf-opsawg-pcapng, section 4.1), so
# that files can be joined by plain concatenation: `cat vm1.pcapng vm2.pcapng`. python-pcapng 2.1.1 reads it right.
# Who joins the captures of two hypervisors this way sees the packets of the second one on a device of the first.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scapy==2.8.0 python-pcapng==2.1.1
"$work/venv/bin/python" - "$work/joined.pcapng" 2>/dev/null <<'PYTHON'
import struct
import sys
from importlib.metadata import version

from pcapng import FileScanner
from pcapng.blocks import EnhancedPacket
from scapy.utils import RawPcapNgReader


def block(kind: int, body: bytes) -> bytes:
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + value + bytes(-len(value) % 4)


def capture(device: bytes, digits: int, time: int) -> bytes:
    """A whole file: one section, one interface (if_name, if_tsresol), one packet of 60 bytes."""
    section = block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = struct.pack("=HHI", 1, 0, 0) + option(2, device) + option(9, bytes([digits])) + option(0, b"")
    packet = struct.pack("=IIIII", 0, time >> 32, time & 0xFFFFFFFF, 60, 60) + bytes(60)
    return section + block(1, interface) + block(6, packet)


with open(sys.argv[1], "wb") as file:
    file.write(capture(b"tap-of-vm1", 9, 1_700_000_000 * 10**9))  # nanoseconds
    file.write(capture(b"tap-of-vm2", 6, 1_700_000_000 * 10**6 + 5))  # microseconds

with open(sys.argv[1], "rb") as file:
    right = [b for b in FileScanner(file) if isinstance(b, EnhancedPacket)]
    told = [(b.interface.options["if_name"], round(b.timestamp * 10**6)) for b in right]
assert told == [("tap-of-vm1", 1_700_000_000_000_000), ("tap-of-vm2", 1_700_000_000_000_005)], told

seen = [(m.ifname, ((m.tshigh << 32) + m.tslow) / m.tsresol) for _, m in RawPcapNgReader(sys.argv[1])]
assert seen == [(b"tap-of-vm1", 1_700_000_000.0), (b"tap-of-vm1", 1_700_000.000000005)], seen
print(f"scapy {version('scapy')}: the packet of tap-of-vm2 at 1700000000.000005 s is one of {seen[1]}")
PYTHON
