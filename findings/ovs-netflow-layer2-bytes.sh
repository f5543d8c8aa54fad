#!/usr/bin/env bash
# Open vSwitch 3.1.0 counts the Ethernet header in the bytes of a NetFlow record, 18 bytes a packet with a VLAN tag.
#
# Guess, before it was run: 100 packets of 60 bytes, as their IP headers say, are 6000 bytes, as in its IPFIX records.
# Seen: 7400, and 7800 for packets that have a VLAN tag on their way through the switch.
# NetFlow version 5 calls the field dOctets, the layer 3 bytes of the packets of the flow, and other exporters send
# these. ovs-vswitchd.conf.db(5) does not say what is counted; for IPFIX this switch has a field of each kind.
# The same small packets are a quarter more at the hypervisor's switch than at the router behind it: what looks like
# loss between the two, or like a guest that is over its quota, is 14 or 18 bytes a packet.
set -euo pipefail
work=$(mktemp -d)
trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq {openvswitch-switch,openvswitch-common}=3.1.0-2+deb12u1 libunbound8 libevent-2.1-7 libxdp1 \
    libbpf1 libelf1 libcap-ng0 libnuma1 libssl3 iproute2=6.1.0-3 libbsd0 libmnl0 libmd0 libxtables12 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" tree; done
export LD_LIBRARY_PATH="$work/tree/usr/lib/x86_64-linux-gnu:$work/tree/lib/x86_64-linux-gnu" work
export PATH="$work/tree/usr/bin:$work/tree/usr/sbin:$work/tree/bin:$work/tree/sbin:$PATH"
export OVS_RUNDIR="$work" OVS_LOGDIR="$work" OVS_DBDIR="$work"
ovs-vswitchd --version | head -1
# A network namespace of its own, with the switch's own datapath: no module of the kernel and no host's switch.
unshare --net --map-root-user bash -eu <<'SHELL'
ip link set lo up
for port in one two; do
    ip link add "$port" type veth peer name "vm-$port"
    ip link set "$port" up
    ip link set "vm-$port" up
done
ovsdb-tool create conf.db tree/usr/share/openvswitch/vswitch.ovsschema
ovsdb-server conf.db --remote=punix:db.sock --pidfile="$work/db.pid" --detach --no-chdir --log-file 2>/dev/null
vsctl() { ovs-vsctl --db=unix:db.sock "$@"; }
vsctl --no-wait init
ovs-vswitchd unix:db.sock --pidfile="$work/switch.pid" --detach --no-chdir --log-file 2>/dev/null
vsctl add-br b -- set bridge b datapath_type=netdev netflow=@n -- add-port b one -- add-port b two \
    -- --id=@n create netflow targets='"127.0.0.1:2055"' active_timeout=1 >/dev/null
python3 - <<'PYTHON'
import collections
import socket
import struct
import time


def packet(port: int, tag: bytes) -> bytes:
    """A UDP packet of 60 bytes to this port, in an Ethernet frame."""
    ip = struct.pack(">BBHHHBBxx4s4s", 0x45, 0, 60, 1, 0, 64, 17, bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    total = sum(struct.unpack(">10H", ip))
    ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    addresses = bytes.fromhex("020000000002 020000000001")
    return addresses + tag + b"\x08\x00" + ip + struct.pack(">HHHH", 1000, port, 40, 0) + bytes(32)


collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
collector.bind(("127.0.0.1", 2055))
collector.settimeout(1)
guest = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
guest.bind(("vm-one", 0))
for _ in range(100):
    guest.send(packet(1, b""))
    guest.send(packet(2, b"\x81\x00\x00\x05"))
seen: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0])
deadline = time.monotonic() + 60
while [seen[port][0] for port in (1, 2)] != [100, 100] and time.monotonic() < deadline:
    try:
        told = collector.recv(65535)
    except TimeoutError:
        continue
    version, records = struct.unpack_from(">HH", told)
    for at in range(24, 24 + 48 * records, 48):  # packets and bytes are at 16, the port of the destination at 34
        port = struct.unpack_from(">H", told, at + 34)[0]
        seen[port] = [a + b for a, b in zip(seen[port], struct.unpack_from(">II", told, at + 16))]
for port, kind in ((1, "without"), (2, "with")):
    print(f"100 IP packets of 60 bytes {kind} a VLAN tag: NetFlow says {seen[port][0]} packets, {seen[port][1]} bytes")
assert (seen[1], seen[2]) == ([100, 7400], [100, 7800]), dict(seen)
PYTHON
SHELL
