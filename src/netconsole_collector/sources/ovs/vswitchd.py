"""Asks ovs-vswitchd about revalidation, flow puts, threads, datapaths in user space, and flows as text."""

import re
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.ovs.unixctl import (
    PROGRAM_COMMS,
    LateAnswer,
    Refused,
    Unixctl,
    UnixctlError,
    running_vswitchd,
)

ASK_AGAIN_S = 5.0
"""How long not to ask again when it does not answer, because it is busy."""
SILENT_AFTER_S = 2.0
"""One answer may be late because a CPU is busy, ours or its. After so long, and twice asked, it does not answer."""
WAITS_LONG_S = 0.1
"""Its main thread waited so long for a CPU: it may have answered too late for that alone."""
USERSPACE = "netdev"
NAMELESS = ""
"""Stands for the threads that have no name of their own."""
_LONG_NAMES_FROM = 9000
"""Of the last thread's number: from some 10 000 on, names such as revalidator10000 are too long."""
MAX_FLOWS_DUMPED = 5000
"""With more flows than this no dump is made, because a dump blocks the main thread of ovs-vswitchd."""
DUMP_TIMEOUT_S = 1.0
FLOW_PUTS, FLOW_DELETES, EXECUTED = "dpif_flow_put", "dpif_flow_del", "dpif_execute"
"""Coverage counters (OVS lib/dpif.c). Every thread updates them about once per second."""
_COUNTERS = (FLOW_PUTS, FLOW_DELETES, EXECUTED)

_REVALIDATION = re.compile(
    r"^([^@\s]+)@([^\n]+):\n\s+flows\s*:.*?\(limit (\d+)\).*?dump duration : (\d+)ms", re.M | re.S
)
_LOOKUPS = re.compile(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)\s+flows: (\d+)")
_NO_COUNTS = re.compile(r"^, could not retrieve stats \([^)\n]*\)", re.M)
"""What it says of a port in place of its counters, without the end of the line: the next port stands behind it."""
_PORT = re.compile(r"^  port \d+: (.+?)(?: \(([\w-]+)(?:: .*)?\))?$", re.M)
"""Only a port of a special type may have a space in its name; of a plain one the kernel allows none."""
_COUNTS = re.compile(
    r"\s+RX packets:(\d+|\?) errors:(\d+|\?) dropped:(\d+|\?).*\n"
    r"    TX packets:(\d+|\?) errors:(\d+|\?) dropped:(\d+|\?).*\n"
    r"(?:    collisions:.*\n)?"
    r"    RX bytes:(\d+|\?).*?TX bytes:(\d+|\?)"
)
"""A counter that the type of port lacks is shown as a question mark (OVS lib/dpctl.c, print_stat)."""
_FLOW = re.compile(r"^(?P<match>.*), packets:(?P<packets>\d+), bytes:(?P<bytes>\d+), .*?actions:(?P<actions>.*)$")
_DATAPATH = re.compile(r"^[^@\s]+@(.+): hit:\d+ missed:\d+")
_BRIDGE = re.compile(r"^  (\S.*):$")
_MEMBER = re.compile(r"^    (\S.*?) (\d+|none)/(?:\d+|none): \(")
"""A name may hold spaces, colons and brackets."""
_PLAIN = "netdev"
"""A port of no special type, which dpctl does not name."""
_NOISE = re.compile(
    r"recirc_id\(0\),?|packet_type\(ns=0,id=0\),?|eth_type\(0x(?:0800|86dd|0806)\),(?=ipv[46]|arp)|\(frag=no\)|,frag=no"
)
"""Parts that every flow has, or that another part implies."""

_Answer = TypeVar("_Answer")


class Revalidation(NamedTuple):
    """How long the last revalidation of a datapath took, and the flow limit that follows from it."""

    dump_ms: int
    flow_limit: int


class UserspacePort(NamedTuple):
    """As :class:`netconsole.sources.ovs.netlink.Vport`, of a datapath in user space.

    None: this type of port lacks that counter.
    """

    name: str
    type: str
    counts: Tuple[Optional[int], ...]


class UserspaceDatapath(NamedTuple):
    """A datapath of ovs-vswitchd itself (netdev, DPDK)."""

    name: str
    hits: int
    misses: int
    lost: int
    flows: int
    ports: Tuple[UserspacePort, ...]


class Flow(NamedTuple):
    """One flow of a datapath as text."""

    match: str
    actions: str
    packets: int
    bytes: int


class Answers(NamedTuple):
    """The answers of ovs-vswitchd. ``counters``: those of :data:`_COUNTERS` that it has."""

    answer_ms: float
    counters: Dict[str, int]
    revalidation: Dict[str, Revalidation]
    datapaths: Tuple[UserspaceDatapath, ...]


class Vswitchd:
    """The ovs-vswitchd that runs in one of these directories. Not thread-safe."""

    def __init__(self, directories: Sequence[str], host: Here = HERE) -> None:
        self._directories = directories
        self._host = host
        self._unixctl: Optional[Unixctl] = None
        self._asked_again_at = 0.0
        self._why = ""
        self._unanswered = 0
        self._answered_at: Optional[float] = None
        self._books: Optional[Tuple[int, int]] = None
        """Of its main thread when it did not answer last: ns on a CPU, and ns that it waited for one."""
        self.pid: Optional[int] = None
        """The process; None when none runs."""
        self.is_silent: Optional[bool] = None
        """Whether it does not answer; None: not known yet."""
        self.ended: Optional[int] = None
        """The process that ran before, where none runs now."""

    def read(self) -> Answers:
        """Ask for everything that ovs_flows shows. Raises UnixctlError, as :meth:`asked`."""
        return self.asked(self._answers)

    def asked(self, ask: Callable[[Unixctl], _Answer]) -> _Answer:
        """What ``ask`` is answered. Raises UnixctlError when it does not run, or does not answer (see ASK_AGAIN_S).

        LateAnswer of an answer that only has not come yet: whether it is silent is not known.
        """
        self._find()
        if time.monotonic() < self._asked_again_at:
            raise UnixctlError(self._why)
        try:
            answers = ask(self._connected())
        except UnixctlError as error:
            self.close()
            self._not_answered(str(error))
            is_late = isinstance(error, LateAnswer) and not self.is_silent
            raise (LateAnswer if is_late else UnixctlError)(self._why) from None
        self.is_silent, self._unanswered, self._answered_at, self._books = False, 0, time.monotonic(), None
        return answers

    @property
    def silent_s(self) -> Optional[float]:
        """The age of its last answer; None while it answers, and where it never did."""
        return None if self.is_silent is False or self._answered_at is None else time.monotonic() - self._answered_at

    def _not_answered(self, error: str) -> None:
        self._unanswered += 1
        stopped = self._stopped()
        self._why = f"{error}{stopped}"
        has_waited, since_s = self._waited(), self.silent_s
        is_long = not has_waited and self._unanswered > 1 and (since_s is None or since_s >= SILENT_AFTER_S)
        self.is_silent = True if stopped or is_long else None
        if self.is_silent:
            self._asked_again_at = time.monotonic() + ASK_AGAIN_S

    def _waited(self) -> bool:
        """Whether its main thread, which answers, has waited for a CPU rather than run since the last time."""
        before, self._books = self._books, None
        try:
            text = self._host.read(f"/proc/{self.pid}/task/{self.pid}/schedstat").decode("ascii", "replace")
        except OSError:
            return False
        books = [int(word) for word in text.split() if word.isdigit()]
        if len(books) != len(("ran_ns", "waited_ns", "runs")):
            return False
        self._books = books[0], books[1]
        ran_ns, waited_ns = (now - then for now, then in zip(self._books, before or self._books))
        return waited_ns > max(ran_ns, WAITS_LONG_S * 1e9)

    def flows(self, datapath: str) -> List[Flow]:
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

    def bridges(self) -> Dict[Tuple[str, str], str]:
        """The bridge of every port, by the names of datapath and port. Raises UnixctlError."""
        return bridges_in(self._connected().ask("dpif/show"))

    def threads(self) -> Dict[str, int]:
        """How many threads it has, by name without number: handler, revalidator, pmd-c01/id: …

        A name of more than 15 bytes (revalidator10000) is refused: the thread keeps that of the process, NAMELESS here.
        Threads are numbered in the order in which they begin. The one that writes logs has no name, ever.
        """
        found: Dict[str, int] = {}
        last = 0
        try:
            threads = self._host.names(f"/proc/{self.pid}/task") if self.pid else []
        except OSError:
            threads = []
        comms = [f"/proc/{self.pid}/task/{thread}/comm" for thread in threads]
        for thread, comm in zip(threads, comms):
            try:
                name = self._host.read(comm).decode("utf-8", "replace").strip()
            except OSError:
                continue  # the thread ended meanwhile
            is_nameless = name in PROGRAM_COMMS and thread != str(self.pid)
            kind = NAMELESS if is_nameless else name.rstrip("0123456789")
            number = name[len(kind) :] if not is_nameless else ""
            last = max(last, int(number or 0))
            found[kind] = found.get(kind, 0) + 1
        if last < _LONG_NAMES_FROM:
            found.pop(NAMELESS, None)
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._unixctl is not None:
            self._unixctl.close()
            self._unixctl = None

    def _find(self) -> None:
        found = running_vswitchd(self._directories, self._host)
        self._control, pid = (found.control, found.pid) if found else ("", None)
        if pid != self.pid:
            self.close()
            self.ended = self.pid if pid is None else None
            self.pid, self._asked_again_at, self._unanswered, self.is_silent, self._books = pid, 0.0, 0, None, None
        if pid is None:
            raise UnixctlError("ovs-vswitchd has ended" if self.ended else "no ovs-vswitchd runs here")

    def _connected(self) -> Unixctl:
        if self._unixctl is None:
            self._unixctl = Unixctl(self._control, self._host)
        return self._unixctl

    def _answers(self, unixctl: Unixctl) -> Answers:
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
            status = self._host.read(f"/proc/{self.pid}/stat").decode("utf-8", "replace")
        except OSError:
            return ""
        state = status.rpartition(")")[2].split()[:1]
        words = {"T": "stopped (SIGSTOP)", "t": "stopped by a debugger", "D": "waiting for the kernel (D)"}
        return f"; its process is {words[state[0]]}" if state and state[0] in words else ""


def revalidation_in(text: str) -> Dict[str, Revalidation]:
    """``upcall/show`` by the full name of the datapath (``system@ovs-system``)."""
    return {
        f"{kind}@{name}": Revalidation(int(dump_ms), int(limit))
        for kind, name, limit, dump_ms in _REVALIDATION.findall(text)
    }


class BridgePort(NamedTuple):
    """A port of a bridge, by its number in OpenFlow."""

    datapath: str
    bridge: str
    port: str
    number: str


def members_in(text: str) -> Iterator[BridgePort]:
    """``dpif/show``. Includes ports that only OpenFlow has (patches, tunnels)."""
    datapath, bridge = "", None
    for line in text.splitlines():
        whole, heading, member = _DATAPATH.match(line), _BRIDGE.match(line), _MEMBER.match(line)
        if whole:
            datapath, bridge = whole.group(1), None
        elif heading:
            bridge = heading.group(1)
        elif bridge is not None and member:
            yield BridgePort(datapath, bridge, member.group(1), member.group(2))


def bridges_in(text: str) -> Dict[Tuple[str, str], str]:
    """``dpif/show``: datapath and port → bridge."""
    return {(one.datapath, one.port): one.bridge for one in members_in(text)}


def userspace_in(name: str, text: str) -> UserspaceDatapath:
    """``dpctl/show -s`` of one datapath. Raises UnixctlError when it cannot be parsed."""
    lookups = _LOOKUPS.search(text)
    if lookups is None:
        raise UnixctlError("dpctl/show: this version of netconsole cannot read the answer")
    ports = []
    text = _NO_COUNTS.sub("\n", text)
    for heading in _PORT.finditer(text):
        found = _COUNTS.match(text, heading.end())
        counted = (None if figure == "?" else int(figure) for figure in found.groups()) if found else [None] * 8
        rx, rx_errors, rx_drops, tx, tx_errors, tx_drops, rx_bytes, tx_bytes = counted
        counts = (rx, tx, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_drops, tx_drops)
        ports.append(UserspacePort(heading[1], heading[2] or _PLAIN, counts))
    hits, misses, lost, flows = map(int, lookups.groups())
    return UserspaceDatapath(name, hits, misses, lost, flows, tuple(ports))


def flows_in(text: str) -> Iterator[Flow]:
    """``dpctl/dump-flows``, without the parts that every flow has."""
    for line in text.splitlines():
        found = _FLOW.match(line)
        if found:
            match = _NOISE.sub("", found["match"]).strip(",")
            yield Flow(match, found["actions"], int(found["packets"]), int(found["bytes"]))
