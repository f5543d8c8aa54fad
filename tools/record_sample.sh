#!/bin/sh
# Records the shipped sample "drops": real traffic between two namespaces, under a neutral name and boot id of the host.
# usage: tools/record_sample.sh FILE.ncrec      (root; nothing is left behind: namespaces and wires end with it)
set -eu
case ${1:?usage: tools/record_sample.sh FILE.ncrec} in /*) file=$1 ;; *) file=$PWD/$1 ;; esac
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
if [ -z "${INSIDE:-}" ]; then
    exec env INSIDE=1 unshare --uts --net --mount --pid --fork --kill-child --mount-proc sh "$0" "$file"
fi
hostname sample-host
mount -t tmpfs none /run
echo 5a3b1e00-0000-4000-8000-000000000001 >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
# Whatever else this machine does is no part of the sample.
cat >/run/details.toml <<'PROFILE'
[profile]
name = "details"
description = "The sample's own path alone."
inherits = "details"
[budget]
kernel_cpu_pct = 5.0
[filters]
address = "203.0.113.0/24"
[probes.tx_queue_latency]
mode = "details"
device = "uplink0"
PROFILE
ip link set lo up
ip netns add peer
ip link add uplink0 type veth peer name eth0 netns peer
ip addr add 203.0.113.1/24 dev uplink0
ip link set uplink0 up
tc qdisc add dev uplink0 root pfifo_fast
ip -n peer addr add 203.0.113.2/24 dev eth0
ip -n peer link set eth0 up
ip -n peer link set lo up
ip netns exec peer python3 -c '
import socket, threading, time
sink = socket.create_server(("203.0.113.2", 5001))
slow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
slow.bind(("203.0.113.2", 5002))
def swallow(connection):
    while connection.recv(1 << 16):
        pass
while True:
    threading.Thread(target=swallow, args=(sink.accept()[0],), daemon=True).start()
' &
"$bin"/netconsole record -o "$file" --profile /run/details.toml --duration 80s \
    --note "a closed port, then a shaped uplink whose queue grows, then a reader that sleeps" &
recorder=$!
send='
import socket, sys, time
port, per_s, seconds = map(int, sys.argv[1:])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(per_s * seconds // 10):
    for _ in range(10):
        try:
            sender.sendto(bytes(100), ("203.0.113.2", port))
        except OSError:
            pass
    time.sleep(10 / per_s)
'
stream='
import socket, sys, time
stream, end = socket.create_connection(("203.0.113.2", 5001)), time.monotonic() + int(sys.argv[1])
while time.monotonic() < end:
    stream.sendall(bytes(1 << 14))
    time.sleep(0.002)
'
sleep 8
python3 -c "$stream" 66 &
streaming=$!
sleep 8
python3 -c "$send" 9 300 12
tc qdisc replace dev uplink0 root tbf rate 20mbit burst 32kb limit 64kb
sleep 18
python3 -c "$send" 5002 400 12
tc qdisc replace dev uplink0 root pfifo_fast
wait "$streaming"
wait "$recorder"
