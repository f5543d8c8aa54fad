"""virtio_guest on queues of the test's own: polls, interrupts and refills of two cards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netconsole_collector.probe.checks import ENOUGH
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.packets import MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

Load = Callable[..., UnattachedProbe]
FUNCTIONS = {"refilled": "refilled"}
NETWORK, BLOCK, BUDGET = 1, 2, 64


class Card(MadeUpHost):
    """One virtio card; its queues as virtio_net numbers them: receive queues even, transmit queues odd."""

    def __init__(self, probe: UnattachedProbe, name: str, netns: int, kind: int = NETWORK) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.dev = self.memory.make("net_device", {"name": name.encode(), "nd_net.net": self.net(netns)})
        self.vdev = self.memory.make("virtio_device", {"id.device": kind})
        self.info = self.memory.make("virtnet_info", {"vdev": self.vdev, "dev": self.dev})
        self.memory.change("virtio_device", self.vdev, {"priv": self.info})

    def virtqueue(self, number: int) -> int:
        return self.memory.make("virtqueue", {"vdev": self.vdev, "index": number})

    def polled(self, number: int, done: int) -> None:
        kind = "send_queue" if number & 1 else "receive_queue"
        queue = self.memory.make(kind, {"vq": self.virtqueue(number), "napi.dev": self.dev})
        self.probe.run("polled", queue + place_of(kind, "napi")[0], done, BUDGET)

    def interrupted(self, number: int) -> None:
        self.probe.run("interrupted", 33, self.memory.make("irqaction", {"dev_id": self.virtqueue(number)}))

    def refilled(self) -> None:
        self.probe.run("refilled", self.info + place_of("virtnet_info", "refill.work")[0])


@pytest.mark.proves("virtio_guest", "tables.queues.{device,netns,queue,direction,polls,interrupts,packets,exhausted}")
@pytest.mark.proves("virtio_guest", "histograms.work", "histograms.work.{device,netns,queue,direction}")
@pytest.mark.proves("virtio_guest", "counters.{polls,interrupts,refills}", "tables.devices.{device,netns,refills}")
def test_queues_of_two_cards(load: Load) -> None:
    probe = load("virtio_guest", FUNCTIONS)
    here, there = Card(probe, "eth0", NETNS), Card(probe, "eth0", OTHER_NETNS)
    disk = Card(probe, "none", NETNS, BLOCK)
    for done in (3, BUDGET, BUDGET - 1, 0):
        here.polled(0, done)
    here.polled(1, 5)
    there.polled(6, 7)
    disk.polled(0, 9)
    for card, number in ((here, 0), (here, 0), (here, 1), (there, 7), (disk, 0)):
        card.interrupted(number)
    for card in (here, there, there):
        card.refilled()
    probe.read()
    places = {  # by device, namespace, queue and direction
        (str(NETNS), 0, "rx"): (4, 2, 3 + 2 * BUDGET - 1, 1),
        (str(NETNS), 0, "tx"): (1, 1, 5, 0),
        (str(OTHER_NETNS), 3, "rx"): (1, 0, 7, 0),
        (str(OTHER_NETNS), 3, "tx"): (0, 1, 0, 0),
    }
    rows = {(row["netns"], row["queue"], row["direction"]): row for row in probe.rows("queues")}
    counted = {
        place: tuple(row[name] for name in ("polls", "interrupts", "packets", "exhausted"))
        for place, row in rows.items()
    }
    assert counted == places
    assert {row["device"] for row in rows.values()} == {"eth0"}
    work = {(one["device"], one["netns"], one["queue"], one["direction"]): one for one in probe.histograms("work")}
    assert {place: (one["count"], one["sum"]) for place, one in work.items()} == {
        ("eth0", *place): (polls, packets) for place, (polls, _, packets, _) in places.items() if polls
    }
    assert work["eth0", str(NETNS), 0, "rx"]["max"] == BUDGET and work["eth0", str(NETNS), 0, "rx"]["min"] == 0
    found = [(row["device"], row["netns"], row["refills"]) for row in probe.rows("devices")]
    assert sorted(found) == [("eth0", str(NETNS), 1), ("eth0", str(OTHER_NETNS), 2)]
    assert probe.counters() == {"polls": 6, "interrupts": 4, "refills": 3}
    assert probe.ledger() == {}


@pytest.mark.proves("virtio_guest", "counters.refills", "tables.devices.{device,netns,refills}")
def test_a_ring_that_is_not_filled_on_kernels_without_a_worker_for_that(load: Load) -> None:
    probe = load("virtio_guest", {"refilled": "not_filled"})
    card = Card(probe, "eth0", NETNS)
    for is_filled in (1, 0x100, 0, 0x101):  # a bool: the bits above it mean nothing
        # The result is behind the arguments of the function, or of any where this kernel does not have it.
        probe.run("refilled", card.info, 0, 0, is_filled, 0, 0, is_filled)
    probe.read()
    assert [(row["device"], row["refills"]) for row in probe.rows("devices")] == [("eth0", 2)]
    assert probe.counters()["refills"] == 2


@pytest.mark.proves("virtio_guest", "knobs.{device,netns}")
def test_filters(load: Load) -> None:
    probe = load("virtio_guest", FUNCTIONS)
    cards = [Card(probe, "eth0", NETNS), Card(probe, "eth0", OTHER_NETNS), Card(probe, "eth1", NETNS)]

    def grown(**knobs: str | int) -> list[tuple[object, ...]]:
        probe.read()
        before, counted = {key(row): row for row in probe.rows("queues")}, probe.counters()
        probe.set("summary", **knobs)
        for card in cards:
            card.polled(0, 1)
            card.interrupted(0)
            card.refilled()
        probe.read()
        rows = {key(row): row for row in probe.rows("queues")}
        found = [one for one in rows if rows[one] != before.get(one)]
        assert {name: count - counted[name] for name, count in probe.counters().items()} == {
            "polls": len(found),
            "interrupts": len(found),
            "refills": len(found),
        }
        assert sum(row["refills"] for row in probe.rows("devices")) == probe.counters()["refills"]
        return sorted(found)

    def key(row: dict[str, object]) -> tuple[object, ...]:
        return row["device"], row["netns"]

    first, second, third = ("eth0", str(NETNS)), ("eth0", str(OTHER_NETNS)), ("eth1", str(NETNS))
    assert grown() == [first, second, third]
    assert grown(device="eth0") == [first, second]
    assert grown(netns=NETNS) == [first, third]
    assert grown(device="eth0", netns=OTHER_NETNS) == [second]


@pytest.mark.proves("virtio_guest", "ledger.map_full")
def test_full_tables(load: Load) -> None:
    probe = load("virtio_guest", FUNCTIONS, queues=1, devices=1)
    for card, times in ((Card(probe, "eth0", NETNS), 2), (Card(probe, "eth1", NETNS), 3)):
        for _ in range(times):
            card.polled(0, 1)
            card.interrupted(0)
            card.refilled()
    probe.read()
    assert probe.ledger() == {"map_full": 9}


@pytest.mark.parametrize(("bus", "does_not_fit"), [(b"virtio", True), (b"virtiox", False), (b"pci", False)])
def test_polls_of_a_virtio_device_that_lead_to_no_queue_of_it_refute_the_layout(
    load: Load, bus: bytes, does_not_fit: bool
) -> None:
    """Those of devices on other buses lead to none because they have none."""
    probe = load("virtio_guest", FUNCTIONS)
    card = Card(probe, "eth0", NETNS)
    memory = probe.memory
    parent = memory.make("device", {"bus": memory.make("bus_type", {"name": memory.keep(bus + b"\0")})})
    other = memory.make("net_device", {"name": b"eth1", "dev.parent": parent})
    queue = memory.make("receive_queue", {"vq": card.virtqueue(0), "napi.dev": other})
    for _ in range(ENOUGH):
        probe.run("polled", queue + place_of("receive_queue", "napi")[0], 1, BUDGET)
    assert probe.running.detach_failed_checks() is does_not_fit
    probe.read()
    assert probe.counters() == {"polls": 0, "interrupts": 0, "refills": 0}
