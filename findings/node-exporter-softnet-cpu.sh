#!/usr/bin/env bash
# node_exporter 1.5.0 gives the packets of one CPU to another when a CPU between them is offline.
#
# Guess, before it was run: the label `cpu` is the CPU that the kernel names at the end of each line of softnet_stat.
# Seen: it is the number of the line. With CPU 1 offline the 7 drops of CPU 2 are told as those of CPU 1, which has
# no backlog at all, and CPU 2 has no figures. No error; all figures jump between labels when a CPU goes or comes.
# /proc/net/softnet_stat has lines of online CPUs only, and therefore names the CPU since Linux 5.14
# (net/core/net-procfs.c: softnet_seq_show says why in a comment). The file below is what such a host shows.
# Hypervisors take CPUs offline (SMT off, a part for one VM), and whoever pins queues acts on the number of the CPU.
set -euo pipefail
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq prometheus-node-exporter=1.5.0-1+b6 2>/dev/null
dpkg-deb -x prometheus-node-exporter_*.deb tree
mkdir -p proc/net
# Packets, drops, time squeezes; then others; the CPU is the thirteenth of the hexadecimal fields.
python3 - >proc/net/softnet_stat <<'PYTHON'
for cpu, packets, drops, squeezes in ((0, 1000, 1, 2), (2, 2000, 7, 4)):
    fields = [packets, drops, squeezes, *[0] * 9, cpu, 0, 0]
    print(" ".join(f"{field:08x}" for field in fields))
PYTHON
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
tree/usr/bin/prometheus-node-exporter --path.procfs="$work/proc" --collector.disable-defaults --collector.softnet \
    --web.listen-address="127.0.0.1:$port" 2>log &
until grep -q "Listening on" log; do kill -0 $!; sleep 0.1; done
python3 -c "
import urllib.request
text = urllib.request.urlopen('http://127.0.0.1:$port/metrics').read().decode()
print('\n'.join(line for line in text.splitlines() if line.startswith('node_softnet_')))" >seen
tree/usr/bin/prometheus-node-exporter --version 2>&1 | head -1
cat seen
grep -qF 'node_softnet_dropped_total{cpu="0"} 1' seen
grep -qF 'node_softnet_dropped_total{cpu="1"} 7' seen
if grep -F 'cpu="2"' seen; then exit 1; fi
