"""The balance on real losses: it closes where probes see them, and is open by the exact number where one does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from netconsole.findings.places_of_snapshot import with_drop_places
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from netconsole.snapshot import builder
from netconsole.snapshot.balance_watch import BEGINS_AFTER, BalanceWatch
from netconsole.snapshot.document import BalanceData, DropPlaceData
from netconsole.telemetry.frames import Scalar
from tests.live.probes.test_protocol_losses import GROUPS, prepared, provoke
from tests.support.live.network import Namespace, SleepingReceiver, Wire, send_frames, send_udp

# Long: beside other tests this kernel runs no program for milliseconds now and then, and here all must be counted.
pytestmark = [pytest.mark.starting, pytest.mark.long]

PROBES = ("kernel_drops", "link_rates", "softnet", "protocol_counters")
CLOSED_PCT = 99.9
LIMIT_S = 120.0
INTERVAL_S = 0.25
MOST_INTERVALS = 200
SOME = 400
CLOSED_PORT = 9
STRANGE = bytes.fromhex(Wire.MACS[1].replace(":", "") + Wire.MACS[0].replace(":", "") + "88b5") + bytes(50)
"""A frame of a kind that nobody speaks."""
TAP = """
import fcntl, os, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH", sys.argv[1].encode(), 0x1002))  # TUNSETIFF: IFF_TAP | IFF_NO_PI
print("ready", flush=True)
sys.stdin.read()
"""


class Balanced:
    """A session with what the balance needs, and its balance since :meth:`begin`."""

    def __init__(self) -> None:
        self._manifests = load_all()
        self._profile = load("summary", self._manifests)
        requests = [one for one in plan(self._profile, self._manifests, PROBES) if one.name in PROBES]
        self.session = session_of(RunPlan(self._profile, self._manifests, requests, interval_s=INTERVAL_S))
        self.live = BalanceWatch()
        self._changed = threading.Condition()
        self._intervals = (0, 0)
        self.session.on_news(self._note)
        self.session.start()
        self._until(self.session.settled)
        with self.session.view() as state:
            if not state.probes["kernel_drops"].measuring:
                pytest.skip(f"cannot run here: {state.probes['kernel_drops'].why}")
        self.begin()

    def _note(self, _news: object) -> None:
        with self.session.view() as state:
            self.live.update(state)
            intervals = (state.collector.intervals, state.console.intervals)
        with self._changed:
            self._intervals = intervals
            self._changed.notify_all()

    def _until(self, true: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(true, LIMIT_S)

    def settle(self) -> None:
        """Wait until both sources have read all that has happened so far: the second interval began after now."""
        ends = [number + 2 for number in self._intervals]
        self._until(lambda: all(now >= end for now, end in zip(self._intervals, ends, strict=True)))

    def begin(self) -> None:
        self.settle()
        with self.session.view() as state:
            self._since = builder.totals(state)

    def filter(self, **knobs: Scalar) -> None:
        """Change the filters, and wait until the balance has begun anew."""
        self.session.set("kernel_drops", knobs=knobs).result(LIMIT_S)
        for _ in range(BEGINS_AFTER):
            self.settle()
        self.begin()

    def since_start(self) -> None:
        with self.session.view() as state:
            self._since = builder.totals_at_start(state)

    def has(self, probe: str, table: str, **labels: str) -> bool:
        with self.session.view() as state:
            known = state.probes[probe].tables.get(table)
            return known is not None and any(labels.items() <= row.labels.items() for row in known.rows.values())

    def row(self, stage: str, device: str | None, netns: str, lost: int) -> BalanceData:
        """Of this place, when the kernel's own count has been read: qdiscs may be read less often."""
        found: list[BalanceData] = []
        for _ in range(MOST_INTERVALS):
            self.settle()
            with self.session.view() as state:
                found = builder.build(state, self._manifests, self._profile, self._since).balance or []
            for one in found:
                if (one.stage, one.device, one.netns, one.dropped) == (stage, device, netns, lost):
                    return one
        raise AssertionError(f"no {lost} lost at {stage} {device} {netns}: {found}")

    def places(self, namespace: Namespace) -> list[DropPlaceData]:
        """The places of the ranked list that lie in this namespace."""
        with self.session.view() as state:
            taken = builder.build(state, self._manifests, self._profile, self._since)
            taken = with_drop_places(taken, builder.span(state, self._since), self._manifests)
        return [one for one in taken.drop_places or () if f"netns {namespace.name}" in one.where]

    def died(self, namespace: Namespace) -> list[int]:
        """Packets of each of these places."""
        return sorted(one.total for one in self.places(namespace))

    def until_counted(self, namespace: Namespace, counter: str) -> None:
        """Wait until the kernel has counted it."""
        for _ in range(MOST_INTERVALS):
            self.settle()
            if self.has("protocol_counters", "counters", counter=counter, netns=namespace.name):
                return
        raise AssertionError(f"{counter} was not counted")

    def told(self, stage: str, netns: str) -> BalanceData:
        """As the console shows it: since the probe began."""
        with self.session.view() as state:
            (found,) = [one for one in self.live.of(state) if (one.stage, one.netns) == (stage, netns)]
        return found


class Lossy:
    """Places where packets die. What the kernel counts there is exact, and is asked of the kernel by other ways."""

    def __init__(self, stack: ExitStack, balanced: Balanced) -> None:
        ends = [Namespace() for _ in range(4)]
        for one in ends:
            stack.callback(one.remove)
        self.wire, self.shaped = Wire(*ends[:2]), Wire(*ends[2:])
        self.apart = self.shaped.b
        self.receivers = [stack.enter_context(SleepingReceiver(self.wire.b)) for _ in range(2)]
        self.apart.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")  # it would send by itself
        self.apart.ip("link", "add", "blind", "type", "ifb")
        holder = self.apart.start(TAP, "full")
        stack.callback(holder.communicate, timeout=LIMIT_S)
        assert holder.stdout and holder.stdout.readline() == "ready\n"
        for device in ("blind", "full"):
            self.apart.ip("link", "set", device, "up")
        self.shaped.shape(rate="1gbit", burst="100", limit="100000")  # sheds what is larger than its burst, at once
        devices = {"blind": self.apart, "full": self.apart, "veth-b": self.wire.b, "veth-a": self.shaped.a}
        while not all(balanced.has("link_rates", "links", device=name, netns=at.name) for name, at in devices.items()):
            balanced.settle()
        while not balanced.has("protocol_counters", "counters", counter="UdpNoPorts", netns=self.wire.b.name):
            send_udp(self.wire.a, Wire.ADDRESSES[1], CLOSED_PORT, 1)  # shown from the second reading on
            balanced.settle()
        balanced.begin()

    def fill_sockets(self) -> list[int]:
        """Packets that each receiver lost since it was bound, as its own socket counts them."""
        for one in self.receivers:
            send_udp(self.wire.a, Wire.ADDRESSES[1], one.port, SOME)
        lines = [line.split() for line in self.wire.b.run("cat", "/proc/net/udp").splitlines()[1:]]
        drops = {int(line[1].rpartition(":")[2], 16): int(line[-1]) for line in lines}
        return [drops[one.port] for one in self.receivers]


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Balanced, Lossy]]:
    with ExitStack() as stack:
        balanced = Balanced()
        stack.callback(balanced.session.close)
        yield balanced, Lossy(stack, balanced)


def test_it_closes_where_probes_see_and_is_open_where_a_driver_counts_alone(made: tuple[Balanced, Lossy]) -> None:
    balanced, lossy = made
    balanced.begin()
    before = sum(lossy.fill_sockets())
    send_frames(lossy.shaped.a, "veth-a", [STRANGE * 3] * SOME)
    send_frames(lossy.wire.a, "veth-a", [STRANGE] * SOME)
    for name in ("full", "blind"):
        send_frames(lossy.apart, name, [STRANGE] * (3 * SOME))
    ring_full = lossy.apart.statistics("full")["tx"]["dropped"]
    assert 0 < ring_full < 3 * SOME and 0 < before < 2 * SOME
    for stage, device, place, lost in (
        ("udp-socket", None, lossy.wire.b, before),
        ("qdisc", "veth-a", lossy.shaped.a, SOME),
        ("device-receive", "veth-b", lossy.wire.b, SOME),
        ("device-send", "full", lossy.apart, ring_full),
    ):
        row = balanced.row(stage, device, place.name, lost)
        assert row.coverage_pct is not None and row.coverage_pct >= CLOSED_PCT and row.unexplained == 0, row
    # An ifb frees what was not redirected to it as if it had been sent (drivers/net/ifb.c), and counts it as dropped.
    row = balanced.row("device-receive", "blind", lossy.apart.name, 3 * SOME)
    assert (row.unexplained, row.coverage_pct) == (3 * SOME, 0.0)
    # Each of these losses is counted by several sources, and is one line of the list.
    assert balanced.died(lossy.wire.b) == sorted([before, SOME])
    assert balanced.died(lossy.shaped.a) == [SOME]
    assert balanced.died(lossy.apart) == sorted([ring_full, 3 * SOME])


def test_what_one_end_of_a_pair_refuses_is_seen_at_the_other(made: tuple[Balanced, Lossy]) -> None:
    balanced, lossy = made
    balanced.begin()
    lossy.wire.b.ip("link", "set", "veth-b", "mtu", "600")
    try:
        send_frames(lossy.wire.a, "veth-a", [STRANGE + bytes(700)] * SOME)
    finally:
        lossy.wire.b.ip("link", "set", "veth-b", "mtu", "1500")
    for stage, device, place in (("device-send", "veth-a", lossy.wire.a), ("device-receive", "veth-b", lossy.wire.b)):
        row = balanced.row(stage, device, place.name, SOME)
        assert (row.unexplained, row.coverage_pct) == (0, 100.0)
    # Both ends and the kernel's reason count them: one line, at the end that sent them.
    places = [*balanced.places(lossy.wire.a), *balanced.places(lossy.wire.b)]
    assert [(one.stage, one.total) for one in places if one.stage in ("link", "driver")] == [("link", SOME)], places


def test_what_several_sources_count_of_one_packet_is_one_line_of_the_list(made: tuple[Balanced, Lossy]) -> None:
    """Headers, checksums, routes, fragments, policies, queues: each packet that died is in one place of the list."""
    balanced, lossy = made
    balanced.begin()
    sent = 0
    for name, group in GROUPS.items():
        if group.of_packets and not group.is_ipv6 and not group.listens:  # IPv6 talks by itself, listeners accept some
            with prepared(lossy.wire, group):
                sent += provoke(lossy.wire, group)
                if name == "IPv4 fragments":
                    balanced.until_counted(lossy.wire.b, "IpReasmTimeout")
    for _ in range(MOST_INTERVALS):  # a loss that no packet tells of is in the last group: then all counters were read
        if sum(balanced.died(lossy.wire.b)) == sent:
            return
        balanced.settle()
    told = [f"{one.total} {one.stage} {one.where}: {one.why} {one.probes}" for one in balanced.places(lossy.wire.b)]
    raise AssertionError(f"{sent} died, and the list has\n" + "\n".join(told))


def test_closed_ports_and_devices_without_a_carrier_are_stages(made: tuple[Balanced, Lossy]) -> None:
    balanced, lossy = made
    balanced.begin()
    send_udp(lossy.wire.a, Wire.ADDRESSES[1], CLOSED_PORT, SOME)
    row = balanced.row("closed-port", None, lossy.wire.b.name, SOME)
    assert row.unexplained == 0, row
    balanced.begin()
    lossy.apart.ip("tuntap", "add", "cut", "mode", "tap")  # without a process it has no carrier
    lossy.apart.ip("link", "set", "cut", "up")
    while not balanced.has("link_rates", "links", device="cut", netns=lossy.apart.name):
        balanced.settle()
    send_frames(lossy.apart, "cut", [STRANGE] * SOME)
    row = balanced.row("device-send", "cut", lossy.apart.name, SOME)
    assert row.unexplained == 0, row


def test_it_is_open_by_what_a_filter_hides_and_by_all_when_the_probe_is_detached(made: tuple[Balanced, Lossy]) -> None:
    balanced, lossy = made
    stage, place = "udp-socket", lossy.wire.b.name
    first = lossy.fill_sockets()
    balanced.since_start()
    balanced.row(stage, None, place, sum(first))
    balanced.filter(port=lossy.receivers[0].port)
    then = lossy.fill_sockets()
    shown, hidden = (now - before for now, before in zip(then, first, strict=True))
    row = balanced.row(stage, None, place, shown + hidden)
    assert row.unexplained == hidden > 0, row
    assert row.coverage_pct == round(100.0 * shown / (shown + hidden), 3) < CLOSED_PCT
    balanced.filter(port=0, reason="not:SOCKET_RCVBUFF")
    without = lossy.fill_sockets()
    lost = sum(without) - sum(then)
    row = balanced.row(stage, None, place, lost)
    assert (row.unexplained, row.coverage_pct, row.hidden_by) == (lost, 0.0, ["reason"])
    balanced.filter(reason="SOCKET_RCVBUFF,NO_SOCKET")
    then = lossy.fill_sockets()
    seen = sum(then) - sum(without)
    row = balanced.row(stage, None, place, seen)
    assert (row.unexplained, row.coverage_pct) == (0, 100.0)
    balanced.session.unload("kernel_drops").result(LIMIT_S)
    balanced.begin()
    lost = sum(lossy.fill_sockets()) - sum(then)
    row = balanced.row(stage, None, place, lost)
    assert (row.unexplained, row.coverage_pct) == (lost, 0.0)
    told = balanced.told(stage, place)
    assert (told.dropped, told.unexplained) == (seen + lost, lost), "since the filters changed"
