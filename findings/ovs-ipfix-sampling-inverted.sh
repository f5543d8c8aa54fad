#!/usr/bin/env bash
# Open vSwitch 3.1.0 turns the two switches of its IPFIX sampling round: "true" switches off, "false" does nothing.
#
# Guess, before it was run: other_config:enable-output-sampling=false takes the samples at output away, and "true" is as
# good as nothing, because both are on by default (ovs-vswitchd.conf.db(5): "Set this column to false to disable").
# Seen: "false" leaves all samples. "true" takes those away that it should enable; of input and of output alike.
# Below, ofproto/trace says what the switch would do with a packet: "ipfix(" for each sample, one at the port that it
# comes from (4294967295) and one at each of two ports that it leaves by.
# From a later version on the two mean what the manual says, so an upgrade turns the samples of a configured host round.
# Who enables both explicitly gets no samples at all: the collector sees VMs without traffic, and no error is told.
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
vsctl add-br b -- set bridge b datapath_type=netdev -- add-port b one -- add-port b two
for setting in "" enable-{input,output}-sampling={false,true}; do
    vsctl clear bridge b ipfix -- set bridge b ipfix=@i \
        -- --id=@i create ipfix targets='"127.0.0.1:4739"' sampling=1 ${setting:+other_config:$setting} >/dev/null
    actions=$(ovs-appctl -t "$work/ovs-vswitchd.$(cat switch.pid).ctl" ofproto/trace b in_port=1,ip |
        sed -n 's/^Datapath actions: //p')
    input=$(grep -o "ipfix(output_port=4294967295)" <<<"$actions" | wc -l)
    echo "${setting:-default}: $input at input, $(($(grep -o "ipfix(" <<<"$actions" | wc -l) - input)) at output"
done >seen
SHELL
diff seen - <<'SEEN'
default: 1 at input, 2 at output
enable-input-sampling=false: 1 at input, 2 at output
enable-input-sampling=true: 0 at input, 2 at output
enable-output-sampling=false: 1 at input, 2 at output
enable-output-sampling=true: 1 at input, 0 at output
SEEN
cat seen
