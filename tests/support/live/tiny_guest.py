"""A virtual machine that begins at once: QEMU runs some bytes in place of a BIOS and an operating system.

QEMU's process, its threads, its tap and its disk are real. What the machine does is a loop of a few instructions.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import pytest

from tests.support.live.network import Namespace, run

HALTS = bytes.fromhex("fa f4 eb fd")
"""cli; again: hlt; jmp again"""
SPINS = bytes.fromhex("eb fe")
"""again: jmp again"""
READS = bytes.fromhex(
    "31c0 8ec0"  # es = 0
    "baf601 b0e0 ee  baf201 b001 ee  42 ee  42 30c0 ee  42 ee  baf701 b020 ee"  # again: one sector, number 1; read it
    "ec 2488 3c08 75f9"  # wait: until it has data
    "bf0080 b90001 baf001 f36d"  # 256 words to 0:8000h
    "ebd2"  # jmp again
)
"""It asks its first disk for one sector after the other, by the ports of ATA."""
_BEGUN = bytes.fromhex("b001 e6e9")
"""mov al, 1; out 0e9h, al: a device of QEMU's for debugging passes it on."""
_ROM, _RESET = 64 << 10, 0xFFF0
_START = bytes.fromhex("ea000000f0")
"""jmp 0f000h:0, where the machine's only program is, in place of a BIOS: no time goes for one."""
_TUNSETIFF, _TUNSETPERSIST = 0x400454CA, 0x400454CB
_TAP, _NO_HEADER = 0x0002, 0x1000
"""IFF_TAP, IFF_NO_PI (uapi/linux/if_tun.h)."""
MAC = "52:54:00:00:00:41"
"""Of a network card."""
_BEGIN_S = 30.0


class Card(enum.Enum):
    """What is behind the tap."""

    NONE = "the machine has no tap"
    HUB = "a hub of QEMU's: it takes each frame, and sends what the test sends, as a guest would"
    DEAF = "a network card without a driver: it takes no frame"


class TinyGuest:
    """One such machine, until ``close``. ``disk``: the path of its first disk, and what QEMU is told of it besides.

    ``inside``: the network namespace of its tap and of QEMU; the own one without. ``more``: other words for QEMU.
    """

    def __init__(
        self,
        program: bytes,
        card: Card = Card.NONE,
        disk: str = "",
        *,
        inside: Namespace | None = None,
        more: Sequence[str] = (),
    ) -> None:
        if not shutil.which("qemu-system-x86_64"):
            pytest.skip("cannot run here: QEMU is not installed")
        with contextlib.ExitStack() as stack:
            self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netconsole-guest-")))
            number = self._directory.name.rpartition("-")[2]
            self.name, self.tap = f"guest-{number}", f"nc{number}"
            monitor, begun = (self._listens(stack, one) for one in ("monitor", "begun"))
            words = ["-name", f"guest={self.name},debug-threads=on", "-m", "16", "-nodefaults", "-display", "none"]
            words += ["-accel", "kvm", "-accel", "tcg", "-qmp", f"unix:{self._directory}/monitor"]
            words += [
                "-chardev",
                f"socket,id=begun,path={self._directory}/begun",
                "-device",
                "isa-debugcon,chardev=begun",
            ]
            words += [*self._drives(program, disk), *self._cards(stack, card, inside), *more]
            where = () if inside is None else ("ip", "netns", "exec", inside.name)
            self._process = subprocess.Popen([*where, "qemu-system-x86_64", *words], stdin=subprocess.DEVNULL)
            stack.callback(self._process.wait)
            stack.callback(self._process.kill)
            self._monitor = stack.enter_context(self._accepted(monitor))
            self._monitor.readline()  # its greeting
            self.command("qmp_capabilities")
            with self._accepted(begun) as heard:
                assert heard.read(1) == "\x01"
            self._stack = stack.pop_all()

    @property
    def pid(self) -> int:
        """Of QEMU."""
        return self._process.pid

    @property
    def has_kvm(self) -> bool:
        """Whether KVM runs it; QEMU itself where there is none."""
        return self.command("query-kvm") == {"enabled": True, "present": True}

    @property
    def vcpu(self) -> int:
        """The thread of its only virtual CPU."""
        return self.thread("CPU 0/")

    def thread(self, name: str) -> int:
        """One of its threads by the begin of its name; QEMU gives names to threads that are not its main one."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return next(int(one.name) for one in tasks if (one / "comm").read_text().startswith(name))

    def path(self, name: str) -> str:
        """Of a file or socket of its own, which goes with it."""
        return str(self._directory / name)

    def command(self, name: str, /, **arguments: object) -> object:
        """What QEMU answers to a command of its monitor, such as stop and cont."""
        print(json.dumps({"execute": name, "arguments": arguments}), file=self._monitor, flush=True)
        while "return" not in (said := json.loads(self._monitor.readline())):
            assert "error" not in said, said
        return said["return"]

    def send(self, frame: bytes) -> None:
        """The machine sends it, with a hub."""
        self._wire.sendto(frame, str(self._directory / "hub"))

    def close(self) -> None:
        self._stack.close()

    def _listens(self, stack: contextlib.ExitStack, name: str) -> socket.socket:
        """A socket to which QEMU will connect."""
        one = stack.enter_context(socket.socket(socket.AF_UNIX))
        one.bind(str(self._directory / name))
        one.listen()
        one.settimeout(_BEGIN_S)
        return one

    def _accepted(self, listening: socket.socket) -> TextIO:
        line, _ = listening.accept()
        line.settimeout(_BEGIN_S)
        with line:
            return line.makefile("rw")

    def _drives(self, program: bytes, disk: str) -> list[str]:
        rom = self._directory / "rom"
        rom.write_bytes(((_BEGUN + program).ljust(_RESET, b"\0") + _START).ljust(_ROM, b"\0"))
        drives = ["-bios", str(rom)]
        return [*drives, "-drive", f"file={disk},format=raw,if=ide,cache=none,aio=native"] if disk else drives

    def _cards(self, stack: contextlib.ExitStack, card: Card, inside: Namespace | None) -> list[str]:
        if card is Card.NONE:
            return []
        with Path("/dev/net/tun").open("r+b", buffering=0) as tun:
            fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", self.tap.encode(), _TAP | _NO_HEADER))
            fcntl.ioctl(tun, _TUNSETPERSIST, 1)
        if inside is not None:
            run("ip", "link", "set", self.tap, "netns", inside.name)
        tell = run if inside is None else inside.run
        stack.callback(tell, "ip", "link", "delete", self.tap)
        tell("sysctl", "-qw", f"net.ipv6.conf.{self.tap}.disable_ipv6=1")
        tell("ip", "link", "set", self.tap, "up")
        tap = ["-netdev", f"tap,id=tap,ifname={self.tap},script=no,downscript=no,vnet_hdr=off"]
        if card is Card.DEAF:
            return [*tap, "-device", f"e1000,netdev=tap,mac={MAC}"]
        self._wire = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._wire.bind(str(self._directory / "test"))
        self._wire.shutdown(socket.SHUT_RD)
        there = f"remote.type=unix,remote.path={self._directory}/test"
        hub: Sequence[str] = (
            f"dgram,id=test,local.type=unix,local.path={self._directory}/hub,{there}",
            "hubport,id=a,hubid=0,netdev=tap",
            "hubport,id=b,hubid=0,netdev=test",
        )
        return [*tap, *(word for one in hub for word in ("-netdev", one))]
