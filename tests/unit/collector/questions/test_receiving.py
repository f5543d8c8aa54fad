"""By how many queues and CPUs a device receives, and what of that is said of a NIC that has no room."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Any

import pytest

from netconsole.findings import verdicts
from netconsole_collector.names.fact_keys import key
from netconsole_collector.primitives.here import Here
from netconsole_collector.primitives.netlink import Netlink
from netconsole_collector.questions import known, receiving
from netconsole_collector.questions.facts.ethtool import Device
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.questions.known import BadQuestion

NIC = "nic9"
RINGS, CHANNELS, HASH, LINK = 0x10, 0x3C, 0x29, 0x4C
WORDS_AT, WORDS = 15, 3
UDP4 = 2
SOURCE, TARGET, PORTS = 1 << 4, 1 << 5, 3 << 6


class Host(Here):
    """What its driver and its interrupts tell."""

    def __init__(self, root: Path, ring: tuple[int, int], channels: dict[str, int], udp4: int, cpus: list[str]) -> None:
        super().__init__(root)
        self.ring, self.udp4, self.speed_mbit = ring, udp4, 0
        names = ("max_rx", "max_tx", "max_other", "max_combined", "rx", "tx", "other", "combined")
        self.channels = [channels.get(name, 0) for name in names]
        for number, cpu in enumerate(cpus):
            irq = root / f"proc/irq/{number}"
            (irq / f"{NIC}-rx-{number}").mkdir(parents=True)
            for file in ("smp_affinity_list", "effective_affinity_list"):
                (irq / file).write_text(cpu + "\n")
            (root / f"sys/class/net/{NIC}/device/msi_irqs").mkdir(parents=True, exist_ok=True)
            (root / f"sys/class/net/{NIC}/device/msi_irqs/{number}").write_text("msix\n")

    def netlink(self, *_: Any) -> Netlink:
        raise OSError(errno.EPERM, "")

    def ethtool(self, device: str, request: bytes) -> bytes:
        assert device == NIC
        (command,) = struct.unpack_from("=I", request)
        if command == RINGS and self.ring[1]:
            return struct.pack("=9I", RINGS, self.ring[1], 0, 0, 256, self.ring[0], 0, 0, 256)
        if command == CHANNELS:
            return struct.pack("=9I", CHANNELS, *self.channels)
        if command == HASH:
            (kind,) = struct.unpack_from("=I", request, 4)
            return struct.pack("=IIQ", HASH, kind, self.udp4 if kind == UDP4 else 0).ljust(len(request), b"\0")
        if command == LINK and self.speed_mbit:
            words = -WORDS if request[WORDS_AT] == 0 else WORDS
            head = struct.pack("=IIBxxBxxxb", LINK, self.speed_mbit, 1, 1, words)
            return head.ljust(len(request), b"\0")
        raise OSError(errno.EOPNOTSUPP, "")


FULL = (4096, 4096)
TWO = {"max_combined": 16, "combined": 2}
SPREAD = {"device": NIC, "counter": "rx_missed_errors"}


@pytest.mark.parametrize(
    ("host", "found", "why"),
    [
        (((512, 4096), {"max_combined": 16, "combined": 1}, SOURCE, ["0"]), (512, 4096, 1, 16, 1, None), "one queue"),
        (((512, 4096), TWO, SOURCE, ["3", "3"]), (512, 4096, 2, 16, 1, "addresses"), "its 2 queues all interrupt one"),
        (((512, 4096), TWO, SOURCE, ["0", "1"]), (512, 4096, 2, 16, 2, "addresses"), "each of its receive rings has"),
        ((FULL, TWO, SOURCE | TARGET, ["0", "1"]), (*FULL, 2, 16, 2, "addresses"), "its rings cannot be larger"),
        ((FULL, TWO, SOURCE | TARGET | PORTS, ["0", "1"]), (*FULL, 2, 16, 2, "ports"), None),
        ((FULL, TWO, 0, ["0", "0-7"]), (*FULL, 2, 16, None, None), None),
        (((0, 0), {"max_rx": 4, "rx": 4}, PORTS, []), (None, None, 4, 4, None, None), None),
        (((0, 0), {}, SOURCE, []), (None, None, None, None, None, None), None),
    ],
)
def test_what_is_told_of_a_nic_without_room(
    tmp_path: Path, host: tuple[Any, ...], found: tuple[object, ...], why: str | None
) -> None:
    told = receiving.asked(Host(tmp_path, *host), NIC)
    assert tuple(told[name] for name in ("ring", "ring_max", "queues", "queues_max", "irq_cpus", "udp_by")) == found
    verdict = verdicts.shipped().verdict("nic-loss", {**SPREAD, **told}, True)
    assert verdict is None if why is None else verdict is not None and verdict.why.startswith(why)


@pytest.mark.parametrize(
    ("files", "speed_mbit", "gro", "held", "why"),
    [
        (
            {"napi_defer_hard_irqs": "2", "gro_flush_timeout": "200000"},
            25_000,
            True,
            (200, 7440),
            "its interrupts are held back 200 us, in which a ring of 4096 packets can fill",
        ),
        # A ring that is far from full when the time is over loses nothing by it.
        ({"napi_defer_hard_irqs": "2", "gro_flush_timeout": "20000"}, 25_000, True, (20, 744), None),
        ({"napi_defer_hard_irqs": "2", "gro_flush_timeout": "200000"}, 0, True, (200, None), None),
        ({"napi_defer_hard_irqs": "0", "gro_flush_timeout": "200000"}, 25_000, True, (None, None), None),
        ({"napi_defer_hard_irqs": "2", "gro_flush_timeout": "0"}, 25_000, True, (None, None), None),
        ({"napi_defer_hard_irqs": "2"}, 25_000, False, (None, None), "generic receive offload is off"),
    ],
)
def test_how_long_interrupts_are_held_back_and_whether_packets_are_merged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    speed_mbit: int,
    gro: bool,
    held: tuple[int | None, int | None],
    why: str | None,
) -> None:
    host = Host(tmp_path, FULL, TWO, SOURCE | TARGET | PORTS, ["0", "1"])
    host.speed_mbit = speed_mbit
    for name, content in files.items():
        (tmp_path / f"sys/class/net/{NIC}/{name}").write_text(content + "\n")

    def offloads(_device: Device, facts: Facts, name: str, fixed: bool = True) -> None:
        facts.put(key("nic", name, "offload", "rx-gro"), "on" if gro else "off [fixed]", "ethtool")

    monkeypatch.setattr(Device, "offloads", offloads)
    told = receiving.asked(host, NIC)
    assert (told["held_us"], told["held_packets"], told["gro"]) == (*held, "on" if gro else "off")
    verdict = verdicts.shipped().verdict("nic-loss", {**SPREAD, **told}, True)
    assert verdict is None if why is None else verdict is not None and verdict.why.startswith(why)


def test_it_is_asked_where_there_is_no_room_and_of_a_device_alone() -> None:
    asked = verdicts.shipped().question("nic-loss", SPREAD)
    assert asked is not None and (asked.name, asked.arguments["device"]) == ("receiving", NIC)
    assert verdicts.shipped().question("nic-loss", {**SPREAD, "counter": "rx_crc_errors"}) is None
    with pytest.raises(BadQuestion, match="device: expected a text"):
        known.answer("receiving", {})
