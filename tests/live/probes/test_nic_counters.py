"""nic_counters tells what real drivers count: packets that XDP drops at a veth, and the device of this machine."""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import pytest

from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.telemetry import frames
from netconsole.telemetry.state import State
from netconsole_collector.sources.net.nic_counters import NicCounters
from tests.support.live.network import BARE_PYTHON, Namespace, Wire, send_frames
from tests.support.sources import read_of

SOME = 400
CLONE_NEWNET = 0x40000000
FRAME = bytes.fromhex(Wire.MACS[1].replace(":", "") + Wire.MACS[0].replace(":", "") + "88b5") + bytes(50)
DROP_ALL = """
import ctypes, platform, socket, struct, sys
BPF, PROG_LOAD, XDP = {"x86_64": 321}.get(platform.machine(), 280), 5, 6
def set_xdp(index, fd):
    values = struct.pack("=HHi", 8, 1, fd)  # IFLA_XDP_FD in IFLA_XDP of RTM_SETLINK
    body = struct.pack("=BxHiII", 0, 0, index, 0, 0) + struct.pack("=HH", 4 + len(values), 43 | 0x8000) + values
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
    assert struct.unpack_from("=i", netlink.recv(4096), 16)[0] == 0
code = struct.pack("=BBhi", 0xB7, 0, 0, 1) + struct.pack("=BBhi", 0x95, 0, 0, 0)  # return XDP_DROP
code, text = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
words = struct.pack("=IIQQ", XDP, 2, ctypes.addressof(code), ctypes.addressof(text)).ljust(120, bytes(1))
request = ctypes.create_string_buffer(words, len(words))
program = ctypes.CDLL(None, use_errno=True).syscall(BPF, PROG_LOAD, request, len(words))
assert program >= 0, ctypes.get_errno()
index = socket.if_nametoindex(sys.argv[1])
set_xdp(index, program)
print("ready", flush=True)
sys.stdin.read()
set_xdp(index, -1)
"""
Result = TypeVar("Result")
NO_USAGE = frames.Usage(cpu_ns=None, rss_kb=None, pss_kb=None)
NUMBERS = itertools.count(1)


def stamp() -> dict[str, Any]:
    return {"seq": next(NUMBERS), "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}


class Within(Protocol):
    """Calls in a thread that is in the second namespace."""

    def __call__(self, call: Callable[[], Result], /) -> Result: ...


@pytest.fixture
def inside(wire: Wire) -> Iterator[Within]:
    with ThreadPoolExecutor(1, initializer=_enter, initargs=(wire.b,)) as thread:

        def run(call: Callable[[], Result], /) -> Result:
            return thread.submit(call).result()

        yield run


def _enter(namespace: Namespace) -> None:
    with Path("/run/netns", namespace.name).open() as file:
        assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0


class Counted:
    """What is counted from now on, and what stands out of it."""

    def __init__(self) -> None:
        self._source, self._state = NicCounters(), State()
        self._before_ns = time.monotonic_ns()
        self._incidents = Incidents(load_all())
        self._source.mode = "details"
        self._source.open()
        self._state.apply(frames.Status(**stamp(), probe="nic_counters", state="attached", mode="details"))
        self.read()

    def read(self) -> None:
        """One interval."""
        now = stamp()
        interval_ns, self._before_ns = max(1, now["mono_ns"] - self._before_ns), now["mono_ns"]
        found = [msgspec.structs.replace(one, **now) for one in read_of(self._source, interval_ns)]
        for frame in (*found, frames.Cost(**now, interval_ns=interval_ns, usage=NO_USAGE)):
            self._state.apply(frame)
        self.rows = {
            table.name: [row for row in table.rows if row.counts["count"].delta]
            for table in found
            if isinstance(table, frames.Table)
        }
        self.standing = self._incidents.update(self._state)

    def close(self) -> None:
        self._source.close()


@pytest.mark.proves(
    "nic_counters",
    "tables.losses.{device,counter,class,meaning,count}",
    "tables.counters.{device,counter,count}",
    "findings.losses.count.!.loss",
    "modes.{summary,details}",
)
def test_what_xdp_drops_at_a_veth_is_counted_by_its_driver(wire: Wire, inside: Within) -> None:
    dropping = wire.b.start(DROP_ALL, Wire.DEVICES[1], python=BARE_PYTHON)
    assert dropping.stdout
    if dropping.stdout.readline() != "ready\n":
        pytest.skip("cannot run here: no XDP program could be attached")
    try:
        counted = inside(Counted)
        send_frames(wire.a, Wire.DEVICES[0], [FRAME] * SOME)
        inside(counted.read)
        inside(counted.close)
    finally:
        dropping.communicate(timeout=60)
    (row,) = counted.rows["losses"]
    assert row.counts["count"].delta == SOME
    assert row.labels["device"] == Wire.DEVICES[1] and row.labels["counter"] == "rx_queue_N_xdp_drops"
    assert (row.labels["class"], row.labels["meaning"]) == ("loss", "dropped by an XDP program")
    every = {str(one.labels["counter"]).split("_", 3)[3]: one.counts["count"].delta for one in counted.rows["counters"]}
    assert every.pop("xdp_bytes") > 0 and every == {"xdp_drops": SOME, "xdp_packets": SOME}
    (incident,) = counted.standing
    assert (incident.cause, incident.total, incident.where["device"]) == ("nic-loss", SOME, Wire.DEVICES[1])
    assert incident.sentence.startswith("veth-b: dropped by an XDP program: ") and incident.sentence.endswith("/s")


def test_the_names_of_this_machines_devices_are_read_whole() -> None:
    """As ``ethtool -S`` would: virtio, or whatever it has."""
    source = NicCounters()
    source.open()
    try:
        read_of(source)
        devices = {one.name: one for one in source._devices}
        assert all(len(one.places) == one.count and all(one.places) for one in devices.values()), (
            "no name twice, none empty"
        )
        drivers = {
            path.name: (path / "device/driver").readlink().name
            for path in Path("/sys/class/net").iterdir()
            if (path / "device/driver").exists()
        }
        if "virtio_net" not in drivers.values():
            pytest.skip("cannot run here: no virtio device")
        name = next(device for device, driver in drivers.items() if driver == "virtio_net")
        assert {"rxN_drops", "rx_queue_N_drops"} & devices[name].losses.keys(), devices[name].places
    finally:
        source.close()
