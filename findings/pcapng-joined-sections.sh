#!/usr/bin/env bash
# scapy 2.8.0 and Wireshark 4.0.17 give the packets of a pcapng file's second section to the devices of the first one.
#
# Guess, before it was run: each packet has the device and the clock of its own section.
# Seen: both name the first section's device for all packets, with no error and no warning. scapy counts the time in
# that device's unit as well: 1700000.000000005 s (in January 1970) instead of 1700000000.000005 s. What editcap and
# mergecap write of such a file has the wrong device for good, because they make one section of it: the second device
# is described there, and no packet is on it. capinfos counts two packets on the first device and none on the second.
# The file is valid. The numbers of interfaces begin anew with each section (draft-ietf-opsawg-pcapng, section 4.1), so
# that files can be joined by plain concatenation: `cat vm1.pcapng vm2.pcapng`. python-pcapng 2.1.1 reads it right.
# Who joins the captures of two hypervisors this way sees the packets of the second one on a device of the first.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check scapy==2.8.0 python-pcapng==2.1.1
pinned=4.0.17-0+deb12u3
apt-get download -qq "wireshark-common=$pinned" "libwiretap13=$pinned" "libwsutil14=$pinned" libglib2.0-0 libpcre2-8-0 \
    libzstd1 liblz4-1 libgcrypt20 libgnutls30 libgpg-error0 libp11-kit0 libidn2-0 libunistring2 libtasn1-6 libnettle8 \
    libhogweed6 libgmp10 libffi8 zlib1g >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" tree; done
cat >capture.py <<'PYTHON'
import struct
import sys


def block(kind: int, body: bytes) -> bytes:
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + value + bytes(-len(value) % 4)


# A whole file: one section, one interface (if_name, if_tsresol), one packet of 60 bytes.
device, digits, time = sys.argv[1].encode(), int(sys.argv[2]), int(sys.argv[3])
file = block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1))
file += block(1, struct.pack("=HHI", 1, 0, 128) + option(2, device) + option(9, bytes([digits])) + option(0, b""))
file += block(6, struct.pack("=IIIII", 0, time >> 32, time & 0xFFFFFFFF, 60, 60) + bytes(60))
sys.stdout.buffer.write(file)
PYTHON
python3 capture.py tap-of-vm1 9 1700000000000000000 >vm1.pcapng  # nanoseconds
python3 capture.py tap-of-vm2 6 1700000000000005 >vm2.pcapng  # microseconds
cat vm1.pcapng vm2.pcapng >joined.pcapng
wireshark() { LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu" "tree/usr/bin/$@"; }
wireshark editcap joined.pcapng edited.pcapng
wireshark mergecap -w merged.pcapng joined.pcapng
wireshark mergecap -w right.pcapng vm1.pcapng vm2.pcapng
wireshark capinfos joined.pcapng 2>/dev/null >told
sed -n 's/^ *\(Name = \|Number of packets = \)/\1/p' told | paste - - | tee counted
venv/bin/python - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

from pcapng import FileScanner
from pcapng.blocks import EnhancedPacket
from scapy.utils import RawPcapNgReader


def devices(name: str) -> list[tuple[str, int]]:
    """Device and microseconds of each packet, by python-pcapng."""
    with open(name, "rb") as file:
        packets = [one for one in FileScanner(file) if isinstance(one, EnhancedPacket)]
    return [(one.interface.options.get("if_name"), round(one.timestamp * 10**6)) for one in packets]


right = [("tap-of-vm1", 1_700_000_000_000_000), ("tap-of-vm2", 1_700_000_000_000_005)]
wrong = [("tap-of-vm1", 1_700_000_000_000_000), ("tap-of-vm1", 1_700_000_000_000_005)]
for name, expected in (("joined", right), ("right", right), ("edited", wrong), ("merged", wrong)):
    print(f"{name}.pcapng: {devices(f'{name}.pcapng')}")
    assert devices(f"{name}.pcapng") == expected
seen = [(m.ifname, ((m.tshigh << 32) + m.tslow) / m.tsresol) for _, m in RawPcapNgReader("joined.pcapng")]
print(f"scapy {version('scapy')}: {seen}")
assert seen == [(b"tap-of-vm1", 1_700_000_000.0), (b"tap-of-vm1", 1_700_000.000000005)], seen
PYTHON
grep -q "tap-of-vm1.*packets = 2" counted
grep -q "tap-of-vm2.*packets = 0" counted
