"""Which level of a stack of block devices adds the time of an I/O, by the books of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions import disk
from netconsole_collector.questions.known import BadQuestion

Times = Mapping[str, tuple[int, int]]
"""By device: reads that end meanwhile, and the ms that they take."""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """An LVM volume over a mirror of two disks."""
    (tmp_path / "sys/class").mkdir(parents=True)
    (tmp_path / "sys/class/block").symlink_to("../block")
    for name, below in (("dm-0", ("md0",)), ("md0", ("sda", "sdb")), ("sda", ()), ("sdb", ())):
        (tmp_path / f"sys/block/{name}/slaves").mkdir(parents=True)
        for one in below:
            (tmp_path / f"sys/block/{name}/slaves/{one}").write_text("")
        write(tmp_path, name, 1000, 5000)
    for path, text in (("dm-0/dm/uuid", "LVM-x"), ("md0/md/level", "raid1\n")):
        (tmp_path / "sys/block" / path).parent.mkdir()
        (tmp_path / "sys/block" / path).write_text(text)
    return tmp_path


def write(host: Path, name: str, reads: int, took_ms: int) -> None:
    (host / f"sys/block/{name}/stat").write_text(f"{reads} 0 8000 {took_ms} 7 0 56 70 0 0 0\n")


def ask(host: Path, monkeypatch: pytest.MonkeyPatch, times: Times, device: str = "dm-0") -> dict[str, object]:
    def pause(_seconds: float) -> None:
        for name, (reads, took_ms) in times.items():
            write(host, name, 1000 + reads, 5000 + took_ms)

    for name in ("dm-0", "md0", "sda", "sdb"):
        write(host, name, 1000, 5000)
    monkeypatch.setattr("time.sleep", pause)
    found: dict[str, object] = disk.asked(Here(host), device, 1.0)
    return found


def test_the_level_that_adds_most_is_named(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"dm-0": (100, 2300), "md0": (100, 2200), "sda": (50, 100), "sdb": (50, 1000)}
    assert ask(host, monkeypatch, times) == {
        "device": "dm-0",
        "stack": "dm-0 (LVM) > md0 (md raid1) > sdb (disk)",
        "below": "md0",
        "mean_ms": 23.0,
        "adds": "sdb",
        "adds_ms": 20.0,
    }


def test_it_may_be_one_in_the_middle_or_the_uppermost(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(host, monkeypatch, {"dm-0": (10, 120), "md0": (10, 110), "sda": (10, 10)})
    assert (found["adds"], found["adds_ms"]) == ("md0", 10.0)
    found = ask(host, monkeypatch, {"dm-0": (10, 120), "md0": (10, 10), "sda": (10, 10)})
    assert (found["adds"], found["adds_ms"]) == ("dm-0", 11.0)


def test_what_is_not_known_is_not_said(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask(host, monkeypatch, {"dm-0": (10, 120)})
    assert (found["mean_ms"], found["adds"], found["adds_ms"]) == (12.0, None, None)
    assert ask(host, monkeypatch, {"sda": (10, 120)}, "sda")["below"] is None
    assert ask(host, monkeypatch, {}, "sdb")["mean_ms"] is None


@pytest.mark.parametrize("name", ["", "..", "../etc", "gone", "a/b"])
def test_what_is_no_device_is_refused(host: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(BadQuestion, match="no such block device"):
        ask(host, monkeypatch, {}, name)


def test_devices_in_a_circle_end(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / "sys/block/sda/slaves/dm-0").write_text("")
    assert str(ask(host, monkeypatch, {})["stack"]).startswith("dm-0 (LVM) > md0")
