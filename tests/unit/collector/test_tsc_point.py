"""The TSC beside the clock, and what KVM adds for a VM, from a /proc and a debugfs made for it."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import pytest

from netconsole_collector import tsc_point

OFFSET = -(2**50)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="cannot run here: no TSC")
def test_a_point_is_the_clock_and_the_tsc_of_one_moment() -> None:
    before_ns = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)
    (first,), (last,) = tsc_point.points(), tsc_point.points()
    assert before_ns < first["ns"] < last["ns"] and first["tsc"] < last["tsc"]
    assert first["accuracy_us"] > 0 and first["hz"] > 1e6


def qemu(proc: Path, pid: int, taps: list[str]) -> None:
    for name in ("fd", "fdinfo", "ns"):
        (proc / str(pid) / name).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes(f"qemu-system-x86_64\0-name\0vm{pid}\0".encode())
    (proc / str(pid) / "stat").write_text(f"{pid} (qemu) S " + "0 " * 18 + "100 0 0\n")
    (proc / str(pid) / "ns" / "net").write_text("")
    for number, tap in enumerate(taps, 10):
        (proc / str(pid) / "fd" / str(number)).symlink_to("/dev/net/tun")
        (proc / str(pid) / "fdinfo" / str(number)).write_text(f"pos:\t0\niff:\t{tap}\n")


def vcpu(debug: Path, pid: int, number: int, **files: int) -> None:
    directory = debug / f"{pid}-12" / f"vcpu{number}"
    directory.mkdir(parents=True)
    for name, value in files.items():
        (directory / name.replace("_", "-")).write_text(f"{value}\n")


def of(root: Path, *taps: str) -> object:
    return tsc_point.guest_of(list(taps), f"{root}/debug/{{}}-*/vcpu*", f"{root}/proc")


def test_the_vm_of_a_tap_has_its_offset_and_its_ratio(tmp_path: Path) -> None:
    qemu(tmp_path / "proc", 7, ["vnet0", "vnet0"])
    qemu(tmp_path / "proc", 8, ["vnet1"])
    for number in (0, 1):
        vcpu(tmp_path / "debug", 7, number, tsc_offset=OFFSET)
    vcpu(tmp_path / "debug", 8, 0, tsc_offset=5, tsc_scaling_ratio=3 << 47, tsc_scaling_ratio_frac_bits=48)
    assert of(tmp_path, "vnet0") == {"vm": "vm7", "offset": OFFSET, "ratio": 0, "fraction_bits": 0}
    assert of(tmp_path, "vnet1") == {"vm": "vm8", "offset": 5, "ratio": 3 << 47, "fraction_bits": 48}
    assert of(tmp_path, "vnet0", "vnet1") is None  # of two VMs
    assert of(tmp_path, "vnet2") is None


def test_cpus_with_different_offsets_tell_nothing(tmp_path: Path) -> None:
    qemu(tmp_path / "proc", 7, ["vnet0"])
    assert of(tmp_path, "vnet0") is None  # no debugfs
    for number in (0, 1):
        vcpu(tmp_path / "debug", 7, number, tsc_offset=OFFSET + number)
    assert of(tmp_path, "vnet0") is None
