"""io_limits reads what control groups of both versions let a VM ask of a device, and how much of it was used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceError, SourceReading
from netconsole_collector.sources.vm.io_limits import LOOK_EVERY, IoLimits

SECOND = 1_000_000_000
QEMU = "/usr/bin/qemu-system-x86_64\0-name\0guest=web-07\0"
GROUP = "/machine.slice/web-07"


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """One VM, in a group of version 2 that has no limit yet, and its disk."""
    write(tmp_path, "proc/700/cmdline", QEMU)
    write(tmp_path, "proc/700/cgroup", f"0::{GROUP}\n")
    write(tmp_path, f"sys/fs/cgroup{GROUP}/io.max", "")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/254:0").symlink_to("../../devices/pci/block/vda")
    return tmp_path


def rows(source: IoLimits, seconds: float = 1.0) -> list[dict[str, Any]]:
    [table] = source.read(SourceReading(int(seconds * SECOND)))
    return [{**row["labels"], "passed": row["counts"]["passed"], **row["gauges"]} for row in table["rows"]]


@pytest.mark.proves("io_limits", "tables.limits.{vm,device,what,group,passed,limit_per_s,used_pct}", "modes.summary")
def test_how_much_of_a_limit_is_used(host: Path) -> None:
    source = IoLimits(Here(host))
    assert source.finds_any() and rows(source) == []
    write(host, f"sys/fs/cgroup{GROUP}/io.max", "254:0 rbps=max wbps=1000 riops=20 wiops=max\n9:9 riops=5\n")
    write(host, f"sys/fs/cgroup{GROUP}/io.stat", "254:0 rbytes=81920 wbytes=500 rios=20 wios=1 dbytes=0 dios=0\n")
    for _ in range(LOOK_EVERY):
        first = rows(source)
    assert [row["used_pct"] for row in first] == [None] * 3, "the first reading has nothing to subtract"
    write(host, f"sys/fs/cgroup{GROUP}/io.stat", "254:0 rbytes=99999 wbytes=1500 rios=59 wios=1\n")
    found = {(row["device"], row["what"]): row for row in rows(source, 2)}
    reads = found["vda", "reads"]
    assert (reads["vm"], reads["group"], reads["limit_per_s"], reads["used_pct"]) == ("web-07", GROUP, 20, 97.5)
    assert reads["passed"] == {"delta": 39, "total": 39}
    assert (found["vda", "written bytes"]["used_pct"], found["vda", "written bytes"]["limit_per_s"]) == (50.0, 1000)
    assert found.keys() == {("vda", "reads"), ("vda", "written bytes"), ("9:9", "reads")}
    assert found["9:9", "reads"]["used_pct"] == 0


def test_groups_of_version_1(host: Path) -> None:
    write(host, "proc/700/cgroup", f"7:blkio:{GROUP}\n4:cpu:/other\n")
    where = f"sys/fs/cgroup/blkio{GROUP}/blkio.throttle"
    write(host, f"{where}.read_iops_device", "254:0 20\n")
    write(host, f"{where}.write_bps_device", "")
    write(host, f"{where}.io_serviced", "254:0 Read 100\n254:0 Write 3\n254:0 Total 103\nTotal 103\n")
    source = IoLimits(Here(host))
    rows(source)
    write(host, f"{where}.io_serviced", "254:0 Read 118\n254:0 Write 3\n")
    [row] = rows(source)
    assert (row["device"], row["what"], row["limit_per_s"], row["used_pct"]) == ("vda", "reads", 20, 90.0)


def test_a_vm_that_ended_and_none_at_all(host: Path) -> None:
    write(host, f"sys/fs/cgroup{GROUP}/io.max", "254:0 riops=20\n")
    source = IoLimits(Here(host))
    assert len(rows(source)) == 1
    for name in ("cmdline", "cgroup"):
        (host / f"proc/700/{name}").unlink()
    for _ in range(2 * LOOK_EVERY):
        with_none = rows(source)
    assert with_none == []
    with pytest.raises(SourceError, match="no QEMU runs here"):
        for _ in range(20):
            rows(source)


@pytest.mark.parametrize("text", ["", "254:0", "254:0 rbps=\n= =\n:\n254:0 riops=-1 rbps=1e9", "\0\xff riops=99"])
def test_what_is_no_limit_is_none(host: Path, text: str) -> None:
    write(host, f"sys/fs/cgroup{GROUP}/io.max", text)
    assert [row for row in rows(IoLimits(Here(host))) if row["device"] == "vda"] == []
