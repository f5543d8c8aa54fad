"""link_rates from made-up messages of the kernel: names, counts and queueing disciplines of one namespace's links."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from netconsole.telemetry.frames import AnyFrame, Row, Status, Table
from netconsole_collector.primitives.here import Here
from netconsole_collector.primitives.netlink import Netlink, Unasked
from netconsole_collector.sources import base
from netconsole_collector.sources.base import Pace, SourceError
from netconsole_collector.sources.namespaces import MAX_NAMESPACES
from netconsole_collector.sources.net import link_state
from netconsole_collector.sources.net.link_state import RTM_DELLINK, RTM_NEWLINK, Link
from netconsole_collector.sources.net.links import Links
from netconsole_collector.sources.net.namespace_links import COUNTS, READ_EVERY, NamespaceLinks, parse_devices
from netconsole_collector.sources.net.qdiscs import Qdisc
from tests.support.rtnetlink import attribute, link_message, number, qdisc_message
from tests.support.sources import read_of

END_OF_LINE = "\x1c\x1d\x1e\x85\u2028\u2029"
"""What Python takes for one, and the kernel for a letter of an interface's name (dev_valid_name)."""
DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
[bold]x:    5       6    7    8    0     0          0         0        9      10   11   12    0     0       0          0
 eth0:1:  50       6    7    8    0     0          0         0        9      10   11   12    0     0       0          0
"""


def rows(frames: Sequence[AnyFrame]) -> dict[tuple[object, ...], Row]:
    """The rows of the table, by device and namespace."""
    (table,) = [frame for frame in frames if isinstance(frame, Table)]
    return {(row.labels["device"], row.labels["netns"]): row for row in table.rows}


@pytest.mark.proves("link_rates", "tables.links.{rx_packets,rx_bytes,rx_errors,rx_drops,tx_bytes,tx_errors,tx_drops}")
def test_interfaces_are_read_whatever_they_are_called() -> None:
    read = dict(parse_devices(DEVICES).values())
    assert read["lo"] == (10, 1000, 1, 2, 20, 2000, 3, 4)
    assert list(read) == ["lo", "[bold]x", "eth0:1"]
    received = {"rx_packets": 10, "rx_bytes": 1000, "rx_errors": 1, "rx_drops": 2}
    sent = {"tx_packets": 20, "tx_bytes": 2000, "tx_errors": 3, "tx_drops": 4}
    assert dict(zip(COUNTS, read["lo"], strict=False)) == received | sent


def test_a_name_cannot_pass_for_another_interface() -> None:
    text = DEVICES + "\n".join(f" x{end}eth0:" + DEVICES.splitlines()[-1].partition(":1:")[2] for end in END_OF_LINE)
    names = [name for name, _ in parse_devices(text).values()]
    assert names[3:] == [f"x{end}eth0" for end in END_OF_LINE]


class Kernel:
    """What the kernel says of the links of one namespace, in place of netlink and /proc."""

    def __init__(self, tmp_path: Path) -> None:
        self.names: dict[int, bytes] = {}
        self.more: dict[int, tuple[bytes, ...]] = {}
        self.changed: dict[int, Link] = {}
        self.told: list[tuple[int, memoryview]] = []
        self.lost_some = False
        self.kind = "kind{}"
        self.queue = 1, 2, 4, 5
        self.drops = 0
        self.devices = tmp_path / "dev"
        self.devices.write_text(DEVICES)
        kernel = self

        class Talks(Netlink):
            def __init__(self) -> None:
                self.unasked: Unasked | None = None

            def listen(self) -> bool:
                if kernel.lost_some:
                    raise OSError(errno.ENOBUFS, "no room")
                for kind, body in kernel.told:
                    assert self.unasked is not None
                    self.unasked(kind, body)
                return bool(kernel.told)

            def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
                if kind == link_state.RTM_GETLINK:
                    kernel.fills += 1
                    named = kernel.names.items()
                    return (link_message(index, name, True, True, *kernel.more.get(index, ())) for index, name in named)
                queue = kernel.queue
                kinds = ((index, kernel.kind.format(index)) for index in kernel.names)
                return (qdisc_message(index, kind, drops=kernel.drops, queue=queue) for index, kind in kinds)

            def close(self) -> None: ...

        self.fills = 0
        self.netlink = Talks()

    def links(self, tmp_path: Path) -> Links:
        """link_rates of this namespace alone."""
        return Links(Alone(tmp_path / "nothing", self))

    def name(self, names: dict[int, bytes]) -> None:
        """The interfaces have these names now, in /proc and in what netlink is asked for."""
        self.names = names
        heading, line = DEVICES.splitlines()[:2], DEVICES.splitlines()[2].partition("lo")[2].encode()
        lines = [*(one.encode() for one in heading), *(b"  " + name + line for name in names.values())]
        self.devices.write_bytes(b"\n".join(lines) + b"\n")


class InKernel:
    """The own namespace of a made-up kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.netlink = kernel.netlink
        self.devices = kernel.devices.read_bytes

    def close(self) -> None: ...


class Alone(Here):
    """A host without any other namespace."""

    def __init__(self, root: Path, kernel: Kernel) -> None:
        super().__init__(root)
        self._kernel = kernel

    def own_namespace(self) -> InKernel:  # type: ignore[override]
        return InKernel(self._kernel)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def kinds(links: Links) -> dict[object, object]:
    """The qdisc of every interface that is sent; that of interface 1 is kind1."""
    return {device: row.labels["qdisc"] for (device, _), row in rows(read_of(links)).items()}


def test_a_qdisc_is_shown_at_its_interface_whatever_that_is_called_now(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({1: b"eth0", 2: b"tap0"})
    assert kinds(links) == {"eth0": "kind1", "tap0": "kind2"}
    kernel.name({1: b"old", 2: b"eth0"})
    assert kinds(links) == {"old": "kind1", "eth0": "kind2"}
    kernel.name({2: b"eth0", 3: b"\xff"})
    assert kinds(links) == {"\\xff": "kind3"}, "eth0 has not changed"


def test_two_interfaces_that_change_names_are_told_apart(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({1: b"a", 2: b"b"})
    kinds(links)
    kernel.name({1: b"b", 2: b"a"})
    kernel.told = [(RTM_NEWLINK, link_message(1, b"b")), (RTM_NEWLINK, link_message(2, b"a"))]
    assert kinds(links) == {"a": "kind2", "b": "kind1"}
    kernel.told = []
    kernel.name({1: b"a", 2: b"b"})  # and nobody tells
    found: dict[object, object] = {}
    for _ in range(READ_EVERY + 1):
        found |= kinds(links)
    assert found == {"a": "kind1", "b": "kind2"}


def test_links_are_read_again_where_the_kernel_had_to_leave_something_out(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({1: b"a"})
    for _ in range(3):
        kinds(links)
    assert kernel.fills == 1
    kernel.lost_some = True
    kinds(links)
    assert kernel.fills == 2


def test_counters_are_counted_from_the_first_reading(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    first = rows(read_of(links))
    assert first["lo", "host"].counts["rx_packets"].total == 0
    kernel.devices.write_text(DEVICES.replace("  1000      10 ", "  1500      17 "))
    second = rows(read_of(links))
    assert list(second) == [("lo", "host")]
    counts = second["lo", "host"].counts
    assert (counts["rx_packets"].delta, counts["rx_bytes"].total) == (7, 500)
    links.close()


@pytest.mark.proves(
    "link_rates", "tables.links.{backlog_packets,backlog_bytes,qdisc_requeues,qdisc_overlimits}", "modes.summary"
)
def test_each_figure_of_a_qdisc_is_its_own(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({7: b"eth0"})
    read_of(links)
    kernel.queue = 31, 47_000, 4 + 600, 5 + 8_000
    found: list[Row] = []
    while not found:  # qdiscs of a link that stands still are read again now and then
        found = [row for (device, _), row in rows(read_of(links)).items() if device == "eth0"]
    (row,) = found
    assert (row.gauges["backlog_packets"], row.gauges["backlog_bytes"]) == (31, 47_000)
    assert (row.counts["qdisc_requeues"].total, row.counts["qdisc_overlimits"].total) == (600, 8_000)
    links.close()


def test_what_is_lost_without_a_carrier_is_of_the_device_and_of_its_qdisc(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({7: b"eth0"})
    read_of(links)
    kernel.told = [(RTM_NEWLINK, link_message(7, b"eth0", True, False))]
    kernel.drops = 5
    kernel.devices.write_bytes(kernel.devices.read_bytes().replace(b" 20    3    4 ", b" 20    3    6 "))
    row = rows(read_of(links))["eth0", "host"]
    assert (row.counts["tx_drops"].delta, row.counts["qdisc_drops"].delta) == (2, 5)
    assert row.counts["lost_without_carrier"].delta == 7
    gauges = {name: row.gauges[name] for name in ("no_carrier", "admin_down", "carrier_lost", "carrier_lost_to_peer")}
    assert gauges == {"no_carrier": 1, "admin_down": 0, "carrier_lost": 1, "carrier_lost_to_peer": 0}
    links.close()


def test_each_figure_of_a_class_is_its_own(kernel: Kernel) -> None:
    kernel.name({7: b"eth0"})
    inside = NamespaceLinks(InKernel(kernel))
    inside.read()
    known = Qdisc(7, "htb class", 31, 47_000, 3, 4, 5, handle=0x10010, parent=0x10001, sent_packets=9, sent_bytes=900)
    inside._qdisc_reader.children = [known, known._replace(ifindex=8)]
    [(labels, counts, gauges)] = inside.queues("blue")
    assert labels == {"device": "eth0", "netns": "blue", "qdisc": "htb class", "handle": "1:10", "parent": "1:1"}
    assert (*counts,) == (9, 900, 3, 4, 5)
    assert gauges == {"backlog_packets": 31, "backlog_bytes": 47_000, "wait_ns": None}


def test_a_whole_reading_has_what_is_read_less_often(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MAX_SHARE", 1e-12)
    source = kernel.links(tmp_path)
    source.open()
    kernel.name({7: b"eth0"})
    read_of(source)
    assert source.pace.every == base.MAX_EVERY
    kernel.queue = 31, 47_000, 4 + 600, 5 + 8_000
    assert "eth0" not in {device for device, _ in rows(read_of(source))}
    assert rows(read_of(source, is_whole=True))["eth0", "host"].gauges["backlog_packets"] == 31
    source.close()


def test_what_qdiscs_dropped_since_they_were_read_last_has_the_time_of_it(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, second = kernel.links(tmp_path), 1_000_000_000
    kernel.name({7: b"eth0"})
    source.open()
    read_of(source, second)
    found = []
    for every in (3, 1, 4):
        for turn in range(every):
            kernel.drops += 10
            monkeypatch.setattr(Pace, "is_due", lambda *_, is_last=turn == every - 1: is_last)
            row = rows(read_of(source, second, is_whole=False)).get(("eth0", "host"))
        assert row is not None
        count = row.counts["qdisc_drops"]
        found.append((count.delta, count.interval_ns, row.interval_ns, row.counts["tx_packets"].interval_ns))
    source.close()
    assert found == [(30, 3 * second, None, None), (10, None, None, None), (40, 4 * second, None, None)]


def test_namespaces_that_are_left_out_are_said_once(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    said: list[tuple[str, str | None]] = []
    for left_out in (0, 3, 3, 0):
        links._namespaces.left_out, links._namespaces._may_enter = left_out, False
        said += [(one.state, one.why) for one in read_of(links) if isinstance(one, Status)]
    why = f"links of 3 more network namespaces are left out: netconsole reads {MAX_NAMESPACES} at most"
    assert said == [("degraded", why), ("attached", None)]


def test_links_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    class Nowhere(Here):
        def own_namespace(self) -> InKernel:  # type: ignore[override]
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    with pytest.raises(SourceError, match=r"^links cannot be read: No such file or directory$"):
        Links(Nowhere(tmp_path)).open()


@pytest.mark.parametrize(
    ("cost_s", "interval_s", "every"), [(0.0099, 1, 1), (0.025, 1, 3), (0.05, 2, 3), (99.0, 1, 60)]
)
def test_qdiscs_are_read_in_a_hundredth_of_a_core(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost_s: float, interval_s: int, every: int
) -> None:
    spent_s, found = [0.0], list[float]()
    source = kernel.links(tmp_path)
    interval_ns = interval_s * 1_000_000_000

    def read_qdiscs(*_: object) -> None:
        spent_s[0] += cost_s

    monkeypatch.setattr(Alone, "cpu_s", lambda _: spent_s[0])
    monkeypatch.setattr(NamespaceLinks, "read_qdiscs", read_qdiscs)
    source.open()
    assert source.pace.every == 1
    for _ in range(every + 1):
        read_of(source, interval_ns)
        found.append(spent_s[0])
    assert found == [cost_s] * every + [2 * cost_s] and source.pace.every == every
    source.close()


def test_the_ends_of_a_veth_and_kinds_are_told_until_one_of_them_has_gone(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    veth = attribute(18 | 0x8000, attribute(1, b"veth\0"))
    kernel.more = {1: (veth, number(5, 2)), 2: (veth, number(5, 1))}
    kernel.name({1: b"a", 2: b"b", 3: b"c"})

    def peers() -> dict[object, tuple[object, ...]]:
        found = rows(read_of(links)).items()
        return {
            device: tuple(row.labels[name] for name in ("kind", "peer", "peer_netns")) for (device, _), row in found
        }

    assert peers() == {"a": ("veth", "b", "host"), "b": ("veth", "a", "host"), "c": (None, None, None)}
    kernel.name({1: b"a", 3: b"c"})
    kernel.told = [(RTM_DELLINK, link_message(2, b"b", True, True, *kernel.more[2]))]
    assert peers()["a"] == ("veth", None, None)
    links.close()


def test_what_is_left_out_is_said_again_after_the_own_links_could_not_be_read(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    links._namespaces.left_out, links._namespaces._may_enter = 3, False

    def said() -> list[str]:
        return [one.state for one in read_of(links) if isinstance(one, Status)]

    assert (said(), said()) == (["degraded"], [])
    kernel.devices.unlink()
    with pytest.raises(SourceError, match=r"^links cannot be read: No such file or directory$"):
        read_of(links)
    kernel.devices.write_text(DEVICES)
    assert (said(), said()) == (["degraded"], [])
    kernel.devices.unlink()
    links._namespaces.left_out = 0
    with pytest.raises(SourceError):
        read_of(links)
    kernel.devices.write_text(DEVICES)
    assert said() == [], "the runner says that it is attached"
