"""Runs an ovs-vswitchd for a test: with the userspace datapath, in a namespace, with sockets in its own directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.live.network import Namespace, Wire, run, send_udp

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
BRIDGE = "br-test"
DATAPATH = "ovs-netdev"
PORTS = ("veth-a", "veth-b")
ADDRESSES = ("192.0.2.1", "192.0.2.2")
PORT = 9
LIMIT_S = 120.0


class Vswitchd:
    """Two namespaces, joined by a bridge of a switch in a third one. Skips the test where there is no Open vSwitch."""

    name = "ovs-vswitchd"
    """Pidfile and control socket have it."""
    program: tuple[str, ...] = ("ovs-vswitchd",)

    def __init__(self, directory: Path, *options: str) -> None:
        """``options``: of ovs-vswitchd."""
        if not shutil.which("ovs-vswitchd") or not SCHEMA.exists():
            pytest.skip("openvswitch-switch is not installed")
        self.directory = directory
        self._options = options
        self.switch, self.a, self.b = self._namespaces = Namespace(), Namespace(), Namespace()
        self._pids: list[int] = []
        self.environment = {f"OVS_{name}": str(directory) for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")}
        self._database = f"unix:{directory}/db.sock"
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return int((self.directory / f"{self.name}.pid").read_text())

    def _start(self) -> None:
        database = f"{self.directory}/conf.db"
        self._run("ovsdb-tool", "create", database, str(SCHEMA))
        self._run("ovsdb-server", database, f"--remote=p{self._database}", "--pidfile", "--detach", "--log-file")
        self._pids.append(int((self.directory / "ovsdb-server.pid").read_text()))
        self.vsctl("--no-wait", "init")
        self.start()
        self.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
        for number, (end, port) in enumerate(zip((self.a, self.b), PORTS, strict=True)):
            self.switch.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", end.name)
            for namespace, device in ((self.switch, port), (end, "eth0")):
                namespace.run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
                namespace.ip("link", "set", device, "up")
            end.ip("link", "set", "eth0", "address", Wire.MACS[number])
            end.ip("address", "add", f"{ADDRESSES[number]}/24", "dev", "eth0")
            other = ("lladdr", Wire.MACS[1 - number], "dev", "eth0", "nud", "permanent")
            end.ip("neighbour", "replace", ADDRESSES[1 - number], *other)
            self.vsctl("add-port", BRIDGE, port)
        self.until(self._forwards)

    def start(self) -> None:
        """Starts ovs-vswitchd, after its end, too."""
        options = ("--pidfile", "--detach", "--log-file", "--disable-system", *self._options)
        self._run(*self.program, self._database, *options)
        self._pids.append(self.pid)

    def kill(self) -> None:
        """Ends ovs-vswitchd without a chance to tidy up."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not Path(f"/proc/{pid}/fd").exists())

    def vsctl(self, *words: str) -> str:
        return self._run("ovs-vsctl", f"--db={self._database}", *words)

    def appctl(self, *words: str) -> str:
        return self._run("ovs-appctl", "-t", str(self.directory / f"{self.name}.{self.pid}.ctl"), *words)

    def ofctl(self, command: str, *words: str) -> str:
        return self._run("ovs-ofctl", "-O", "OpenFlow13", command, f"unix:{self.directory}/{BRIDGE}.mgmt", *words)

    def rules(self, lines: str) -> None:
        """These rules of OpenFlow and no others."""
        self.ofctl("del-flows")
        for line in lines.splitlines():
            self.ofctl("add-flow", line)
        self.appctl("revalidator/wait")

    def until(self, true: Callable[[], bool]) -> None:
        """Waits for what the switch does in its own time."""
        deadline = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s"

    def _forwards(self) -> bool:
        send_udp(self.a, ADDRESSES[1], PORT, 1)
        return self.b.statistics("eth0")["rx"]["packets"] > 0

    def _run(self, *words: str) -> str:
        return run("env", *(f"{name}={value}" for name, value in self.environment.items()),
                   "ip", "netns", "exec", self.switch.name, *words)  # fmt: skip

    def close(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):  # a test has ended it
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGTERM)
        self.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in self._pids))
        for namespace in self._namespaces:
            namespace.remove()
