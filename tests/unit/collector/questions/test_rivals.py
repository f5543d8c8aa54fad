"""What keeps a thread from its CPU: who runs there, or a limit of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions import rivals
from netconsole_collector.questions.known import BadQuestion

SECOND_NS = 1_000_000_000


class Host:
    """A /proc and control groups of the test's own; each pause of the question lasts a second."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now = root, 0.0
        self.in_pause: Callable[[], None] = lambda: None
        (root / "proc").mkdir()
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def _sleep(self, _seconds: float) -> None:
        self.now += 1.0
        self.in_pause()

    def put(self, path: str, text: str) -> None:
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)

    def thread(self, pid: int, tid: int, comm: str, ran_ns: int = 0, cpu: int = 0, words: str = "") -> None:
        """As it is from now on."""
        stat = f"{tid} ({comm}) R {' '.join(['0'] * 10)} {ran_ns // 10_000_000} 0 {' '.join(['0'] * 23)} {cpu} 0\n"
        for name in {f"proc/{tid}", f"proc/{pid}/task/{tid}"}:
            self.put(f"{name}/stat", stat)
            self.put(f"{name}/comm", comm + "\n")
            self.put(f"{name}/schedstat", f"{ran_ns} 0 1\n")
            self.put(f"{name}/status", "Name:\tx\nCpus_allowed_list:\t2-3,7\n")
        self.put(f"proc/{pid}/cmdline", words.replace(" ", "\0"))

    def ask(self, tid: int = 501) -> dict[str, object]:
        found: dict[str, object] = rivals.asked(Here(self.root), str(tid), 1.0)
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    one = Host(tmp_path, monkeypatch)
    one.thread(501, 501, "CPU 0/KVM", cpu=7)
    return one


def test_the_rival_is_who_had_most_of_its_cpus(host: Host) -> None:
    busy = ((600, "stress", 0.6, 7), (601, "cron", 0.3, 2), (602, "elsewhere", 0.9, 5), (603, "calm", 0.01, 7))

    def run() -> None:
        for pid, comm, share, cpu in busy:
            host.thread(pid, pid, comm, int(host.now * share * SECOND_NS), cpu)
        host.thread(501, 501, "CPU 0/KVM", int(host.now * 0.9 * SECOND_NS), 7)

    host.in_pause = run
    run()
    found = host.ask()
    assert found["cpus"] == "2-3,7"
    assert (found["rival"], found["rival_pct"], found["rival_cpu"], found["rivals"]) == ("stress (600)", 60, 7, 2)
    assert found["limit"] is None


def test_a_thread_of_a_vm_is_called_by_the_vm(host: Host) -> None:
    def run() -> None:
        host.thread(600, 600, "CPU 3/KVM", int(host.now * SECOND_NS / 2), 3, "qemu-system-x86_64 -name guest=db")

    host.in_pause = run
    run()
    assert host.ask()["rival"] == "vCPU 3 of db"


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_its_own_group_is_told_with_how_long_it_stopped_it(host: Host, version: int) -> None:
    top, name = ("/cpu", "throttled_time 0") if version == 1 else ("", "throttled_usec 0")
    host.put("proc/501/cgroup", "4:memory:/other\n" + ("3:cpu:/vms/web\n" if version == 1 else "0::/vms/web\n"))
    group = f"sys/fs/cgroup{top}/vms"
    if version == 1:
        host.put(f"{group}/cpu.cfs_quota_us", "50000\n")
        host.put(f"{group}/cpu.cfs_period_us", "100000\n")
        host.put(f"{group}/web/cpu.cfs_quota_us", "-1\n")
    else:
        host.put(f"{group}/cpu.max", "50000 100000\n")
        host.put(f"{group}/web/cpu.max", "max 100000\n")
    host.put(f"{group}/cpu.stat", f"nr_periods 1\n{name}\n")
    assert host.ask()["throttled_pct"] is None, "it is not stopped"

    def run() -> None:
        host.put(
            f"{group}/cpu.stat",
            f"nr_periods 9\n{name[:-1]}{int(0.4e9 * host.now) if version == 1 else int(0.4e6 * host.now)}\n",
        )

    host.now = 0.0
    host.in_pause = run
    found = host.ask()
    assert (found["group"], found["limit"], found["throttled_pct"]) == (f"{top}/vms", "50 ms in 100 ms", 40)


def test_a_thread_that_has_ended_has_no_answer(host: Host) -> None:
    with pytest.raises(BadQuestion, match="no such thread"):
        host.ask(999)
    with pytest.raises(BadQuestion, match="whole number"):
        rivals.answer({"tid": "501"})
