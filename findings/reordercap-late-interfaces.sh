#!/usr/bin/env bash
# reordercap of Wireshark 4.0.17 refuses a pcapng file in which an interface is described after a packet of another one.
#
# Guess, before it was run: it writes both packets in the order of their times, as mergecap does with the same file.
# Seen: "An internal error occurred while writing record 2", exit status 1, and a file that has the first packet alone.
# The file is valid: an interface block may stand anywhere before the first block that refers to it
# (draft-ietf-opsawg-pcapng, section 4.2), and whoever writes while devices come and go cannot know them all before.
# editcap and mergecap of the same version write both packets.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
pinned=4.0.17-0+deb12u3
apt-get download -qq "wireshark-common=$pinned" "libwiretap13=$pinned" "libwsutil14=$pinned" libglib2.0-0 libpcre2-8-0 \
    libzstd1 liblz4-1 libgcrypt20 libgnutls30 libgpg-error0 libp11-kit0 libidn2-0 libunistring2 libtasn1-6 libnettle8 \
    libhogweed6 libgmp10 libffi8 zlib1g >/dev/null 2>&1
for package in *.deb; do dpkg-deb -x "$package" tree; done
export LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu"
python3 - "$work/two.pcapng" <<'PYTHON'
import struct
import sys


def block(kind: int, body: bytes) -> bytes:
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


section = block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1))
interface = block(1, struct.pack("=HHI", 1, 0, 128))


def packet(number: int, at_us: int) -> bytes:
    return block(6, struct.pack("=IIIII", number, 0, at_us, 60, 60) + bytes(60))


with open(sys.argv[1], "wb") as file:
    file.write(section + interface + packet(0, 1) + interface + packet(1, 2))
PYTHON
tools="$work/tree/usr/bin"
count() { "$tools/capinfos" -c -M "$1" 2>/dev/null | sed -n 's/^Number of packets: *//p'; }
"$tools/editcap" two.pcapng edited.pcapng
"$tools/mergecap" -w merged.pcapng two.pcapng
test "$(count two.pcapng)/$(count edited.pcapng)/$(count merged.pcapng)" = 2/2/2
status=0
"$tools/reordercap" two.pcapng ordered.pcapng >said 2>&1 || status=$?
cat said
test "$status" = 1
grep -q "An internal error occurred while writing record 2" said
echo "reordercap of $("$tools/reordercap" -v | head -1): status $status, and mergecap writes $(count merged.pcapng) packets"
