"""What keeps a VM's threads from their CPU, as files of the kernel say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.facts import waiting
from netconsole_collector.questions.facts.reading import Facts


def made(root: Path, files: dict[str, str]) -> Facts:
    """The facts of a root with these files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Facts(Here(root))


@pytest.mark.parametrize(("text", "expected"), [("900 100 7\n", 10.0), ("0 0 0\n", None), ("many\n", None), ("", None)])
def test_the_share_that_a_thread_waited(tmp_path: Path, text: str, expected: float | None) -> None:
    assert waiting.waited_pct(made(tmp_path, {"proc/7/schedstat": text}), "/proc/7") == expected
    assert waiting.waited_pct(made(tmp_path, {}), "/proc/8") is None


def test_the_tightest_limit_of_all_groups_around_a_vm(tmp_path: Path) -> None:
    groups = "sys/fs/cgroup/machine.slice"
    files = {
        "proc/7/cgroup": "0::/machine.slice/vm.scope/libvirt\n",
        f"{groups}/cpu.max": "800000 100000\n",
        f"{groups}/vm.scope/cpu.max": "50000 100000\n",
        f"{groups}/vm.scope/libvirt/cpu.max": "max 100000\n",
    }
    assert waiting.cpu_max(made(tmp_path, files), 7) == "50000 100000"
    assert waiting.cpu_max(made(tmp_path, {f"{groups}/vm.scope/cpu.max": "max 100000\n"}), 7) == "800000 100000"
    assert waiting.cpu_max(made(tmp_path, {f"{groups}/cpu.max": "max 100000\n"}), 7) == "max"
    assert waiting.cpu_max(made(tmp_path, {"proc/8/cgroup": "4:cpu:/old\n"}), 8) is None
    assert waiting.cpu_max(made(tmp_path, {"proc/9/cgroup": "0::/../../etc\n"}), 9) is None


def test_the_time_that_a_host_takes_from_a_guest(tmp_path: Path) -> None:
    assert waiting.steal_pct(made(tmp_path, {"proc/stat": "cpu  50 0 20 900 10 0 0 20 0 0\ncpu0 1\n"})) == 2.0
    assert waiting.steal_pct(made(tmp_path, {"proc/stat": "cpu  50\n"})) is None


def test_a_limit_of_version_1_is_known_too(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/cpu,cpuacct/machine"
    files = {
        "proc/7/cgroup": "4:cpu,cpuacct:/machine/vm\n3:memory:/other\n",
        f"{group}/cpu.cfs_quota_us": "200000\n",
        f"{group}/cpu.cfs_period_us": "100000\n",
        f"{group}/vm/cpu.cfs_quota_us": "-1\n",
        f"{group}/vm/cpu.cfs_period_us": "100000\n",
    }
    assert waiting.cpu_max(made(tmp_path, files), 7) == "200000 100000"
    assert waiting.cpu_max(made(tmp_path, {f"{group}/cpu.cfs_quota_us": "-1\n"}), 7) == "max"
