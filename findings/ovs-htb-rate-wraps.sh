#!/usr/bin/env bash
# Open vSwitch 3.1.0 shapes to 5.6 Gbit/s where its database asks for 40 Gbit/s, and says nothing.
#
# Guess, before it was run: the class of the kernel has 40 Gbit/s.
# Seen: the rate in bytes per second is cut to its low 32 bits. 40 Gbit/s becomes 5.64, and 100 Gbit/s becomes 31.28;
# of 34 359 738 368 bit/s nothing is left, which counts as unset: 10 Gbit/s. The database keeps the rate that was asked
# for, no line of the log is a warning, and nothing in ovs-vswitchd.conf.db(5) of this version limits `max-rate`.
# From 3.2 on rates are 64 bits wide ("linux-htb QoS type now supports rates higher than 34 Gbps", NEWS).
# A higher limit makes the VM's port slower. Whoever reads the database for the limit sees one that is not in force.
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
ip link add tap-of-vm type veth peer name vm
ovsdb-tool create conf.db tree/usr/share/openvswitch/vswitch.ovsschema
ovsdb-server conf.db --remote=punix:db.sock --pidfile="$work/db.pid" --detach --no-chdir --log-file 2>/dev/null
vsctl() { ovs-vsctl --db=unix:db.sock "$@"; }
vsctl --no-wait init
ovs-vswitchd unix:db.sock --pidfile="$work/switch.pid" --detach --no-chdir --log-file 2>/dev/null
qos=$(vsctl add-br b -- set bridge b datapath_type=netdev -- add-port b tap-of-vm \
    -- --id=@q create qos type=linux-htb -- set port tap-of-vm qos=@q)
for rate in 34000000000 34359738368 40000000000 100000000000; do
    vsctl set qos "$qos" other-config:max-rate="$rate"
    echo "$rate $(tc class show dev tap-of-vm | sed -n 's/.* root rate \([^ ]*\) .*/\1/p')" | tee -a shaped
done
SHELL
diff shaped - <<'SEEN'
34000000000 34Gbit
34359738368 10Gbit
40000000000 5640Mbit
100000000000 31280Mbit
SEEN
if grep -i "|WARN|.*\(rate\|qos\|htb\)" ovs-vswitchd.log; then exit 1; fi
