"""link_rates: packets, bytes, errors and drops of every interface of this network namespace, and of its root qdisc.

/proc/net/dev and one qdisc dump. 1000 interfaces, 100 of them busy, cost about 1 % of one core at one reading a second;
where qdiscs are so many that they alone cost more, they are read less often.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, TypeAlias

from netconsole.sources.base import FrameMaker, Reading, RowMaker, SourceError
from netconsole.sources.netlink import Netlink, Qdisc, qdiscs
from netconsole.telemetry.frames import AnyFrame

DEVICES = Path("/proc/net/dev")
MAX_ROWS = 4096
MAX_SHARE = 0.01
"""Of one core: when a qdisc dump takes longer than this share of an interval, it is made less often."""
MAX_EVERY = 60
NAMES_EVERY = 60
"""Qdisc readings after which the names of interfaces are looked up in any case: two may have changed theirs."""
COUNTS = (
    "rx_packets", "rx_bytes", "rx_errors", "rx_drops",
    "tx_packets", "tx_bytes", "tx_errors", "tx_drops",
    "qdisc_drops", "qdisc_requeues", "qdisc_overlimits",
)  # fmt: skip
_WITHOUT_QDISC = (0, 0, 0)


Device: TypeAlias = tuple[str, tuple[int, ...]]
"""Name and the first eight of COUNTS."""


def parse_devices(text: str, known: Mapping[str, Device] | None = None) -> dict[str, Device]:
    """Every interface by its line (net/core/net-procfs.c, dev_seq_printf_stats).

    ``known`` is what the last reading gave: of a thousand interfaces most stand still, and their lines are the same.
    """
    devices: dict[str, Device] = {}
    for line in text.split("\n")[2:]:  # splitlines would end a line within a name
        device = known.get(line) if known else None
        device = device or _device(line)
        if device is not None:
            devices[line] = device
    return devices


class Links:
    """See the module."""

    name: ClassVar[str] = "link_rates"

    def __init__(self, devices: Path = DEVICES) -> None:
        self._devices = devices
        self._rows = RowMaker(COUNTS, MAX_ROWS)
        self._netlink: Netlink | None = None
        self._names: dict[int, str] = {}
        self._named: set[str] = set()
        self._names_in = 0
        self._known: dict[str, Qdisc] = {}
        self._lines: dict[str, Device] = {}
        self._wait = 0
        self.qdiscs_every = 1
        """Qdiscs are read at every so many intervals: 1, more only where there are very many."""

    def open(self) -> None:
        """Raises SourceError when /proc/net/dev cannot be read."""
        self._read_devices()
        try:
            self._netlink = Netlink(socket.NETLINK_ROUTE)
        except OSError as error:
            raise SourceError(f"no netlink socket: {error.strerror}") from None

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """One row per interface."""
        self._lines = parse_devices(self._read_devices(), self._lines)
        self._read_qdiscs(make.interval_ns / 1e9)
        rows, full, omitted = self._rows.rows(self._reading(name, figures) for name, figures in self._lines.values())
        return [make.table(self.name, "links", rows, full, omitted)]

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _read_devices(self) -> str:
        try:
            return self._devices.read_text("utf-8", "backslashreplace")
        except OSError as error:
            raise SourceError(f"{self._devices}: {error.strerror}") from None

    def _reading(self, name: str, figures: tuple[int, ...]) -> Reading:
        qdisc = self._known.get(name)
        if qdisc is None:
            return {"device": name, "qdisc": None}, figures + _WITHOUT_QDISC, {}
        return (
            {"device": name, "qdisc": qdisc.kind},
            (*figures, qdisc.drops, qdisc.requeues, qdisc.overlimits),
            {"backlog_packets": qdisc.backlog_packets, "backlog_bytes": qdisc.backlog_bytes},
        )

    def _read_qdiscs(self, interval_s: float) -> None:
        if self._netlink is None:
            return
        self._wait -= 1
        if self._wait > 0:
            return
        began = time.thread_time()
        try:
            found = qdiscs(self._netlink)
            self._name(found)
        except OSError as error:
            raise SourceError(f"qdiscs cannot be read: {error.strerror or error}") from None
        self._known = {self._names.get(qdisc.ifindex, ""): qdisc for qdisc in found}
        took = time.thread_time() - began
        self.qdiscs_every = min(MAX_EVERY, 1 + int(took / (MAX_SHARE * max(interval_s, 0.001))))
        self._wait = self.qdiscs_every

    def _name(self, found: list[Qdisc]) -> None:
        """Looks up names again when interfaces came, went or were renamed: it costs more than reading the qdiscs."""
        named = {name for name, _ in self._lines.values()}
        self._names_in -= 1
        if named == self._named and self._names_in > 0 and all(qdisc.ifindex in self._names for qdisc in found):
            return
        self._named, self._names_in = named, NAMES_EVERY
        self._names = {
            index: os.fsencode(name).decode("utf-8", "backslashreplace") for index, name in socket.if_nameindex()
        }


def _device(line: str) -> Device | None:
    # A name may hold a colon (an alias); the figures never do.
    name, colon, figures = line.rpartition(":")
    numbers = figures.split()
    if not colon or len(numbers) < 12:
        return None
    receive, send = numbers[0:4], numbers[8:12]
    return name.lstrip(" "), tuple(int(side[i]) for side in (receive, send) for i in (1, 0, 2, 3))
