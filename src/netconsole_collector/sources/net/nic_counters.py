"""nic_counters: what network devices and their drivers count as lost (ethtool -S), in the own network namespace.

Names differ from driver to driver: nic_losses knows those that mean a loss. They are summed over
all queues of a device (rxN_drops). In mode details all counters that have moved are shown, each queue by itself.
Layouts: include/uapi/linux/ethtool.h.
"""

import struct
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.primitives.netlink import Netlink
from netconsole_collector.sources.base import (
    Json,
    KernelSource,
    Pace,
    RowLabels,
    RowMaker,
    SourceError,
    SourceReading,
    SourceRow,
    printable,
)
from netconsole_collector.sources.net.link_state import LinkTable
from netconsole_collector.sources.net.nic_losses import LossMeaning, meaning, of_any_queue

NETLINK_ROUTE = 0
GSTRINGS, GSTATS, GSSET_INFO = 0x1B, 0x1D, 0x37
SS_STATS = 1
"""ETH_SS_STATS: the set of names that GSTATS gives the values of."""
NAME_BYTES = 32
MAX_COUNTERS = 4096
"""Of a device. A NIC with 128 queues has about 3000; what has more is left out."""
MAX_DEVICES = 128
MAX_ROWS = 8192
SEARCH_EVERY = 10
"""Intervals between two searches for devices, and for queues that they have got since."""
_COUNT = struct.Struct("=IIQI")
_NAMES = struct.Struct("=III")
_VALUES = struct.Struct("=II")


class NicDevice(NamedTuple):
    """A device with so many counters. ``places``: where each of them is, by name; of two with one name the first.

    ``losses``: by the name of any queue, what it means and where it is for each queue.
    """

    name: str
    count: int  # type: ignore[assignment]
    places: Mapping[str, int]
    losses: Mapping[str, Tuple[LossMeaning, Sequence[int]]]

    @property
    def question(self) -> bytes:
        """The request for all values."""
        return _VALUES.pack(GSTATS, self.count).ljust(_VALUES.size + 8 * self.count, b"\0")


class NicCounters(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._netlink: Optional[Netlink] = None
        self._losses = RowMaker(("count",), MAX_ROWS)
        self._all = RowMaker(("count",), MAX_ROWS)
        self._devices: List[NicDevice] = []
        self._last: Dict[str, Tuple[NicDevice, Sequence[int]]] = {}
        self._search_in = 0
        self._pace = Pace()
        """Some NICs ask their firmware."""

    def open(self) -> None:
        """Raises SourceError when the devices cannot be listed."""
        self._names()

    def read(self, reading: SourceReading) -> List[Json]:
        """One row for each counter of a loss that has moved since the first reading."""
        self._search()
        self._read_values(reading)
        found = [reading.table("nic_counters", "losses", _moved(self._losses, self._readings(is_all=False)))]
        if self.mode == "details":
            found.append(reading.table("nic_counters", "counters", _moved(self._all, self._readings(is_all=True))))
        return found

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _readings(self, is_all: bool) -> Iterator[SourceRow]:
        for device, values in self._last.values():
            name = printable(device.name)
            if is_all:
                for counter, place in device.places.items():
                    yield {"device": name, "counter": counter}, (values[place],), {}
                continue
            for counter, (known, places) in device.losses.items():
                labels: RowLabels = {
                    "device": name,
                    "counter": counter,
                    "class": known.kind,
                    "meaning": known.text,
                }
                yield labels, (sum(values[place] for place in places),), {}

    def _read_values(self, reading: SourceReading) -> None:
        if not self._pace.is_due():
            return
        began = self._host.cpu_s()
        read: Dict[str, Tuple[NicDevice, Sequence[int]]] = {}
        for one in self._devices:
            values = self._values(one)
            if values is None:
                self._search_in = 0  # it is gone, or has other queues by now
            else:
                read[one.name] = (one, values)
        self._last = read
        self._pace.took(self._host.cpu_s() - began, reading.interval_ns)

    def _values(self, device: NicDevice) -> Optional[Sequence[int]]:
        try:
            answer = self._host.ethtool(device.name, device.question)
        except OSError:
            return None
        count = _VALUES.unpack_from(answer)[1]
        return struct.unpack_from(f"={count}Q", answer, _VALUES.size) if count == device.count else None

    def _search(self) -> None:
        self._search_in -= 1
        if self._search_in > 0:
            return
        self._search_in = SEARCH_EVERY
        names = self._names()
        asked = _COUNT.pack(GSSET_INFO, 0, 1 << SS_STATS, 0)
        counts = {name: self._count(name, asked) for name in names}
        known = {one.name: one for one in self._devices}
        wanted = [name for name, count in counts.items() if 0 < count <= MAX_COUNTERS][:MAX_DEVICES]
        new = [name for name in wanted if name not in known or known[name].count != counts[name]]
        made = {name: self._device(name, counts[name]) for name in new}
        found = (made[name] if name in made else known[name] for name in wanted)
        self._devices = [one for one in found if one is not None]

    def _names(self) -> List[str]:
        try:
            if self._netlink is None:
                self._netlink = self._host.netlink(NETLINK_ROUTE)
            links = LinkTable()
            links.fill(self._netlink)
        except OSError as error:
            raise SourceError(f"network devices cannot be listed: {error.strerror or error}") from None
        return [link.name for link in links.links.values()]

    def _count(self, name: str, asked: bytes) -> int:
        """How many counters a device has; 0 where its driver has none."""
        try:
            _, _, mask, count = _COUNT.unpack_from(self._host.ethtool(name, asked))
        except OSError:
            return 0
        return int(count) if mask else 0

    def _device(self, name: str, count: int) -> Optional[NicDevice]:
        try:
            answer = self._host.ethtool(name, _names_question(count))
        except OSError:
            return None
        if _NAMES.unpack_from(answer)[2] != count:
            return None  # it has got other queues meanwhile
        places: Dict[str, int] = {}
        losses: Dict[str, Tuple[LossMeaning, List[int]]] = {}
        for place in range(count):
            at = _NAMES.size + NAME_BYTES * place
            counter = printable(_text(answer[at : at + NAME_BYTES]))
            known = meaning(counter)
            if known is not None and counter not in places:
                losses.setdefault(of_any_queue(counter), (known, []))[1].append(place)
            places.setdefault(counter, place)
        return NicDevice(name, count, places, losses)


def _names_question(count: int) -> bytes:
    return _NAMES.pack(GSTRINGS, SS_STATS, count).ljust(_NAMES.size + NAME_BYTES * count, b"\0")


def _text(name: bytes) -> str:
    return name.split(b"\0", 1)[0].decode("ascii", "backslashreplace").strip()


def _moved(maker: RowMaker, readings: Iterator[SourceRow]) -> Tuple[List[Json], bool, int]:
    rows, full, omitted = maker.rows(readings)
    return [row for row in rows if row["counts"]["count"]["total"]], full, omitted
