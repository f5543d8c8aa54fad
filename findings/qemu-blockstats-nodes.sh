#!/usr/bin/env bash
# QEMU 7.2 answers zeros for the disks of a VM when its block statistics are asked for by node.
#
# Guess, before it was run: `query-blockstats` with query-nodes=true has the same figures for the node of the disk as
# without it, and more nodes.
# Seen: the node is there, with "rd_operations": 0 and each other counter 0 except the highest offset written, though
# the disk was read and written. Without query-nodes the same node name stands beside the true figures.
# The requests are counted at the device of the guest (block/block-backend.c), and nodes have no counters of their own.
# The schema (qapi/block-core.json) describes one kind of answer for both, and says of none of its figures that it is
# not measured; an unknown figure can be left out in it, and idle_time_ns is.
# libvirt gives each disk a node name, so to ask by node is the obvious way, and shows a VM that never touches its disk.
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
python3 - "$work" <<'PYTHON'
import json
import os
import socket
import subprocess
import sys
import time

work = sys.argv[1]
tree, image = f"{work}/tree", f"{work}/disk"
COUNTERS = ("rd_operations", "rd_bytes", "wr_operations", "wr_bytes", "wr_highest_offset")
# A boot sector that reads one sector with the BIOS, writes eight (int 13h), and halts.
code = bytes.fromhex("31c08ed88ec0bb007eb80102b90200ba8000cd13b80803b91400bb007eba8000cd13f4ebfd")
with open(image, "wb") as file:
    file.write(code.ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))

libraries = f"{tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu"
ours, theirs = socket.socketpair()
command = [f"{tree}/usr/bin/qemu-system-x86_64", "-L", f"{tree}/usr/share/seabios", "-L", f"{tree}/usr/share/qemu"]
command += ["-nodefaults", "-display", "none", "-accel", "tcg", "-m", "16"]
command += ["-chardev", f"socket,id=monitor,fd={theirs.fileno()}", "-mon", "monitor,mode=control"]
command += ["-blockdev", f"driver=file,filename={image},node-name=disk", "-device", "virtio-blk-pci,drive=disk,id=vda"]
machine = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, "LD_LIBRARY_PATH": libraries})
theirs.close()
monitor = ours.makefile("rw")


def ask(name: str, **arguments: object) -> object:
    print(json.dumps({"execute": name, "arguments": arguments}), file=monitor, flush=True)
    return next(answer["return"] for answer in map(json.loads, monitor) if "return" in answer)


def of_disk(**arguments: object) -> dict[str, int]:
    [found] = [one["stats"] for one in ask("query-blockstats", **arguments) if one.get("node-name") == "disk"]
    return {name: found[name] for name in COUNTERS}


try:
    version = json.loads(monitor.readline())["QMP"]["version"]["package"]
    ask("qmp_capabilities")
    deadline = time.monotonic() + 60
    while of_disk()["wr_operations"] == 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    devices, nodes = of_disk(), of_disk(**{"query-nodes": True})
finally:
    machine.kill()
    machine.wait()
print(f"QEMU {version}\nasked for devices: {devices}\nasked for nodes:   {nodes}")
assert devices["rd_operations"] >= 2 and devices["wr_operations"] == 1 and devices["wr_bytes"] == 4096
assert nodes["wr_highest_offset"] == devices["wr_highest_offset"] > 0
assert not any(value for name, value in nodes.items() if name != "wr_highest_offset")
PYTHON
