"""nic_counters knows the losses in each driver's list of names, and notices that a device has changed."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from netconsole.base.readers import read_toml
from netconsole.telemetry.frames import Table
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.net import nic_counters as nic
from netconsole_collector.sources.net.link_state import Link, LinkTable
from netconsole_collector.sources.net.nic_counters import NicCounters
from netconsole_collector.sources.net.nic_losses import MEANINGS, meaning
from tests.support.sources import read_of

DRIVERS: Any = read_toml(Path(__file__).parents[3] / "support/data/nic-counters.toml")
SOUNDS_LIKE_A_LOSS = re.compile(
    r"drop|discard|err|miss|fail|crc|overflow|underrun|no_|out_of|bad|jab|jbr|fragment|undersize|oversize|undrsz|ovrsz"
    r"|runt|abort|timeout|oob|full|malformed|ratelimit|illegal|unsupported|uncorrectable|xoff|pause_(frames|ctrl)"
)
NO_LOSS = re.compile(r"rx_pp_|no_sync_data$|passed_|runt_bytes|_no(dd|DD)p|csum_none")
"""Pools of pages, and words that only look like one of these."""


def names_of(driver: str) -> list[str]:
    one = DRIVERS[driver]
    return [*one["names"].split(), *filter(None, one.get("lines", "").splitlines())]


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_name_that_sounds_like_a_loss_has_a_meaning_or_is_said_to_be_none(driver: str) -> None:
    plain = set(DRIVERS[driver]["plain"])
    open_ = [
        name
        for name in names_of(driver)
        if SOUNDS_LIKE_A_LOSS.search(name) and not NO_LOSS.search(name) and meaning(name) is None and name not in plain
    ]
    assert not open_
    assert not [name for name in plain if meaning(name) is not None], "it is known by now"


def test_no_name_of_the_table_is_made_up() -> None:
    listed = {re.sub(r"\d+", "N", name) for driver in DRIVERS for name in names_of(driver)}
    assert not MEANINGS.keys() - listed
    assert all(text and len(text) < 90 for _, text in MEANINGS.values())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rx_missed_errors", "loss"),
        ("rx3_drops", "loss"),
        ("rx_queue_17_drops", "loss"),
        ("[3]: rx_discards", "part"),
        ("rx_prio5_discards", "part"),
        ("port.rx_priority_0_xoff_rx", "sign"),
        ("rx_l4_thing", None),
        ("rx_packets", None),
    ],
)
def test_a_queues_number_does_not_matter(name: str, kind: str | None) -> None:
    found = meaning(name)
    assert (found.kind if found else None) == kind


class Machine(Here):
    """Devices with counters that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: dict[str, dict[str, int]] = {}

    def netlink(self, protocol: int, /) -> Any:
        return self

    def close(self) -> None:
        """Nothing is open."""

    def ethtool(self, device: str, request: bytes, /) -> bytes:
        known = self.devices.get(device)
        if known is None:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        command = struct.unpack_from("=I", request)[0]
        if command == nic.GSSET_INFO:
            return struct.pack("=IIQI", command, 0, 2, len(known))
        if command == nic.GSTRINGS:
            names = b"".join(name.encode().ljust(32, b"\0") for name in known)
            return (struct.pack("=III", command, 1, len(known)) + names)[: len(request)]
        assert command == nic.GSTATS
        values = struct.pack(f"=II{len(known)}Q", command, len(known), *known.values())
        return values[: len(request)].ljust(len(request), b"\0")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()

    def fill(table: LinkTable, _netlink: object) -> None:
        for index, name in enumerate([*one.devices, "lo"]):
            table.links[index] = Link(index, name, "", b"", True, True, 0, 0)

    monkeypatch.setattr(LinkTable, "fill", fill)
    return one


def moved(source: NicCounters, table: str = "losses") -> dict[tuple[object, object], int]:
    (found,) = (one for one in read_of(source) if isinstance(one, Table) and one.name == table)
    return {(row.labels["device"], row.labels["counter"]): row.counts["count"].delta for row in found.rows}


def test_losses_are_counted_from_the_first_reading_on(machine: Machine) -> None:
    machine.devices = {"eth0": {"rx_packets": 5, "rx_missed_errors": 7}, "eth1": {"rx0_drops": 1}}
    source = NicCounters(machine)
    source.open()
    assert moved(source) == {}
    machine.devices["eth0"] = {"rx_packets": 50, "rx_missed_errors": 9}
    assert moved(source) == {("eth0", "rx_missed_errors"): 2}
    source.mode = "details"
    moved(source, "counters")
    machine.devices["eth0"]["rx_packets"] = 51
    assert moved(source, "counters") == {("eth0", "rx_packets"): 1}


def test_of_two_counters_with_one_name_the_first_counts(machine: Machine) -> None:
    machine.devices = {"eth0": {"rx_missed_errors": 1, "rx_missed_errors ": 10}}
    source = NicCounters(machine)
    source.mode = "details"
    assert moved(source) == {}
    machine.devices["eth0"] = {"rx_missed_errors": 4, "rx_missed_errors ": 60}
    assert moved(source) == {("eth0", "rx_missed_errors"): 3}
    machine.devices["eth0"] = {"rx_missed_errors": 9, "rx_missed_errors ": 60}
    assert moved(source, "counters") == {("eth0", "rx_missed_errors"): 5}


@pytest.mark.parametrize(
    ("took_s", "interval_s", "wait"),
    [(0.0, 1, 1), (0.0099, 1, 1), (0.01, 1, 2), (0.05, 1, 6), (0.05, 2, 3), (9.0, 1, 60)],
)
def test_a_nic_that_answers_slowly_is_asked_less_often(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, took_s: float, interval_s: int, wait: int
) -> None:
    """So that reading takes a hundredth of a core, or a reading a minute."""
    asked: list[str] = []
    monkeypatch.setattr(machine, "cpu_s", lambda: took_s * len(asked))
    ethtool = machine.ethtool

    def counted(device: str, request: bytes, /) -> bytes:
        if struct.unpack_from("=I", request)[0] == nic.GSTATS:
            asked.append(device)
        return ethtool(device, request)

    monkeypatch.setattr(machine, "ethtool", counted)
    machine.devices = {"eth0": {"rx_packets": 5}}
    source = NicCounters(machine)
    interval_ns = interval_s * 1_000_000_000
    for _ in range(wait):
        read_of(source, interval_ns)
    assert len(asked) == 1
    read_of(source, interval_ns)
    assert len(asked) == 2


def test_a_device_that_gets_other_queues_or_goes_is_read_anew(machine: Machine) -> None:
    machine.devices = {"eth0": {"rx0_drops": 3}}
    source = NicCounters(machine)
    assert moved(source) == {}
    machine.devices["eth0"] = {"rx0_drops": 3, "rx1_drops": 9}
    assert moved(source) == {}, "its names are asked for in the next interval"
    assert moved(source) == {}
    machine.devices["eth0"] = {"rx0_drops": 4, "rx1_drops": 11}
    assert moved(source) == {("eth0", "rxN_drops"): 3}, "of all queues"
    machine.devices = {}
    assert moved(source) == {}


def test_hostile_names_are_text(machine: Machine) -> None:
    machine.devices = {"e\x1b[2J": {"rx_drops\x1b": 1, "rx_out_of_buffer": 0}}
    source = NicCounters(machine)
    source.mode = "details"
    assert moved(source, "counters") == {}
    machine.devices["e\x1b[2J"] = {"rx_drops\x1b": 5, "rx_out_of_buffer": 2}
    assert moved(source, "counters") == {
        ("e\\x1b[2J", "rx_drops\\x1b"): 4,
        ("e\\x1b[2J", "rx_out_of_buffer"): 2,
    }


def test_too_many_counters_are_left_out(machine: Machine) -> None:
    machine.devices = {"eth0": {f"c{number}": number for number in range(nic.MAX_COUNTERS + 1)}}
    source = NicCounters(machine)
    assert moved(source) == {} and source._devices == []


def test_devices_are_looked_for_every_ten_readings_and_128_of_them_are_read(machine: Machine) -> None:
    assert (nic.SEARCH_EVERY, nic.MAX_DEVICES) == (10, 128)
    source = NicCounters(machine)
    read_of(source)
    machine.devices = {f"eth{number}": {"rx_missed_errors": 0} for number in range(130)}
    for _ in range(9):
        read_of(source)
    assert source._devices == []
    read_of(source)
    assert [one.name for one in source._devices] == [f"eth{number}" for number in range(128)]


@pytest.mark.parametrize("refuses", [True, False])
def test_a_device_whose_names_cannot_be_read_is_left_out_until_they_can(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """It has gone between two questions, or got other queues."""
    ethtool = machine.ethtool
    is_odd = True

    def odd(device: str, request: bytes, /) -> bytes:
        if is_odd and struct.unpack_from("=I", request)[0] == nic.GSTRINGS:
            if refuses:
                raise OSError(errno.ENODEV, "gone")
            return struct.pack("=III", nic.GSTRINGS, 1, 7) + bytes(64)
        return ethtool(device, request)

    monkeypatch.setattr(machine, "ethtool", odd)
    machine.devices = {"eth0": {"rx_missed_errors": 1}}
    source = NicCounters(machine)
    assert moved(source) == {} and source._devices == []
    is_odd = False
    for _ in range(10):
        moved(source)
    assert [one.name for one in source._devices] == ["eth0"]
