"""Faults as data: tests/faults has a file for each, and its README.md says what such a file may have."""

from __future__ import annotations

import platform
import re
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netconsole.base.readers import read_toml
from netconsole.findings.incident import Incident
from tests.support.live.network import BARE_PYTHON, IS_EMULATED, Namespace, SleepingReceiver, Wire, run
from tests.support.live.packets import checksum

DIRECTORY = Path(__file__).parents[2] / "faults"
LIMIT_S = 120.0
PORT = 9
PACED = """
import socket, sys, time
family, kind, target, port, count, per_s, flows = (sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:8]))
senders = [socket.socket(getattr(socket, family), getattr(socket, kind)) for _ in range(flows)]
payload = bytes.fromhex(sys.argv[8])
if family == "AF_PACKET":
    senders[0].bind((target, 0))
elif family == "AF_INET" and sys.argv[9] == "whole":
    senders[0].setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER: IP_PMTUDISC_PROBE
started = time.monotonic()
for number in range(count):
    while number > per_s * (time.monotonic() - started):
        time.sleep(0.001)
    sender = senders[number % flows]
    try:
        sender.send(payload) if family == "AF_PACKET" else sender.sendto(payload, (target, port))
    except OSError:  # a firewall refuses it, or the device is down: it is dropped all the same
        pass
"""
READER = """
import socket, sys
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
reader.bind(("", 9))
print("ready", flush=True)
while True:
    reader.recv(2048)
"""
GROUP = """
import os, socket, sys, threading
def make():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.bind(("", 9))
    return one
sleeper, *readers = [make() for _ in range(3)]
def read(one):
    while True:
        one.recv(64)
for one in readers:
    threading.Thread(target=read, args=(one,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""
STANDS = {"reader": READER, "group": GROUP}
"""Programs that a fault may name; it may have others of its own."""
SLEEPER = "sleeper"


def _numbers(release: str) -> list[int]:
    """Of a kernel's name the first two, by which it is compared; of an empty one none."""
    return [int(number) for number in re.findall(r"\d+", release)[:2]]


RELEASE = _numbers(platform.release())
SLOWER = 4 if IS_EMULATED else 1
"""So many times as long has to last what the host is asked about, or what is looked at again after seconds."""


@dataclass
class Fault:
    """One fault, and what it needs while it lasts."""

    name: str
    about: str
    traffic: Mapping[str, Any]
    expect: Mapping[str, Any]
    make: Sequence[str] = ()
    undo: Sequence[str] = ()
    until: Sequence[str] = ()
    stand: Sequence[str] = ()
    program: Sequence[Mapping[str, str]] = ()
    needs: str = ""
    since: str = ""
    alone: bool = False
    fast: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    spaces: dict[str, Namespace] = field(default_factory=dict)
    sender: subprocess.Popen[str] | None = None
    trouble: str = ""
    """Why what was sent is not what it should be."""
    port: int = PORT
    cannot: str = ""
    """What this kernel or machine lacks for it."""

    def prepare(self, stack: ExitStack) -> None:
        """The wire, what stands at its ends, and the fault itself."""
        if self.fast and IS_EMULATED:
            self.cannot = "an emulated machine is too slow for it"
            return
        if _numbers(self.since) > RELEASE:
            self.cannot = f"a kernel before {self.since} tells too little of it"
            return
        for name, value in self.settings.items():
            stack.callback(run, "sysctl", "-qw", f"{name}={run('sysctl', '-n', name).strip()}")
            run("sysctl", "-qw", f"{name}={value}")
        lines = [*self.make, *self.until[:1]]
        for letter in sorted({"a", "b", *(line.partition(" ")[0] for line in lines)}):
            self.spaces[letter] = Namespace()
            stack.callback(self.spaces[letter].remove)
        wire = Wire(self.spaces["a"], self.spaces["b"])
        if ":" in self.traffic.get("to", ""):
            wire.use_ipv6()
        for words in self.stand:
            letter, _, what = words.partition(" ")
            if what == SLEEPER:
                self.port = stack.enter_context(SleepingReceiver(self.spaces[letter])).port
            else:
                self._stand(stack, letter, STANDS[what])
        early = [one for one in self.program if one.get("when") != "made"]
        for one in early:
            self._stand(stack, one["at"], one["code"])
        for line in self.make:
            try:
                self.run(line)
            except AssertionError as error:
                if not self.needs or self.needs not in str(error):
                    raise
                self.cannot = str(error)
                return
        for one in self.program:
            if one not in early:
                self._stand(stack, one["at"], one["code"])
        if self.until:
            asks, shown = self.until
            end = time.monotonic() + LIMIT_S
            while shown not in (told := self.run(asks)):  # the kernel tells of a carrier some time after it was lost
                assert time.monotonic() < end, told

    def run(self, line: str) -> str:
        """A command in the namespace that its first letter says; ``{b}`` in it is the name of another one."""
        letter, _, command = line.partition(" ")
        return self.spaces[letter].run(*(self.filled(word) for word in command.split()))

    def filled(self, text: str) -> str:
        """With the names of the namespaces in place of {a}, {b} …"""
        for letter, space in self.spaces.items():
            text = text.replace(f"{{{letter}}}", space.name)
        return text

    def begin(self) -> None:
        """Start to send."""
        traffic = self.traffic
        at = self.spaces[traffic.get("at", "a")]
        count, per_s, flows = traffic["count"], traffic["per_s"], traffic.get("flows", 1)
        if "code" in traffic:
            self.sender = at.start(traffic["code"], count, per_s, SLOWER)
            return
        if "frame" in traffic:
            device = traffic.get("device", Wire.DEVICES[0])
            words = ("AF_PACKET", "SOCK_RAW", device, 0, count, per_s, 1, frame(**traffic["frame"]).hex(), "")
        else:
            to = traffic.get("to", Wire.ADDRESSES[1])
            family = "AF_INET6" if ":" in to else "AF_INET"
            payload = traffic.get("payload", "") or "78" * traffic.get("bytes", 64)
            whole = "whole" if traffic.get("whole") else ""
            words = (family, "SOCK_DGRAM", to, traffic.get("port", self.port), count, per_s, flows, payload, whole)
        self.sender = at.start(PACED, *words, python=BARE_PYTHON)

    def end(self) -> None:
        """Wait until all is sent, and take back what would go on by itself."""
        assert self.sender is not None
        self.sender.communicate(timeout=LIMIT_S)
        if self.sender.returncode:
            self.trouble = f"the program that sends ended with {self.sender.returncode}"
        for line in self.undo:
            self.run(line)

    def ask(self, incident: Incident) -> str:
        """What the command shows that the incident must advise: run as it stands there, and it may not fail."""
        wanted = self.filled(self.expect["command"])
        lines = [line for line in incident.commands if wanted in line]
        assert lines, f"{wanted} is not among {incident.commands}"
        return run("sh", "-c", lines[0])

    def is_of(self, incident: Incident) -> bool:
        """Whether an incident lies in this fault's namespaces."""
        names = {str(name) for space in self.spaces.values() for name in (space.name, space.inode)}
        labels = [dict(evidence.key).get("netns") for evidence in incident.evidence]
        return bool(names & {str(label) for label in (*labels, incident.where.get("netns"))})

    def _stand(self, stack: ExitStack, letter: str, code: str) -> None:
        process = self.spaces[letter].start(code, SLOWER)
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if self.needs and said == self.needs:
            self.cannot = said
            return
        assert said == "ready", self.name


def all_faults() -> list[Fault]:
    """The faults of all files, by name."""
    found = []
    for path in sorted(DIRECTORY.glob("*.toml")):
        document: Any = read_toml(path)
        found.append(Fault(path.stem, **document))
    return found


def frame(
    protocol: int = 17,
    source: str = Wire.ADDRESSES[0],
    target: str = Wire.ADDRESSES[1],
    mac: str = Wire.MACS[1],
    ethertype: str = "0800",
    vlan: int | None = None,
    hops: int = 64,
    version: int = 4,
    words: int = 5,
    longer: int = 0,
    port: int = PORT,
    wrong: str = "",
    body: str = "",
) -> bytes:
    """An Ethernet frame from a to b, with what is wrong with it; ``body``: in place of the whole IP packet."""
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    if protocol == 1:
        inner = struct.pack("!BBHHH", 8, 0, 0xDEAD, 1, 1) + b"x" * 16
    elif protocol == 6:
        inner = struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 5 << 4, 2, 1024, 0xDEAD, 0)
    else:
        inner = struct.pack("!HHHH", 40000, port, 8 + 16, 0xDEAD if wrong == "udp" else 0) + b"x" * 16
    length = 20 + len(inner) + longer
    head = struct.pack("!BBHHHBBH", version << 4 | words, 0, length, 1, 0, hops, protocol, 0) + ends
    right = checksum(head) ^ (0x5555 if wrong == "ip" else 0)
    head = head[:10] + struct.pack("!H", right) + head[12:]
    macs = b"".join(bytes.fromhex(one.replace(":", "")) for one in (mac, Wire.MACS[0]))
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return macs + tag + bytes.fromhex(ethertype) + (bytes.fromhex(body) if body else head + inner)
