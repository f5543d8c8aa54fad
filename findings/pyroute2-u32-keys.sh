#!/usr/bin/env bash
# pyroute2 0.9.7 says that a u32 filter matches something else than it does: it reads each key four bytes too early.
#
# Expected: "match ip src 10.0.0.0/8" is a key with mask 0xff000000 and value 0x0a000000 at offset 12. The guess, after
# its source was read and before it was run: another one.
# Seen: mask 0, the mask as the value, the value (in this CPU's byte order) as the offset, and the offset 12 as another
# field. The decoder begins 16 bytes after the attribute's begin, and forgets the 4 bytes of the attribute's header. Its
# encoder counts them, so that the library misreads its own request, too.
# struct tc_u32_sel and struct tc_u32_key are in include/uapi/linux/pkt_cls.h; tc reads the same message right.
# Filters of policers and of classes on a hypervisor's ports are mostly u32: which VM's address one is for is wrong.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyroute2==0.9.7
"$work/venv/bin/python" - <<'PYTHON'
import struct
from importlib.metadata import version

from pyroute2.netlink.rtnl.tcmsg import tcmsg


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def keys(message: bytes) -> list[dict[str, int]]:
    filter = tcmsg(message)
    filter.decode()
    names = ("key_mask", "key_val", "key_off", "key_offmask")
    found = filter.get_attr("TCA_OPTIONS").get_attr("TCA_U32_SEL")
    assert found["nkeys"] == 1 and found["flags"] == 1
    return [{name: key[name] for name in names} for key in found["keys"]]


# struct tc_u32_sel with one key: flags (terminal), offshift, nkeys, offmask, off, offoff, hoff, hmask
selector = struct.pack("=BBBx", 1, 0, 1) + struct.pack(">HHhhI", 0, 0, 0, 0, 0)
# struct tc_u32_key: mask and value in network order, then off and offmask
selector += struct.pack(">II", 0xFF000000, 0x0A000000) + struct.pack("=ii", 12, 0)
body = struct.pack("=BxxxiIII", 0, 1, 0x80000800, 0x10000, 0) + attribute(1, b"u32\0")
body += attribute(2, attribute(5, selector))  # TCA_OPTIONS with TCA_U32_SEL
[seen] = keys(struct.pack("=IHHII", 16 + len(body), 44, 0, 0, 0) + body)

own = tcmsg()  # the request for the same filter, as pyroute2 makes it
own["header"]["type"] = 44
asked = {"attrs": [("TCA_U32_SEL", {"keys": ["0x0a000000/0xff000000+12"]})]}
own["attrs"] = [("TCA_KIND", "u32"), ("TCA_OPTIONS", asked)]
own.encode()
assert selector[-16:] in bytes(own.data)
[seen_in_own] = keys(bytes(own.data))

print(f"pyroute2 {version('pyroute2')}: mask 0xff000000, value 0x0a000000 at offset 12 is {seen}")
assert seen == seen_in_own == {"key_mask": 0, "key_val": 0xFF000000, "key_off": 10, "key_offmask": 12}, seen_in_own
PYTHON
