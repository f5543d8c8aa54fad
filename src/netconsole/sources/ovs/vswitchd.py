"""Asks ovs-vswitchd about revalidation, flow puts, threads, datapaths in user space, and flows as text."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netconsole.host.here import HERE
from netconsole.host.target import Question, Target
from netconsole.sources.ovs.unixctl import Refused, Unixctl, UnixctlError, vswitchd_pid

ASK_AGAIN_S = 5.0
"""How long not to ask again when it did not answer, because it is busy."""
USERSPACE = "netdev"
MAX_FLOWS_DUMPED = 5000
"""With more flows than this no dump is made, because a dump blocks the main thread of ovs-vswitchd."""
DUMP_TIMEOUT_S = 1.0
FLOW_PUTS, FLOW_DELETES, EXECUTED = "dpif_flow_put", "dpif_flow_del", "dpif_execute"
"""Coverage counters (OVS lib/dpif.c). Every thread updates them about once per second."""
_COUNTERS = (FLOW_PUTS, FLOW_DELETES, EXECUTED)

_REVALIDATION = re.compile(r"^(\S+)@(\S+):\n\s+flows\s*:.*?\(limit (\d+)\).*?dump duration : (\d+)ms", re.M | re.S)
_LOOKUPS = re.compile(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)\s+flows: (\d+)")
_PORT = re.compile(
    r"^  port (\d+): (.+?)(?: \((\w+).*?\))?\n"
    r"    RX packets:(\d+|\?) errors:(\d+|\?) dropped:(\d+|\?).*\n"
    r"    TX packets:(\d+|\?) errors:(\d+|\?) dropped:(\d+|\?).*\n"
    r"(?:    collisions:.*\n)?"
    r"    RX bytes:(\d+|\?).*?TX bytes:(\d+|\?)",
    re.M,
)
"""A counter that the type of port lacks is shown as a question mark (OVS lib/dpctl.c, print_stat)."""
_FLOW = re.compile(r"^(?P<match>.*), packets:(?P<packets>\d+), bytes:(?P<bytes>\d+), .*?actions:(?P<actions>.*)$")
_DATAPATH = re.compile(r"^\S+?@(\S+): ")
_BRIDGE = re.compile(r"^  (\S+):$")
_MEMBER = re.compile(r"^    (\S+) (?:\d+|none)/(?:\d+|none): \(")
_PLAIN = "netdev"
"""A port of no special type, which dpctl does not name."""
_NOISE = re.compile(
    r"recirc_id\(0\),?|packet_type\(ns=0,id=0\),?|eth_type\(0x(?:0800|86dd|0806)\),(?=ipv[46]|arp)|\(frag=no\)|,frag=no"
)
"""Parts that every flow has, or that another part implies."""


@dataclass(frozen=True, slots=True)
class Revalidation:
    """How long the last revalidation of a datapath took, and the flow limit that follows from it."""

    dump_ms: int
    flow_limit: int


@dataclass(frozen=True, slots=True)
class UserspacePort:
    """As :class:`netconsole.sources.ovs.netlink.Vport`, of a datapath in user space.

    None: this type of port lacks that counter.
    """

    name: str
    type: str
    counts: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class UserspaceDatapath:
    """A datapath of ovs-vswitchd itself (netdev, DPDK)."""

    name: str
    hits: int
    misses: int
    lost: int
    flows: int
    ports: tuple[UserspacePort, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow of a datapath as text."""

    match: str
    actions: str
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of ovs-vswitchd. ``counters``: those of :data:`_COUNTERS` that it has."""

    answer_ms: float
    counters: dict[str, int]
    revalidation: dict[str, Revalidation]
    datapaths: tuple[UserspaceDatapath, ...]


class Vswitchd:
    """The ovs-vswitchd that runs in one of these directories. Not thread-safe."""

    def __init__(self, directories: Sequence[str], target: Target = HERE) -> None:
        self._directories = directories
        self._target = target
        self._unixctl: Unixctl | None = None
        self._silent_until = 0.0
        self._why = ""
        self.pid: int | None = None
        """The process; None when none runs."""

    def read(self) -> Answers:
        """Ask for everything. Raises UnixctlError when it does not run, or does not answer (see ASK_AGAIN_S)."""
        self._find()
        if time.monotonic() < self._silent_until:
            raise UnixctlError(self._why)
        try:
            return self._answers()
        except UnixctlError as error:
            self.close()
            self._why = f"{error}{self._stopped()}"
            self._silent_until = time.monotonic() + ASK_AGAIN_S
            raise UnixctlError(self._why) from None

    def flows(self, datapath: str) -> list[Flow]:
        """All flows of a datapath (``system@ovs-system``) as text. Raises UnixctlError.

        Call this only where there are at most MAX_FLOWS_DUMPED.
        """
        try:
            text = self._connected().ask("dpctl/dump-flows", "--names", datapath, timeout_s=DUMP_TIMEOUT_S)
        except UnixctlError as error:
            if not isinstance(error, Refused):
                self.close()
            raise
        return list(flows_in(text))

    def bridges(self) -> dict[tuple[str, str], str]:
        """The bridge of every port, by the names of datapath and port. Raises UnixctlError."""
        return bridges_in(self._connected().ask("dpif/show"))

    def threads(self) -> dict[str, int]:
        """How many threads it has, by name without number: handler, revalidator, pmd-c01/id: …"""
        found: dict[str, int] = {}
        try:
            threads = self._target.names(f"/proc/{self.pid}/task") if self.pid else []
        except OSError:
            threads = []
        comms = [f"/proc/{self.pid}/task/{thread}/comm" for thread in threads]
        self._target.ahead(Question("read", (comm,)) for comm in comms)
        for comm in comms:
            try:
                kind = self._target.read(comm).decode("utf-8", "replace").strip().rstrip("0123456789")
            except OSError:
                continue  # the thread ended meanwhile
            found[kind] = found.get(kind, 0) + 1
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._unixctl is not None:
            self._unixctl.close()
            self._unixctl = None

    def _find(self) -> None:
        running = ((directory, vswitchd_pid(directory, self._target)) for directory in self._directories)
        self._directory, pid = next(((where, pid) for where, pid in running if pid is not None), ("", None))
        if pid != self.pid:
            self.close()
            self.pid, self._silent_until = pid, 0.0
        if pid is None:
            raise UnixctlError("no ovs-vswitchd runs here")

    def _connected(self) -> Unixctl:
        if self._unixctl is None:
            self._unixctl = Unixctl(f"{self._directory}/ovs-vswitchd.{self.pid}.ctl", self._target)
        return self._unixctl

    def _answers(self) -> Answers:
        unixctl = self._connected()
        revalidation = revalidation_in(unixctl.ask("upcall/show"))
        answer_ms = unixctl.took_s * 1000
        counters = {}
        for name in _COUNTERS:
            try:
                counters[name] = int(unixctl.ask("coverage/read-counter", name))
            except (Refused, ValueError):
                continue  # since 2.13
        datapaths = []
        for full_name in revalidation:
            kind, _, name = full_name.partition("@")
            if kind == USERSPACE:
                datapaths.append(userspace_in(name, unixctl.ask("dpctl/show", "-s", full_name)))
        return Answers(answer_ms, counters, revalidation, tuple(datapaths))

    def _stopped(self) -> str:
        """The state of the process, if that explains why it does not answer (proc(5))."""
        try:
            status = self._target.read(f"/proc/{self.pid}/stat").decode("utf-8", "replace")
        except OSError:
            return ""
        state = status.rpartition(")")[2].split()[:1]
        words = {"T": "stopped (SIGSTOP)", "t": "stopped by a debugger", "D": "waiting for the kernel (D)"}
        return f"; its process is {words[state[0]]}" if state and state[0] in words else ""


def revalidation_in(text: str) -> dict[str, Revalidation]:
    """``upcall/show`` by the full name of the datapath (``system@ovs-system``)."""
    return {
        f"{kind}@{name}": Revalidation(int(dump_ms), int(limit))
        for kind, name, limit, dump_ms in _REVALIDATION.findall(text)
    }


def bridges_in(text: str) -> dict[tuple[str, str], str]:
    """``dpif/show``: datapath and port → bridge. Includes ports that only OpenFlow has (patches, tunnels)."""
    found = {}
    datapath, bridge = "", None
    for line in text.splitlines():
        if whole := _DATAPATH.match(line):
            datapath, bridge = whole[1], None
        elif heading := _BRIDGE.match(line):
            bridge = heading[1]
        elif bridge is not None and (member := _MEMBER.match(line)):
            found[datapath, member[1]] = bridge
    return found


def userspace_in(name: str, text: str) -> UserspaceDatapath:
    """``dpctl/show -s`` of one datapath. Raises UnixctlError when it cannot be parsed."""
    lookups = _LOOKUPS.search(text)
    if lookups is None:
        raise UnixctlError("dpctl/show: this version of netconsole cannot read the answer")
    ports = []
    for _, port, kind, *figures in _PORT.findall(text):
        counted = (None if figure == "?" else int(figure) for figure in figures)
        rx, rx_errors, rx_drops, tx, tx_errors, tx_drops, rx_bytes, tx_bytes = counted
        counts = (rx, tx, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_drops, tx_drops)
        ports.append(UserspacePort(port, kind or _PLAIN, counts))
    hits, misses, lost, flows = map(int, lookups.groups())
    return UserspaceDatapath(name, hits, misses, lost, flows, tuple(ports))


def flows_in(text: str) -> Iterator[Flow]:
    """``dpctl/dump-flows``, without the parts that every flow has."""
    for line in text.splitlines():
        found = _FLOW.match(line)
        if found:
            match = _NOISE.sub("", found["match"]).strip(",")
            yield Flow(match, found["actions"], int(found["packets"]), int(found["bytes"]))
