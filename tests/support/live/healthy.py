"""A healthy mix of two namespaces: what neighbours send and programs do, and nothing is a fault (healthy.toml)."""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from netconsole.base.readers import read_toml
from tests.support.live.network import BARE_PYTHON, Namespace, Wire, run
from tests.support.live.packets import A6, A, checksum

READ, CHURN, LOST = 5002, 5003, 9
"""Ports: of a reader, of a server that answers and closes, of what a fault loses beside the mix."""
SERVER = """
import socket, struct, sys, threading
read, churn = map(int, sys.argv[1:3])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
udp.bind(("", read))
def receive():
    while True:
        udp.recv(8192)
threading.Thread(target=receive, daemon=True).start()
tcp = socket.create_server(("", churn), backlog=4096)
print("ready", flush=True)
while True:
    one, _ = tcp.accept()
    try:
        how = one.recv(1)
        if how == b"c":
            one.sendall(bytes(200))
        if how == b"d":
            one.sendall(bytes(200000))
        one.close()  # of how == b"u" with data unread: the client is told by a reset
    except OSError:
        one.close()
"""
CLIENT = """
import json, socket, struct, sys, time
target, read, churn, rates, times, device = json.loads(sys.argv[1])
frames = rates.pop("frames")
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((device, 0))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
ping.settimeout(0)
def connection(how):
    one = socket.create_connection((target, churn))
    if how == "closed":
        one.sendall(b"c")
        while one.recv(4096):
            pass
    elif how == "reset":
        one.sendall(b"c")
        one.recv(1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif how == "given up":
        one.sendall(b"d")
        one.recv(1)  # the rest is on its way
    else:
        try:
            one.sendall(b"u" + bytes(2000))
            one.recv(1)
        except OSError:
            pass
    one.close()
def unread():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, 42, 0)  # SO_PEEK_OFF
    one.bind(("127.0.0.1", 0))
    for _ in range(3):
        one.sendto(b"x", one.getsockname())
    for _ in range(3):
        one.recv(1, socket.MSG_PEEK)  # it is in the socket, and stays there: a busy CPU may be late
    one.close()
def echo():
    ping.sendto(bytes.fromhex("0800f7fe00010000"), (target, 0))
    try:
        while ping.recv(2048):
            pass
    except OSError:
        pass
DO = {
    "a connection that is closed": lambda: connection("closed"),
    "a connection that is reset by its client": lambda: connection("reset"),
    "a download that its client gives up": lambda: connection("given up"),
    "a connection closed with data unread": lambda: connection("unread"),
    "a socket closed with datagrams unread": unread,
    "datagrams to a socket that reads them": lambda: udp.sendto(bytes(200), (target, read)),
    "a ping of a raw socket": echo,
}
due = [(times * rates[name], act) for name, act in DO.items() if name in rates]
due += [(times * per_s, lambda frame=bytes.fromhex(frame): wire.send(frame)) for per_s, frame in frames]
done, started = [0] * len(due), time.monotonic()
print("ready", flush=True)
while True:
    passed = time.monotonic() - started
    for number, (per_s, act) in enumerate(due):
        for _ in range(min(50, int(per_s * passed) - done[number])):
            act()
            done[number] += 1
    time.sleep(0.002)
"""
COMES_AND_GOES = """
import ctypes, fcntl, json, os, socket, struct, subprocess, sys, time
prefix, per_s, taps_per_s = json.loads(sys.argv[1])
def namespace(number):
    # And a bridge, which reports its groups at once.
    name = f"{prefix}-{number % 3}"
    subprocess.run(["ip", "link", "add", "mix-bridge", "up", "type", "bridge"], check=True)
    subprocess.run(["ip", "netns", "add", name], check=True)
    other = f"/run/netns/{prefix}-also"
    open(other, "w").close()
    subprocess.run(["mount", "--bind", f"/run/netns/{name}", other], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "netns", "exec", name, sys.executable, "-S", "-c", SOME], check=True)
    subprocess.run(["umount", other], check=True)
    os.remove(other)
    subprocess.run(["ip", "netns", "delete", name], check=True)
    subprocess.run(["ip", "link", "delete", "mix-bridge"], check=True)
SOME = (
    "import socket; one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind(('127.0.0.1', 0));"
    "[one.sendto(b'x', one.getsockname()) for _ in range(100)]; [one.recv(9) for _ in range(100)]"
)
def tap(number):
    one = os.open("/dev/net/tun", os.O_RDWR)
    name = f"tapmix{number % 10}"
    fcntl.ioctl(one, 0x400454CA, struct.pack("16sH", name.encode(), 0x1002))  # TUNSETIFF: IFF_TAP | IFF_NO_PI
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind((name, 0))
    for _ in range(20):
        wire.send(bytes(60))
    os.close(one)
print("ready", flush=True)
namespaces = taps = 0
started = time.monotonic()
while True:
    passed = time.monotonic() - started
    if namespaces < per_s * passed:
        namespace(namespaces)
        namespaces += 1
    if taps < taps_per_s * passed:
        tap(taps)
        taps += 1
    time.sleep(0.05)
"""


def mix() -> dict[str, list[dict[str, Any]]]:
    """The data."""
    found: Any = read_toml(Path(__file__).with_suffix(".toml"))
    return dict(found)


def by_wire(a: Namespace, b: Namespace, *_: object) -> str:
    """One end is the other's neighbour."""
    Wire(a, b).use_ipv6()
    return Wire.ADDRESSES[1]


def by_bridge(a: Namespace, b: Namespace, middle: Namespace, _: ExitStack) -> str:
    """Both are ports of a bridge of Linux, which floods what is for many."""
    middle.ip("link", "add", "br0", "up", "type", "bridge")

    def plug(end: Namespace, device: str) -> None:
        end.ip("link", "add", device, "type", "veth", "peer", "name", f"to-{device}", "netns", middle.name)
        middle.ip("link", "set", f"to-{device}", "up", "master", "br0")

    Wire(a, b, between=plug).use_ipv6()
    return Wire.ADDRESSES[1]


def by_router(a: Namespace, b: Namespace, middle: Namespace, _: ExitStack) -> str:
    """The neighbour of the first end is a router, and the other is behind it."""
    Wire(a, middle).use_ipv6()
    middle.ip("link", "add", "veth-down", "type", "veth", "peer", "name", "veth-up", "netns", b.name)
    for end, device, address in ((middle, "veth-down", "198.51.100.1/24"), (b, "veth-up", "198.51.100.2/24")):
        end.ip("address", "add", address, "dev", device)
        end.ip("link", "set", device, "up")
    a.ip("route", "add", "198.51.100.0/24", "via", Wire.ADDRESSES[1])
    b.ip("route", "add", "default", "via", "198.51.100.1")
    middle.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    return "198.51.100.2"


def by_switch(a: Namespace, b: Namespace, _: Namespace, stack: ExitStack) -> str:
    """Both are ports of this host's Open vSwitch, beside the VMs on its bridge br0."""

    def plug(end: Namespace, device: str) -> None:
        run("ip", "link", "add", f"mix{device}", "up", "type", "veth", "peer", "name", device, "netns", end.name)
        stack.callback(run, "ip", "link", "delete", f"mix{device}")
        run("ovs-vsctl", "add-port", "br0", f"mix{device}")
        stack.callback(run, "ovs-vsctl", "del-port", "br0", f"mix{device}")

    Wire(a, b, between=plug).use_ipv6()
    return Wire.ADDRESSES[1]


PATHS: dict[str, Callable[[Namespace, Namespace, Namespace, ExitStack], str]] = {
    "wire": by_wire,
    "bridge": by_bridge,
    "router": by_router,
    "switch": by_switch,
}


class HealthyMix:
    """Plays the mix from one end of a path to the other until the stack ends, ``times`` as often as it says."""

    def __init__(self, stack: ExitStack, times: float = 1.0, path: str = "wire") -> None:
        self._stack = stack
        self.a, self.b, self.middle = Namespace(), Namespace(), Namespace()
        for one in (self.a, self.b, self.middle):
            stack.callback(one.remove)
        target = PATHS[path](self.a, self.b, self.middle, stack)
        data = mix()
        rates: dict[str, Any] = {one["name"]: one["per_s"] for one in data["program"]}
        taps, comes = (rates.pop(name) for name in [*rates] if name.startswith(("a namespace", "a tap")))
        rates["frames"] = [(one["per_s"], frame(one).hex()) for one in data["frame"]]
        self._start(self.b, SERVER, READ, CHURN)
        words = json.dumps([target, READ, CHURN, rates, times, Wire.DEVICES[0]])
        self._start(self.a, CLIENT, words)
        churn = json.dumps([f"{self.b.name}x", comes, taps])
        self._start(self.b, COMES_AND_GOES, churn)

    def _start(self, where: Namespace, code: str, *words: object) -> None:
        process = where.start(code, *words, python=BARE_PYTHON)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    def is_of(self, labels: Sequence[object]) -> bool:
        """Whether one of these is a name of its namespaces."""
        ours = (self.a, self.b, self.middle)
        return bool({str(name) for one in ours for name in (one.name, one.inode)} & {str(one) for one in labels})


def frame(one: dict[str, Any]) -> bytes:
    """The bytes of a frame of the data."""
    macs = bytes.fromhex((one.get("mac", Wire.MACS[1]) + Wire.MACS[0]).replace(":", ""))
    tag = struct.pack(">HH", 0x8100, one["vlan"]) if "vlan" in one else b""
    if "type" in one:
        return macs + tag + struct.pack(">H", one["type"]) + bytes.fromhex(one["content"])
    if "udp" in one:
        target, port = one["udp"]
        protocol, content = 17, struct.pack(">HHHH", 4000, port, 8 + 32, 0) + bytes(32)
    else:
        target, protocol, hexadecimal = one["ip"]
        content = bytes.fromhex(hexadecimal)
    address = ipaddress.ip_address(target)
    if address.version == 4:
        ends = ipaddress.ip_address(A).packed + address.packed
        if protocol == 2:
            content = content[:2] + struct.pack(">H", checksum(content)) + content[4:]
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 7, 0, 1, protocol, 0) + ends
        return macs + tag + b"\x08\x00" + head[:10] + struct.pack(">H", checksum(head)) + head[12:] + content
    source = "fe80::a" if protocol == 58 else A6
    ends = ipaddress.ip_address(source).packed + address.packed
    at = 2 if protocol == 58 else 6
    right = checksum(ends + struct.pack(">II", len(content), protocol) + content) or 0xFFFF
    content = content[:at] + struct.pack(">H", right) + content[at + 2 :]
    return macs + tag + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(content), protocol, 255) + ends + content
