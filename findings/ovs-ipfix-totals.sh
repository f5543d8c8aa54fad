#!/usr/bin/env bash
# Open vSwitch 3.1.0 says in the IPFIX record of one flow how many packets and bytes all flows had.
#
# Guess, before it was run: packetTotalCount and octetTotalCount are of the flow of the record, since the switch began.
# Seen: two flows, the first of 100 packets, the second of 30. The record of the second one says packetDeltaCount 30
# and packetTotalCount 336 or more: the packets of both, each as often as it was seen at a port. Its octets likewise.
# The registry of IPFIX (information elements 85 and 86) defines both totals "for this Flow at the Observation Point".
# The switch keeps them once for each bridge (ofproto/ofproto-dpif-ipfix.c: dpif_ipfix_global_stats), and NEWS of 2.8
# calls them "total counters since metering process startup", with no word that they are not of the flow.
# A collector that prefers totals, which a lost record does no harm, says of each VM's flow what the whole bridge moved.
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
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6  # no packets but those below
for port in one two; do
    ip link add "$port" type veth peer name "vm-$port"
    ip link set "$port" up
    ip link set "vm-$port" up
done
ip addr add 10.0.0.1/24 dev vm-one
ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev vm-one
ovsdb-tool create conf.db tree/usr/share/openvswitch/vswitch.ovsschema
ovsdb-server conf.db --remote=punix:db.sock --pidfile="$work/db.pid" --detach --no-chdir --log-file 2>/dev/null
vsctl() { ovs-vsctl --db=unix:db.sock "$@"; }
vsctl --no-wait init
ovs-vswitchd unix:db.sock --pidfile="$work/switch.pid" --detach --no-chdir --log-file 2>/dev/null
vsctl add-br b -- set bridge b datapath_type=netdev -- add-port b one -- add-port b two
python3 - <<'PYTHON'
import socket
import struct
import subprocess
import time

NAMES = {1: "octetDeltaCount", 2: "packetDeltaCount", 11: "port", 85: "octetTotalCount", 86: "packetTotalCount"}


def records(told: bytes, templates: dict[int, list[tuple[int, int]]]):
    """Of one message of IPFIX (RFC 7011). Its templates are remembered."""
    at = 16
    while at < len(told):
        kind, length = struct.unpack_from(">HH", told, at)
        here, end, at = at + 4, at + length, at + length
        while kind == 2 and here + 4 <= end:
            number, fields = struct.unpack_from(">HH", told, here)
            here, templates[number] = here + 4, []
            for _ in range(fields):
                element, size = struct.unpack_from(">HH", told, here)
                here += 8 if element & 0x8000 else 4
                templates[number].append((element, size))
        if kind in templates:
            found = {}
            for element, size in templates[kind]:
                if size == 0xFFFF:
                    here, size = here + 1, told[here]
                found[NAMES.get(element, "")] = int.from_bytes(told[here : here + size], "big")
                here += size
            yield found


collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
collector.bind(("127.0.0.1", 4739))
collector.settimeout(1)
# Now, because the templates come with the first records, and then not for ten minutes.
export = '-- set bridge b ipfix=@i -- --id=@i create ipfix targets="127.0.0.1:4739" sampling=1'.split()
export += ["cache_active_timeout=1", "cache_max_flows=100"]
subprocess.run(["ovs-vsctl", "--db=unix:db.sock", *export], check=True, stdout=subprocess.DEVNULL)
guest = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in [1] * 100 + [2] * 30:
    guest.sendto(bytes(32), ("10.0.0.2", port))  # 60 bytes with the headers of IP and UDP
seen: dict[int, dict[str, int]] = {}
templates: dict[int, list[tuple[int, int]]] = {}
deadline = time.monotonic() + 60
while not {1, 2} <= set(seen) and time.monotonic() < deadline:
    try:
        told = list(records(collector.recv(65535), templates))
    except TimeoutError:
        continue
    seen.update((one["port"], one) for one in told if one.get("port") in (1, 2))
for port in (1, 2):
    print({name: seen[port][name] for name in NAMES.values()})
first, second = seen[1], seen[2]
assert first["packetDeltaCount"] == 100 and second["packetDeltaCount"] == 30
assert second["packetTotalCount"] >= 130 and second["octetTotalCount"] >= 130 * 60
PYTHON
SHELL
