"""Reads the links of one network namespace (counters, state, carrier, root qdiscs) through what is open inside it."""

import errno
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Set, Tuple, Union

from netconsole_collector.sources.base import RowLabels, SourceRow
from netconsole_collector.sources.net.carrier import Carrier
from netconsole_collector.sources.net.link_state import Link, LinkTable, VethPeers, peer_of
from netconsole_collector.sources.net.qdiscs import NOQUEUE, Qdisc, QdiscReader, QueueWaits, handle_text, htb_rate

READ_EVERY = 60
"""Readings after which everything is read again, whatever the kernel has reported meanwhile."""
IDLE_QDISCS_EVERY = 10
"""Readings after which the qdiscs of an idle namespace are read again."""
COUNTS = (
    "rx_packets", "rx_bytes", "rx_errors", "rx_drops",
    "tx_packets", "tx_bytes", "tx_errors", "tx_drops",
    "qdisc_drops", "qdisc_requeues", "qdisc_overlimits",
    "carrier_changes", "carrier_losses", "lost_without_carrier", "lost_to_peer",
)  # fmt: skip
OF_QDISCS = ("qdisc_drops", "qdisc_requeues", "qdisc_overlimits", "lost_without_carrier", "lost_to_peer")
"""Those that are as old as the last reading of the qdiscs."""
_TX_DROPS = COUNTS.index("tx_drops")

DeviceCounts = Tuple[str, Tuple[int, ...]]
"""Name and the first eight of COUNTS."""


def parse_devices(text: str, known: Optional[Mapping[str, DeviceCounts]] = None) -> Dict[str, DeviceCounts]:
    """Every interface by its line (net/core/net-procfs.c, dev_seq_printf_stats).

    ``known``: the result of the last reading. The lines of idle interfaces are the same, and are not parsed again.
    """
    devices: Dict[str, DeviceCounts] = {}
    for line in text.split("\n")[2:]:  # splitlines would end a line within a name
        device = known.get(line) if known else None
        device = device or _device(line)
        if device is not None:
            devices[line] = device
    return devices


class _Said(NamedTuple):
    """The last reading of an interface, and what it was made of."""

    netns: str
    figures: Tuple[int, ...]
    link: Optional[Link]
    qdisc: Optional[Qdisc]
    peer: Optional[Tuple[str, str]]
    reading: SourceRow

    def is_of(
        self,
        netns: str,
        figures: Tuple[int, ...],
        link: Optional[Link],
        qdisc: Optional[Qdisc],
        peer: Optional[Tuple[str, str]],
    ) -> bool:
        """Whether it would be the same now: what has not changed are the same objects."""
        return (
            figures is self.figures
            and qdisc is self.qdisc
            and link is self.link
            and netns == self.netns
            and peer == self.peer
            and not self.reading[2].get("flaps")  # they go by after a time
        )


class NamespaceLinks:
    """See the module. It closes what it is given."""

    def __init__(self, inside: Any) -> None:
        self._inside = inside
        self._netlink = inside.netlink
        self._netlink.unasked = self._told
        self.table = LinkTable()
        """Its links by index."""
        self._by_name: Dict[str, Link] = {}
        self._carriers: Dict[int, Carrier] = {}
        self._qdisc_reader = QdiscReader()
        self._qdiscs: Dict[int, Qdisc] = {}
        self._waits = QueueWaits()
        self._htb_rates: Dict[int, Optional[int]] = {}
        self._text = b""
        self._lines: Dict[str, DeviceCounts] = {}
        self._last: Dict[str, _Said] = {}
        self._read_in = 0
        self._qdiscs_in = 0
        self._is_told = False
        self._has_moved = True

    def close(self) -> None:
        """Release the namespace."""
        self._inside.close()

    def read(self) -> None:
        """Links and their counters. Raises OSError."""
        self._read_in -= 1
        self._listen()
        if self._read_in <= 0:
            self._fill()
        text = self._inside.devices()
        if text != self._text:
            self._text, self._has_moved = text, True
            self._lines = parse_devices(text.decode("utf-8", "backslashreplace"), self._lines)
            self._is_told = self._is_told or self._by_name.keys() != self._names()
        if self._is_told:
            self._has_moved = True
            self._match_names()

    def read_qdiscs(self, now_ns: int) -> None:
        """Qdiscs and their classes. Raises OSError.

        Where no link has a queue and nothing has moved since, a qdisc that is new had nothing to do either.
        """
        is_due = self._is_due()
        self._qdiscs_in -= 1
        if not is_due:
            return
        self._qdiscs_in, self._has_moved = IDLE_QDISCS_EVERY, False
        self._qdiscs = {qdisc.ifindex: self._rated(qdisc) for qdisc in self._qdisc_reader.read(self._netlink)}
        self._waits.take(self._qdisc_reader.children, now_ns)

    def _is_due(self) -> bool:
        return self._qdiscs_in <= 1 or self._has_moved or any(one.kind != NOQUEUE for one in self._qdiscs.values())

    def readings(self, netns: str, now_ns: int, peers: VethPeers) -> Iterator[SourceRow]:
        """One of each interface. Of a link of which nothing is new it is the same as the last time."""
        last, self._last = self._last, {}
        for name, figures in self._lines.values():
            link = self._by_name.get(name)
            qdisc = self._qdiscs.get(link.index) if link is not None else None
            peer = peers.get((netns, link.index)) if link is not None else None
            known = last.get(name)
            if known is None or not known.is_of(netns, figures, link, qdisc, peer):
                labels: RowLabels = {
                    "device": name,
                    "netns": netns,
                    "kind": link.kind or None if link is not None else None,
                    "qdisc": None,
                    "shaper": None,
                }
                labels["peer"], labels["peer_netns"] = peer or (None, None)
                reading = self._reading(labels, figures, link, qdisc, now_ns)
                known = _Said(netns, figures, link, qdisc, peer, reading)
            self._last[name] = known
            yield known.reading

    def queues(self, netns: str) -> Iterator[SourceRow]:
        """One of each child qdisc and each class, as it was when qdiscs were read last."""
        names = {link.index: name for name, link in self._by_name.items()} if self._qdisc_reader.children else {}
        for one in self._qdisc_reader.children:
            if one.ifindex not in names:
                continue
            labels: RowLabels = {"device": names[one.ifindex], "netns": netns, "qdisc": one.kind}
            labels.update(handle=handle_text(one.handle), parent=handle_text(one.parent))
            waiting = {"backlog_packets": one.backlog_packets, "backlog_bytes": one.backlog_bytes}
            done = one.sent_packets, one.sent_bytes, one.drops, one.requeues, one.overlimits
            yield labels, done, {**waiting, "wait_ns": self._waits.of(one)}

    def _reading(
        self,
        labels: RowLabels,
        figures: Tuple[int, ...],
        link: Optional[Link],
        qdisc: Optional[Qdisc],
        now_ns: int,
    ) -> SourceRow:
        gauges: Dict[str, Union[int, float, None]] = {}
        done = (0, 0, 0)
        if qdisc is not None:
            labels["qdisc"], labels["shaper"] = qdisc.kind, qdisc.shaper
            done = (qdisc.drops, qdisc.requeues, qdisc.overlimits)
            gauges["backlog_packets"], gauges["backlog_bytes"] = qdisc.backlog_packets, qdisc.backlog_bytes
            gauges["qdisc_rate"] = qdisc.rate_bits
        if link is None:
            return labels, (*figures, *done, 0, 0, 0, 0), gauges
        carrier = self._carriers.get(link.index)
        drops = figures[_TX_DROPS] + done[0]
        if carrier is None:
            carrier = self._carriers[link.index] = Carrier(link, drops)
        carrier.take(link, drops, self.table.links, self._peer_of, now_ns)
        gauges.update(
            no_carrier=int(link.lacks_carrier),
            admin_down=int(not link.is_up),
            peer_down=carrier.peer_down,
            carrier_lost=carrier.carrier_lost,
            carrier_lost_to_peer=int(bool(carrier.carrier_lost and carrier.peer_down)),
            flaps=carrier.flaps,
        )
        states = (link.carrier_changes, link.carrier_losses, carrier.lost, carrier.lost_to_peer)
        return labels, (*figures, *done, *states), gauges

    def _rated(self, qdisc: Qdisc) -> Qdisc:
        if qdisc.kind != "htb":
            return qdisc
        if qdisc.ifindex not in self._htb_rates:
            self._htb_rates[qdisc.ifindex] = htb_rate(self._netlink, qdisc.ifindex)
        return qdisc._replace(rate_bits=self._htb_rates[qdisc.ifindex])

    def _peer_of(self, link: Link) -> Optional[Link]:
        return peer_of(link, self._netlink, self.table.links)

    def _told(self, kind: int, body: memoryview) -> None:
        self._is_told = True
        self.table.take(kind, body)

    def _listen(self) -> None:
        try:
            self._netlink.listen()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self._read_in = 0  # more was told than there was room for

    def _fill(self) -> None:
        self.table.fill(self._netlink)
        self._read_in = READ_EVERY
        self._is_told = True
        self._htb_rates.clear()

    def _names(self) -> Set[str]:
        return {name for name, _ in self._lines.values()}

    def _match_names(self) -> None:
        """Finds the link of every line; where one was renamed between two readings, all links are read again."""
        self._by_name = {link.name: link for link in self.table.links.values()}
        if self._by_name.keys() != self._names():
            self._fill()
            self._by_name = {link.name: link for link in self.table.links.values()}
        self._is_told = False
        for index in self._carriers.keys() - self.table.links.keys():
            del self._carriers[index]


def _device(line: str) -> Optional[DeviceCounts]:
    # A name may hold a colon (an alias); the figures never do.
    name, colon, figures = line.rpartition(":")
    numbers = figures.split()
    if not colon or len(numbers) < 12:
        return None
    receive, send = numbers[0:4], numbers[8:12]
    return name.lstrip(" "), tuple(int(side[i]) for side in (receive, send) for i in (1, 0, 2, 3))
