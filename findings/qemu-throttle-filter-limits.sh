#!/usr/bin/env bash
# QEMU 7.2 says that a disk has no limit, when its limit is that of a throttle node.
#
# Guess, before it was run: query-block has the limits of the group in "bps" and "iops", or the name of the group.
# Seen: both are 0, which is "no limit", and there is no "group", although the node of the disk is of the driver
# "throttle" and all its requests wait for the group's 1 000 000 bytes and 50 requests a second. query-named-block-nodes
# says the same of each node. Of a disk that is limited in the older way, with -drive, all three are there.
# The limits can be read where they were set alone: qom-get of the property "limits" of the group's object.
# The schema (qapi/block-core.json) describes "bps" as the total throughput limit in bytes per second, with no word
# that it is one of two ways. `info block -v` of the older disk has a line "I/O throttling", and none of this one.
# Of a VM with a slow disk, this is the first question: is it capped here? The answer is a no that is not true.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deb/partial"
: >"$work/none"
apt-get -qq -o Dir::State::Status="$work/none" -o Dir::Cache::Archives="$work/deb" -o Debug::NoLocking=1 \
    -o APT::Sandbox::User=root --download-only --no-install-recommends --yes install \
    qemu-system-x86=1:7.2+dfsg-7+deb12u18+b3 >/dev/null
rm "$work"/deb/libc6_*
for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
python3 - "$work/tree" <<'PYTHON'
import json
import os
import socket
import subprocess
import sys

tree = sys.argv[1]
libraries = f"{tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu"
ours, theirs = socket.socketpair()
command = [f"{tree}/usr/bin/qemu-system-x86_64", "-L", f"{tree}/usr/share/seabios", "-L", f"{tree}/usr/share/qemu"]
command += ["-nodefaults", "-display", "none", "-accel", "tcg", "-m", "16", "-S"]
command += ["-chardev", f"socket,id=monitor,fd={theirs.fileno()}", "-mon", "monitor,mode=control"]
command += ["-object", "throttle-group,id=gold,x-bps-total=1000000,x-iops-total=50"]
command += ["-blockdev", "driver=null-co,size=1048576,node-name=store"]
command += ["-blockdev", "driver=throttle,throttle-group=gold,file=store,node-name=disk"]
command += ["-device", "virtio-blk-pci,drive=disk,id=filtered"]
command += ["-drive", "if=none,id=older,driver=null-co,size=1048576,bps=1000000,iops=50,group=silver"]
command += ["-device", "virtio-blk-pci,drive=older,id=limited"]
machine = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, "LD_LIBRARY_PATH": libraries})
theirs.close()
monitor = ours.makefile("rw")


def ask(name: str, **arguments: object) -> object:
    print(json.dumps({"execute": name, "arguments": arguments}), file=monitor, flush=True)
    return next(answer["return"] for answer in map(json.loads, monitor) if "return" in answer)


def limits(told: dict[str, object]) -> tuple[object, ...]:
    return told["drv"], told["bps"], told["iops"], told.get("group")


try:
    version = json.loads(monitor.readline())["QMP"]["version"]["package"]
    ask("qmp_capabilities")
    disks = {one["qdev"].split("/")[3]: limits(one["inserted"]) for one in ask("query-block")}
    nodes = [limits(one) for one in ask("query-named-block-nodes") if one["node-name"] in ("disk", "store")]
    group = ask("qom-get", path="/objects/gold", property="limits")
    said = ask("human-monitor-command", **{"command-line": "info block -v"})
finally:
    machine.kill()
    machine.wait()
print(f"QEMU {version}\n(driver, bps, iops, group) of the disks: {disks}")
assert (group["bps-total"], group["iops-total"]) == (1000000, 50)
assert disks == {"limited": ("null-co", 1000000, 50, "silver"), "filtered": ("throttle", 0, 0, None)}
assert sorted(nodes) == [("null-co", 0, 0, None), ("throttle", 0, 0, None)]
assert said.count("I/O throttling:") == 1 and "group=silver" in said
PYTHON
