"""A tap is shown with its VM's name, from QEMU's command line and descriptors alone, and never with another's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from netconsole_collector.names import vms
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe.reading.decode import Layout, key_labels


class Processes:
    """A made-up /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def start(self, pid: int, arguments: list[str], taps: list[str], *, started: int = 100) -> None:
        directory = self.root / str(pid)
        for name in ("fd", "fdinfo", "ns"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / "cmdline").write_bytes(b"\0".join(a.encode() for a in arguments) + b"\0")
        (directory / "stat").write_text(f"{pid} (a b) c) S " + " ".join(["0"] * 18) + f" {started} 0 0\n")
        (directory / "ns" / "net").write_text("")
        for number, tap in enumerate(taps, 10):
            (directory / "fd" / str(number)).symlink_to("/dev/net/tun")
            (directory / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t02\niff:\t{tap}\n")
        (directory / "fd" / "3").symlink_to("socket:[7]")
        for closed in ("2", "99"):
            (directory / "fd" / closed).write_text("no link: as one that was closed meanwhile")

    def end(self, pid: int) -> None:
        for path in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.root / str(pid)).rmdir()

    def netns(self, pid: int) -> int:
        return (self.root / str(pid) / "ns" / "net").stat().st_ino


QEMU = "/usr/bin/qemu-system-x86_64"


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    made = Processes(tmp_path)
    made.start(1, ["/sbin/init"], [])
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("netconsole_collector.names.vms.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-name", "guest=web-07,debug-threads=on"], "web-07"),
        (["-name", "web-07,process=x"], "web-07"),
        (["-name", "debug-threads=on,guest=a,,b"], "a,b"),
        (["--name", "web-07"], "web-07"),
        (["-uuid", "6a1c"], "6a1c"),
        (["-name", "debug-threads=on", "-uuid", "6a1c"], "6a1c"),
        (["-name"], None),
        ([], None),
    ],
)
def test_the_name_is_what_qemu_was_told(arguments: list[str], name: str | None) -> None:
    assert vms.name_of([argument.encode() for argument in [QEMU, *arguments]]) == name


def test_every_queue_of_a_vm_has_its_name(processes: Processes) -> None:
    processes.start(20, [QEMU, "-name", "guest=web"], ["vnet0", "vnet0", "vnet1"])
    processes.start(21, ["/usr/libexec/qemu-kvm", "-name", "guest=db"], ["vnet2"])
    known = vms.Vms(str(processes.root))
    assert [known.of_tap(f"vnet{number}") for number in range(3)] == ["web", "web", "db"]
    assert known.of_process(21) == "db"


def test_what_is_no_qemu_is_no_vm(processes: Processes) -> None:
    processes.start(20, ["/usr/sbin/openvpn", "-name", "guest=web"], ["tun0"])
    known = vms.Vms(str(processes.root))
    assert known.of_tap("tun0") is None
    assert known.of_process(20) is None


def test_two_taps_of_one_name_are_told_apart_by_their_namespace(processes: Processes) -> None:
    for pid, name in ((20, "a"), (21, "b")):
        processes.start(pid, [QEMU, "-name", name], ["tap0"])
    known = vms.Vms(str(processes.root))
    assert known.of_tap("tap0", processes.netns(21)) == "b"
    assert known.of_tap("tap0") is None, "rather no name than a wrong one"


def test_a_tap_that_comes_to_another_vm_gets_its_name(processes: Processes, clock: list[float]) -> None:
    processes.start(20, [QEMU, "-name", "old"], ["vnet0"])
    known = vms.Vms(str(processes.root))
    assert known.of_tap("vnet0") == "old"
    before = known.changes
    processes.end(20)
    processes.start(20, [QEMU, "-name", "new"], ["vnet0"], started=200)  # even with the same pid
    known.refresh()
    assert known.changes > before
    assert known.of_tap("vnet0") == "new"


def test_a_tap_that_is_taken_from_a_running_vm_is_not_shown_as_its_own_for_long(
    processes: Processes, clock: list[float]
) -> None:
    processes.start(20, [QEMU, "-name", "old"], ["vnet0"])
    known = vms.Vms(str(processes.root))
    assert known.of_tap("vnet0") == "old"
    (processes.root / "20" / "fd" / "10").unlink()
    processes.start(21, [QEMU, "-name", "new"], ["vnet0"])
    before = known.changes
    clock[0] += 100
    known.refresh()
    assert known.changes > before
    assert known.of_tap("vnet0") == "new"


def test_a_vm_that_opens_its_tap_later_is_found(processes: Processes, clock: list[float]) -> None:
    known = vms.Vms(str(processes.root))
    assert known.of_tap("vnet0") is None
    processes.start(20, [QEMU, "-name", "web"], ["vnet0"])
    known.refresh()
    assert known.changes == 0, "looked a moment ago"
    before = known.changes
    clock[0] += 10
    known.refresh()
    assert known.changes > before
    assert known.of_tap("vnet0") == "web"


def test_a_tap_of_nobody_is_looked_for_less_and_less_often(processes: Processes, clock: list[float]) -> None:
    scans: list[float] = []
    known = vms.Vms(str(processes.root))
    known._scan = lambda: scans.append(clock[0])  # type: ignore[method-assign]
    known.of_tap("tun0")
    for _ in range(600):
        known.refresh()
        clock[0] += 1
    assert 5 < len(scans) < 600 / 32


def test_a_row_is_named_when_it_is_read(processes: Processes) -> None:
    processes.start(20, [QEMU, "-name", "web"], ["vnet0"])
    labels = Labeller(Lookups(vms=vms.Vms(str(processes.root))), DropReasons({}))
    layout = Layout([{"name": "device", "type": "char[16]", "as": "tap"}, {"name": "vm", "type": "u32", "as": "vm"}])
    raw = b"vnet0".ljust(16, b"\0") + (20).to_bytes(4, sys.byteorder)
    assert key_labels(layout.columns[:1], layout.unpack(raw)[:1], labels) == {"device": "vnet0", "vm": "web"}
    assert key_labels(layout.columns[1:], layout.unpack(raw)[1:], labels) == {"vm": "web"}


def test_the_taps_of_each_vm_are_those_of_a_scan_now(processes: Processes, clock: list[float]) -> None:
    processes.start(20, [QEMU, "-name", "web"], ["vnet0", "vnet1"])
    processes.start(21, [QEMU, "-name", "idle"], [])
    known = vms.Vms(str(processes.root))
    assert known.taps() == {"web": ["vnet0", "vnet1"], "idle": []}
    processes.start(22, [QEMU, "-name", "new"], ["vnet2"])
    assert known.taps() == {"web": ["vnet0", "vnet1"], "idle": []}, "a scan has just been"
    clock[0] += vms._SCAN_EVERY_S[0]
    assert known.taps()["new"] == ["vnet2"]


def test_queues_and_vms_are_bounded(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in range(20, 26):
        processes.start(pid, [QEMU, "-name", f"vm{pid}"], ["vnet0", "vnet1"])
    monkeypatch.setattr(vms, "_MAX_QUEUES", 4)
    assert sum(map(len, vms.Vms(str(processes.root)).taps().values())) == 4
    monkeypatch.setattr(vms, "_MAX_QUEUES", 1000)
    monkeypatch.setattr(vms, "_MAX_VMS", 3)
    assert len(vms.Vms(str(processes.root)).taps()) == 3


def test_a_running_vm_is_looked_at_again_after_a_minute(processes: Processes, clock: list[float]) -> None:
    processes.start(20, [QEMU, "-name", "web"], ["vnet0"])
    known = vms.Vms(str(processes.root))
    assert known.of_tap("vnet0") == "web"
    processes.start(21, [QEMU, "-name", "other"], ["vnet1"])
    clock[0] += vms._SCAN_EVERY_S[1] - 1
    known.refresh()
    assert known.of_process(20) == "web" and set(known._taps) == {"vnet0"}
    clock[0] += 1
    known.refresh()
    assert set(known._taps) == {"vnet0", "vnet1"}


def test_a_control_group_is_that_of_the_only_vm_in_it(processes: Processes, tmp_path: Path, clock: list[float]) -> None:
    """Of both versions; the uppermost group, which has everybody, and one of two VMs are nobody's."""
    top = tmp_path / "cgroup"
    groups = {name: top / name for name in ("", "m", "m/web", "m/db", "blkio", "blkio/db")}
    for directory in groups.values():
        directory.mkdir(exist_ok=True)
    numbers = {name: vms.OF_GROUP | directory.stat().st_ino for name, directory in groups.items()}
    for pid, name, lines in ((7, "web", "0::/m/web\n"), (8, "db", "4:cpu:/x\n3:blkio:/db\n0::/m/db/..\n0::/m\n")):
        processes.start(pid, [QEMU, "-name", name], [])
        (processes.root / str(pid) / "cgroup").write_text(lines)
    known = vms.Vms(str(processes.root), str(top))
    found = {name: known.of_process(number) for name, number in numbers.items()}
    assert found == {"": None, "m": None, "m/web": "web", "m/db": None, "blkio": None, "blkio/db": "db"}
    (processes.root / "7" / "cgroup").unlink()
    processes.end(7)
    known.refresh()
    clock[0] += 100
    assert known.of_process(numbers["m/web"]) is None and known.of_process(numbers["m"]) == "db"
