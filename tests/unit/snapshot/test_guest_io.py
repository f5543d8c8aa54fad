"""The way of a VM's I/Os by what its guest and its host have measured: the parts are the whole, or are not said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.snapshot.document import SCHEMA, Snapshot
from netconsole.snapshot.guest_io import STAGES, GuestIo, guest_ios
from netconsole.snapshot.machine_figures import MachineFigures

VM = "web"
QEMU: dict[str, Any] = {"vm": VM, "thread": "IO one", "tid": 7}
SIZE = 4096


def snapshot(facts: dict[str, str] | None = None, **probes: Any) -> Snapshot:
    document = {
        "schema": SCHEMA,
        "created": "2026-11-29T01:02:03Z",
        "netconsole": "0.1.0",
        "host": {"name": "hv1", "kernel": "6.1"},
        "profile": {"name": "disk"},
        "duration_s": 10.0,
        "probes": {name: {"status": "attached", **probe} for name, probe in probes.items()},
        "facts": {key: {"value": value, "source": "test"} for key, value in (facts or {}).items()},
    }
    return msgspec.convert(document, Snapshot)


def blocks(of: dict[str, Any], *disks: tuple[str, str, int, dict[str, float]]) -> dict[str, Any]:
    """block_path's figures of devices: operation, I/Os, and mean times by stage."""
    rows = [
        {**of, "device": device, "operation": operation, "ios": ios, "bytes": ios * SIZE}
        for device, operation, ios, _ in disks
    ]
    times = [
        timed({**of, "device": device, "operation": operation, "stage": stage}, ios, mean_ns)
        for device, operation, ios, means in disks
        for stage, mean_ns in means.items()
    ]
    return {"tables": {"ios": rows}, "histograms": {"times": {"unit": "ns", "by": times}}}


def on_the_way(
    *disks: tuple[str, str, int, int, dict[str, float]], size: int = SIZE, of: dict[str, Any] = QEMU
) -> dict[str, Any]:
    """virtio_blk's: device, operation, I/Os, how many of them were alone, and mean times by stage."""
    rows = [
        {**of, "device": device, "operation": operation, "ios": ios, "bytes": ios * size, "timed": alone}
        for device, operation, ios, alone, _ in disks
    ]
    stages = [
        timed({**of, "device": device, "operation": operation, "stage": stage}, alone, mean_ns)
        for device, operation, _, alone, means in disks
        for stage, mean_ns in means.items()
    ]
    return {"tables": {"ios": rows}, "histograms": {"stages": {"unit": "ns", "by": stages}}}


def timed(labels: dict[str, Any], count: int, mean_ns: float) -> dict[str, Any]:
    return {"unit": "ns", "count": count, "sum": count * mean_ns, "labels": labels}


MEANS = dict(zip(STAGES, (100.0, 200.0, 2000.0, 300.0), strict=True))
GUEST = {"process": "dd", "pid": 3, "vm": None}


def only(host: Snapshot, guest: Snapshot) -> GuestIo:
    (found,) = guest_ios(MachineFigures(host, VM), guest)
    return found


def test_the_stages_and_the_rest_are_what_the_guest_has_waited_for() -> None:
    """Two processes ask in the guest; on the host only what this VM asks counts, of both of its threads."""
    guest = snapshot(
        block_path=blocks(
            GUEST, ("vda", "read", 60, {"queue": 500.0, "device": 3000.0}), ("dm-0", "read", 60, {"device": 9.0})
        )
    )
    more = blocks({**GUEST, "pid": 4}, ("vda", "read", 40, {"queue": 500.0, "device": 3500.0}))
    inside = guest.probes["block_path"]
    inside.tables["ios"].extend(more["tables"]["ios"])
    inside.histograms["times"].by.extend(snapshot(block_path=more).probes["block_path"].histograms["times"].by)
    other = {**QEMU, "vm": "db"}
    ways = on_the_way(("sdb", "read", 50, 50, MEANS))
    for one in (
        on_the_way(("sdb", "read", 50, 50, MEANS), of={**QEMU, "thread": "IO two", "tid": 8}),
        on_the_way(("sdb", "read", 900, 900, dict.fromkeys(STAGES, 9000000000.0)), of=other),
    ):
        ways["tables"]["ios"] += one["tables"]["ios"]
        ways["histograms"]["stages"]["by"] += one["histograms"]["stages"]["by"]
    host = snapshot(virtio_blk=ways, block_path=blocks({"vm": VM}, ("sdb", "read", 100, {"device": 1500.0})))
    found = only(host, guest)
    assert (found.disk, found.operation, found.device, found.ios, found.host_ios) == ("vda", "read", "sdb", 100, 100)
    assert found.stages_ns == MEANS and found.device_ns == 1500.0
    assert found.queue_ns == 500.0 and found.whole_ns == 3200.0
    assert found.rest_ns == 3200.0 - sum(MEANS.values())
    assert found.virtualisation_pct == pytest.approx(100 * 1200 / 3200)


def test_where_several_are_in_flight_the_device_and_its_queue_are_told_from_the_rest() -> None:
    """Their stages are of the few that were alone: they are not said of the others. The device's is known of each."""
    guest = snapshot(block_path=blocks(GUEST, ("vda", "write", 100, {"device": 5000.0})))
    below = blocks({"vm": VM}, ("sdb", "write", 100, {"device": 2000.0, "queue": 500.0}))
    ways = on_the_way(("sdb", "write", 100, 20, MEANS))
    host = snapshot(virtio_blk=ways, block_path=below)
    found = only(host, guest)
    assert found.stages_ns == {"B3-B4": 2500.0} and found.device_ns == 2000.0
    assert found.rest_ns == 2500.0 and found.virtualisation_pct == 50.0
    assert found.queue_ns is None, "no insert was seen in the guest"
    without = snapshot(block_path=below)
    assert only(without, guest).stages_ns == found.stages_ns, "virtio_blk cannot run everywhere"
    each = timed({**QEMU, "device": "sdb", "operation": "write", "stage": "all"}, 100, 2600.0)
    ways["histograms"]["stages"]["by"].append(each)
    found = only(snapshot(virtio_blk=ways, block_path=below), guest)
    assert found.stages_ns == {"B3-B4": 2600.0} and found.device_ns == 2000.0, "a limit is before the device's queue"


def test_a_device_without_requests_has_its_whole_time() -> None:
    """What lies below it was asked by QEMU's own thread, too, and is a part of it: the facts say which is the VM's."""
    guest = snapshot(block_path=blocks(GUEST, ("vda", "read", 100, {"device": 5000.0})))
    below = blocks({"vm": VM}, ("dm-3", "read", 100, {"whole": 2000.0}), ("sdb", "read", 100, {"device": 1900.0}))
    host = snapshot({f"vm/{VM}/disk/0/on": "dm-3"}, block_path=below)
    found = only(host, guest)
    assert found.device == "dm-3" and found.stages_ns == {"B3-B4": 2000.0}
    found = only(snapshot(block_path=below), guest)
    assert found.device is None, "each of the two may be it"


def test_disks_that_asked_for_as_much_are_not_taken_for_each_other() -> None:
    asked = [(disk, "read", 100, {"device": 5000.0}) for disk in ("vda", "vdb")]
    guest = snapshot(block_path=blocks(GUEST, *asked, ("vdc", "read", 30, {"device": 5000.0})))
    ways = on_the_way(*((device, "read", ios, ios, MEANS) for device, ios in (("sdb", 100), ("sdc", 30))))
    found = guest_ios(MachineFigures(snapshot(virtio_blk=ways), VM), guest)
    assert {one.disk: one.device for one in found} == {"vda": None, "vdb": None, "vdc": "sdc"}
    assert all(not one.stages_ns and one.rest_ns is None for one in found[:2])


@pytest.mark.parametrize(
    ("ios", "size"),
    [(60, SIZE), (0, SIZE), (50, 2 * SIZE)],
    ids=["the page cache has the others", "the page cache has all", "QEMU has merged them"],
)
def test_ends_that_have_not_counted_the_same_are_not_subtracted(ios: int, size: int) -> None:
    guest = snapshot(block_path=blocks(GUEST, ("vda", "read", 100, {"device": 5000.0})))
    host = snapshot(virtio_blk=on_the_way(("sdb", "read", ios, ios, MEANS), size=size))
    found = only(host, guest)
    assert found.stages_ns == {} and found.virtualisation_pct is None and found.whole_ns == 5000.0
    assert found.host_ios == (50 if size > SIZE else None), "as many bytes: it is that device"


def test_a_guest_that_asks_no_virtio_disk_has_no_way() -> None:
    inside = snapshot(block_path=blocks(GUEST, ("sda", "read", 100, {"device": 5000.0})))
    assert guest_ios(MachineFigures(snapshot(), VM), inside) == []
    assert guest_ios(MachineFigures(snapshot(), VM), snapshot()) == []
