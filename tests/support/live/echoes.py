"""Two hosts in one namespace: bridges, each with a veth as the tap of its VM, and a veth between them as the wire."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from netconsole.base.paths import program_command
from netconsole.ping.capture import EchoOutcome, Role
from netconsole.ping.echo_log import Echo, EchoLog
from netconsole.ping.vantage import VANTAGE_POINTS, Between, request_of
from netconsole.ping.visible_points import watched
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.state import State
from tests.support.live.measurement import Measurement
from tests.support.live.network import Namespace

SENDER = "netconsole_collector.echo_sender"
TAPS = (f"nta{os.getpid()}", f"ntb{os.getpid()}")
WIRES = (f"nwa{os.getpid()}", f"nwb{os.getpid()}")
A, B = "10.98.0.1", "10.98.0.2"
A6, B6 = "fd98::1", "fd98::2"
MACS = ("02:00:00:00:02:0a", "02:00:00:00:02:0b")
LIMIT = 0.2
"""Seconds: an answer after this is late."""


class TwoHosts:
    """VM a - host - wire - host - VM b. The VMs know each other's addresses: nobody asks for them."""

    def __init__(self) -> None:
        self.a, self.h, self.b = self.namespaces = Namespace(), Namespace(), Namespace()
        self.h.ip("link", "add", WIRES[0], "type", "veth", "peer", "name", WIRES[1])
        for number, end in enumerate((self.a, self.b)):
            self.h.ip("link", "add", TAPS[number], "type", "veth", "peer", "name", "eth0", "netns", end.name)
            self.h.ip("link", "add", f"br{number}", "type", "bridge", "mcast_snooping", "0")
            for device in (f"br{number}", TAPS[number], WIRES[number]):
                self.h.run("sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6")
            for device in (TAPS[number], WIRES[number]):
                self.h.ip("link", "set", device, "master", f"br{number}", "up")
            self.h.ip("link", "set", f"br{number}", "up")
        for own, end in enumerate((self.a, self.b)):
            end.ip("link", "set", "eth0", "address", MACS[own], "multicast", "off", "up")  # it would report its groups
            end.ip("address", "add", f"{(A, B)[own]}/24", "dev", "eth0")
            end.ip("address", "add", f"{(A6, B6)[own]}/64", "dev", "eth0", "nodad")
            for address in ((A, B)[1 - own], (A6, B6)[1 - own]):
                end.ip("neighbour", "replace", address, "lladdr", MACS[1 - own], "dev", "eth0", "nud", "permanent")

    def drop(self, losses: Mapping[int, tuple[str, bool]]) -> None:
        """By sequence number: the device that it would be sent on, or "" for the one that is pinged; whether the reply.

        A bridge drops it after it was received, and before the device's driver would get it.
        """
        rules = []
        for seq, (device, is_reply) in losses.items():
            for protocol in ("icmp", "icmpv6"):
                echo = f"{protocol} type echo-{'reply' if is_reply else 'request'} {protocol} sequence {seq} drop"
                rules.append((device, echo))
        bridge = "".join(f"oifname {device} {echo}\n" for device, echo in rules if device)
        pinged = "".join(f"{echo}\n" for device, echo in rules if not device)
        chain = "table {} f {{ chain c {{ type filter hook {} priority 0; policy accept;\n{}}}\n}}\n"
        self.h.run("nft", "-f", "-", input=chain.format("bridge", "forward", bridge))
        self.b.run("nft", "-f", "-", input=chain.format("inet", "input", pinged))

    def drop_nothing(self) -> None:
        """Take away what :meth:`drop` has put there."""
        self.h.run("nft", "flush", "ruleset")
        self.b.run("nft", "flush", "ruleset")

    def send(self, target: str, count: int, interval_us: int, size: int = 56, first_seq: int = 0) -> dict[str, Any]:
        """Send echoes from a; what the sender counted, with its ``id``."""
        command = program_command(SENDER, target, str(count), str(interval_us), str(size), str(first_seq), "")
        words = ["ip", "netns", "exec", self.a.name, *command]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
            assert sender.stdout is not None
            lines = [json.loads(line) for line in sender.stdout]
        assert sender.returncode == 0
        return {**lines[0], **lines[-1]}

    def remove(self) -> None:
        for namespace in self.namespaces:
            namespace.remove()


class Vantages(Measurement):
    """Vantage points in one collector, each a probe under a name of its own."""

    def __init__(self, *where: Any) -> None:
        self.logs: dict[Role, EchoLog] = {}
        self._points: dict[Role, Between] = {}
        self._of_probe: dict[str, Role] = {}
        self._state = State()
        super().__init__(*where)

    def watch(self, role: Role, between: Between) -> None:
        """Start a vantage point, or give a running one other knobs. Its log begins anew."""
        request = request_of(role, between, catalogue.load_all())
        name = f"{request.name}_{role.replace('-', '_')}"
        self.logs[role], self._points[role] = EchoLog(between.addresses), between
        if name in self._of_probe:
            reply = self.command(command="set", probe=name, mode="summary", knobs=dict(request.knobs))
        else:
            self._of_probe[name] = role
            more = {"spec": request.spec, "source": request.code, "knobs": dict(request.knobs)}
            reply = self.command(command="load", probe=name, **more)
        assert reply.ok, reply.error
        self.begin()
        self.logs[role] = EchoLog(between.addresses)

    def name(self, role: Role) -> str:
        return next(name for name, one in self._of_probe.items() if one == role)

    def missed(self, role: Role) -> dict[str, int]:
        """What may have been missed since the vantage point was watched; empty when every echo has its record."""
        self.settle()  # the counters of a reading are older than its records
        name = self.name(role)
        found = {entry: self.ledger(name, entry) for entry in ("map_full", "missed", "parse_failed")}
        found["not_read"] = self.counter(name, "echoes") - len(self.logs[role]) - self.logs[role].others
        found["unknown"] = self.counter(name, "unknown")
        return {entry: count for entry, count in found.items() if count}

    def outcomes(self, role: Role) -> dict[int, EchoOutcome]:
        """What became of each echo by its sequence number, when its time is over."""
        log, limit_s = self.logs[role], self._points[role].limit_s
        self.until(lambda: all(self._over(echo, log, limit_s) for echo in log.echoes()), "the end of all echoes")
        now_ns = log.clocks[-1][0]
        attach = self.statuses[self.name(role)].attach
        return {echo.seq: echo.outcome(now_ns, limit_s, watched(role, attach, echo.version)) for echo in log.echoes()}

    def await_echoes(self, role: Role, count: int) -> list[Echo]:
        """As soon as all of them have come back."""
        log = self.logs[role]
        self.until(lambda: sum(echo.total_ns is not None for echo in log.echoes()) >= count, f"{count} echoes")
        return log.echoes()

    @staticmethod
    def _over(echo: Echo, log: EchoLog, limit_s: float) -> bool:
        return log.clocks[-1][0] - echo.at_ns[0] > (limit_s + 0.5) * 1e9

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        role = self._of_probe.get(frame.probe or "")
        for one in [role] if role else list(self.logs):
            self.logs[one].take(self._state, [frame])


def between(role: Role, **more: Any) -> Between:
    """Where a role of the two hosts measures."""
    host = 0 if role == "sender-host" else 1
    wanted = {"limit_s": LIMIT, **more}
    if VANTAGE_POINTS[role].has_inside:
        return Between((TAPS[host],), (WIRES[host],), **wanted)
    return Between((), ("eth0",), **wanted)
