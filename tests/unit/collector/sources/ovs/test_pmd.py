"""ovs_pmd from end to end: the answers of ovs-vswitchd and the scheduler's books are ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import pytest

from netconsole.telemetry.frames import AnyFrame, Cost, Row, Status, Table
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceError, SourceReading
from netconsole_collector.sources.ovs import pmd_threads
from netconsole_collector.sources.ovs.pmd import OvsPmd
from netconsole_collector.sources.ovs.scheduled import SCHEDULED
from tests.support.sources import SECOND_NS, frames_of

DIRECTORY, PID, TID = "/run/ours", 4711, 4720
DATAPATH = "ovs-netdev"
REVALIDATION = """netdev@ovs-netdev:
  flows         : (current 1) (avg 1) (max 1) (limit 10000)
  dump duration : 1ms

  5: (keys 0)
"""
COUNTED = {
    "phwol_hits": 50, "simple_hits": 100, "emc_hits": 6000, "smc_hits": 250, "megaflow_hits": 1500, "upcalls": 90,
    "lost": 10, "packets": 7800, "passes": 8000, "tx_packets": 7700, "tx_batches": 1540, "busy_iterations": 1950,
    "iterations": 50000, "used": 2_000_000_000, "busy": 1_500_000_000, "slept_us": 200_000,
}  # fmt: skip
"""In one second, of a thread on a CPU of 2.5 GHz."""
RXQS = """Displaying last {} seconds pmd usage %
pmd thread numa_id 1 core_id 3:
  isolated : false
  port: dpdk0             queue-id:  0 (enabled)   pmd usage: {} %
  port: vhost-1           queue-id:  1 (disabled)  pmd usage: NOT AVAIL
  overhead:  5 %
"""
COVERAGE = "{:<24} {:5.1f}/sec {:9.3f}/sec {:13.4f}/sec   total: {}\n"


class PortDatabase:
    """The database of Open vSwitch, of which the ports are asked."""

    def __init__(self) -> None:
        self.statistics = {"rx_missed_errors": 7, "ovs_tx_failure_drops": 100, "ovs_tx_retries": 0}
        self.link = "up"
        self.error: OSError | None = None
        self.has_garbage = False
        self.asked = 0

    def ask(self, request: bytes, timeout_s: float) -> bytes:
        assert timeout_s == 0.25
        self.asked += 1
        if self.error is not None:
            raise self.error
        said = json.loads(request)
        statistics = ["map", [[name, count] for name, count in self.statistics.items()]]
        port = {"name": "dpdk0", "type": "dpdk", "statistics": statistics, "link_state": self.link}
        port["status"] = ["map", [["numa_id", "0"], ["driver_name", "net_null"]]]
        away = {"name": "vhost-1", "type": "dpdkvhostuserclient", "statistics": ["map", []], "status": ["map", []]}
        away["link_state"] = ["set", []]
        rows = [port, away, {**port, "name": "br0", "type": "internal"}]
        result = "none" if self.has_garbage else [{"rows": rows}]
        return json.dumps({"id": said["id"], "error": None, "result": result}).encode()

    def close(self) -> None:
        pass


class PmdHost:
    """A host with one PMD thread, which counts what the test wants it to."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(COUNTED, 1_000_000)
        self.duration_ms = 60_000
        self.is_silent = self.has_garbage = False
        self.has_statistics, self.has_window = True, True
        self.has_pmd = True
        self.usage = 40
        self.coverage = {"netdev_received": 5, "datapath_drop_meter": 7}
        self.asked: list[str] = []
        self.database = PortDatabase()
        self.error: OSError | None = None
        self.books = [1_000_000_000, 500_000_000, 30, 20, 4]
        self.files = {
            f"{DIRECTORY}/ovs-vswitchd.pid": f"{PID}\n", f"/proc/{PID}/comm": "ovs-vswitchd\n",
            f"/proc/{PID}/stat": f"{PID} (ovs-vswitchd) S 1 1", f"/proc/{PID}/task/{PID}/comm": "ovs-vswitchd\n",
            f"/proc/{PID}/task/{TID}/comm": "pmd-c03/id:9\n",
        }  # fmt: skip

    def count(self, counted: Mapping[str, int] = COUNTED, ms: int = 1000) -> None:
        for name, count in counted.items():
            self.totals[name] += count
        self.duration_ms += ms

    def clear(self) -> None:
        self.totals = dict.fromkeys(COUNTED, 0)
        self.duration_ms = 0

    def read(self, path: str, limit: int = 0, from_end: bool = False) -> bytes:
        ran, waited, voluntary, involuntary, migrations = self.books
        task = f"/proc/{PID}/task/{TID}"
        switches = f"voluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n"
        files = {
            **self.files,
            f"{task}/schedstat": f"{ran} {waited} 50\n",
            f"{task}/status": f"Name:\tpmd-c03/id:9\nCpus_allowed_list:\t3\n{switches}",
            f"{task}/sched": f"se.nr_migrations     :   {migrations}\n",
        }
        if path not in files:
            raise FileNotFoundError(2, "No such file")
        return files[path].encode()

    def names(self, path: str, limit: int = 0) -> list[str]:
        return [str(PID), str(TID)]

    def exists(self, path: str) -> bool:
        return path == f"{DIRECTORY}/db.sock"

    def connect(self, path: str, timeout_s: float) -> PmdHost | PortDatabase:
        if path == f"{DIRECTORY}/db.sock":
            return self.database
        assert path == f"{DIRECTORY}/ovs-vswitchd.{PID}.ctl"
        return self

    def close(self) -> None:
        pass

    def ask(self, request: bytes, timeout_s: float) -> bytes:
        assert timeout_s == 0.25
        if self.is_silent:
            raise TimeoutError(110, "no answer")
        if self.error is not None:
            raise self.error
        said = json.loads(request)
        asked = " ".join((said["method"], *said["params"]))
        self.asked.append(asked)
        if self.has_garbage and said["method"] != "upcall/show":
            return json.dumps({"id": said["id"], "error": None, "result": "\0 \x1b[2J {}\n" * 50}).encode()
        answer = self._answer(asked)
        refused = None if answer is not None else f'"{said["method"]}" is not a valid command\n'
        return json.dumps({"id": said["id"], "error": refused, "result": answer}).encode()

    def _answer(self, asked: str) -> str | None:
        return {
            "upcall/show": REVALIDATION,
            f"dpif-netdev/pmd-perf-show {DATAPATH}": self._performance(),
            f"dpif-netdev/pmd-stats-show {DATAPATH}": self._statistics(),
            f"dpif-netdev/pmd-rxq-show -secs 5 {DATAPATH}": self._queues(5) if self.has_window else None,
            f"dpif-netdev/pmd-rxq-show {DATAPATH}": self._queues(60),
            "coverage/show": "".join(COVERAGE.format(name, 0, 0, 0, n) for name, n in self.coverage.items()),
        }[asked]

    def _queues(self, seconds: int) -> str:
        return RXQS.format(seconds, self.usage) if self.has_pmd else "Displaying last 60 seconds pmd usage %\n"

    def _performance(self) -> str:
        t = self.totals
        return (
            ""
            if not self.has_pmd
            else f"""
Time: 05:30:21.380
Measurement duration: {self.duration_ms / 1000:.3f} s

pmd thread numa_id 1 core_id 3:

  Iterations:         {t["iterations"]}  (0.29 us/it)
  - Used TSC cycles:  {t["used"]}  ( 99.9 % of total cycles)
  - busy iterations:  {t["busy_iterations"]}  ( 28.6 % of used cycles)
  Sleep time (us):    {t["slept_us"]}  (  0 us/iteration avg.)
  Rx packets:         {t["packets"]}  (2508 Kpps, 262 cycles/pkt)
  Datapath passes:    {t["passes"]}  (1.00 passes/pkt)
  - PHWOL hits:       {t["phwol_hits"]}  (  0.0 %)
  - Simple Match hits:{t["simple_hits"]:>12}  (100.0 %)
  - EMC hits:         {t["emc_hits"]}  (  0.0 %)
  - SMC hits:         {t["smc_hits"]}  (  0.0 %)
  - Megaflow hits:    {t["megaflow_hits"]}  (  0.0 %, 1.25 subtbl lookups/hit)
  - Upcalls:          {t["upcalls"]}  (  0.0 %, 31.5 us/upcall)
  - Lost upcalls:     {t["lost"]}  (  0.0 %)
  Tx packets:         {t["tx_packets"]}  (2493 Kpps)
  Tx batches:         {t["tx_batches"]}  (32.00 pkts/batch)
"""
        )

    def _statistics(self) -> str | None:
        if not self.has_statistics:
            return self._performance()
        return (
            ""
            if not self.has_pmd
            else f"""pmd thread numa_id 1 core_id 3:
  packets received: {self.totals["packets"]}
  idle cycles: {self.totals["used"] - self.totals["busy"]} (71.33%)
  processing cycles: {self.totals["busy"]} (28.67%)
"""
        )


@pytest.fixture
def host() -> PmdHost:
    return PmdHost()


@pytest.fixture
def source(host: PmdHost) -> OvsPmd:
    found = OvsPmd(cast(Here, host), where=[DIRECTORY])
    found.open()
    return found


class Clock:
    """The monotonic time of readings."""

    now_ns = 0


def read(source: OvsPmd, after_ns: int = SECOND_NS) -> list[AnyFrame]:
    Clock.now_ns += after_ns
    return frames_of(source.read(SourceReading(after_ns, Clock.now_ns)))


def rows(frames: list[AnyFrame], table: str) -> list[Row]:
    (found,) = [frame for frame in frames if isinstance(frame, Table) and frame.name == table]
    return found.rows


def thread(frames: list[AnyFrame]) -> Row:
    (found,) = rows(frames, "threads")
    return found


def set_back(frames: list[AnyFrame]) -> list[int]:
    return [frame.ledger["set_back"].delta for frame in frames if isinstance(frame, Cost)]


@pytest.mark.proves(
    "ovs_pmd",
    "tables.threads.{datapath,numa,core,packets,passes,phwol_hits,simple_hits,emc_hits,smc_hits,megaflow_hits}",
    "tables.threads.{upcalls,lost,tx_packets,tx_batches,busy_iterations,busy_cycles,idle_cycles}",
    "modes.summary",
)
def test_what_a_thread_has_counted_is_that_of_the_interval(source: OvsPmd, host: PmdHost) -> None:
    first = thread(read(source))
    assert first.labels == {"datapath": DATAPATH, "numa": 1, "core": 3}
    assert not any(count.delta or count.total for count in first.counts.values()), "what was before is not ours"
    host.count()
    row = thread(read(source))
    expected = {name: COUNTED[name] for name in pmd_threads.COUNTS}
    expected |= {"busy_cycles": 1_500_000_000, "idle_cycles": 500_000_000}
    found = {name: count.delta for name, count in row.counts.items()}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.proves(
    "ovs_pmd",
    "tables.threads.{busy_pct,idle_pct,sleep_pct,cycles_per_packet,phwol_pct,simple_pct,emc_pct,smc_pct,megaflow_pct}",
    "tables.threads.{upcall_pct,packets_per_iteration,packets_per_batch,lookups_per_hit,us_per_upcall}",
)
def test_ratios_are_those_of_the_interval(source: OvsPmd, host: PmdHost) -> None:
    assert thread(read(source)).gauges["cycles_per_packet"] is None, "a mean since the thread began is no live value"
    host.count()
    gauges = dict(thread(read(source)).gauges)
    assert gauges.pop("waits_pct") is None
    assert gauges == {
        "busy_pct": 75.0, "idle_pct": 25.0, "sleep_pct": 20.0, "cycles_per_packet": 192307.69, "phwol_pct": 0.62,
        "simple_pct": 1.25, "emc_pct": 75.0, "smc_pct": 3.12, "megaflow_pct": 18.75, "upcall_pct": 1.12,
        "packets_per_iteration": 4.0, "packets_per_batch": 5.0, "lookups_per_hit": 1.25, "us_per_upcall": 31.5,
    }  # fmt: skip


@pytest.mark.proves("ovs_pmd", "tables.threads.{cpu_ns,waited_ns,voluntary,involuntary,migrations,waits_pct}")
def test_the_books_of_the_scheduler(source: OvsPmd, host: PmdHost) -> None:
    read(source)
    host.books = [1_650_000_000, 850_000_000, 33, 27, 6]
    row = thread(read(source))
    assert {name: row.counts[name].delta for name in SCHEDULED} == {
        "cpu_ns": 650_000_000, "waited_ns": 350_000_000, "voluntary": 3, "involuntary": 7, "migrations": 2,
    }  # fmt: skip
    assert row.gauges["waits_pct"] == 35.0


def test_books_that_are_closed_are_no_zeros(source: OvsPmd, host: PmdHost) -> None:
    """Zeros are what a kernel without CONFIG_SCHEDSTATS writes while kernel.task_delayacct is 0."""
    for _ in range(2):
        host.books = [0, 0, host.books[2] + 1, 27, 4]
        row = thread(read(source))
    assert {"cpu_ns", "waited_ns"}.isdisjoint(row.counts) and row.gauges["waits_pct"] is None
    assert row.counts["voluntary"].delta == 1


def test_of_few_packets_no_ratio_is_told(source: OvsPmd, host: PmdHost) -> None:
    read(source)
    few = {name: count * (pmd_threads.LEAST_PACKETS - 1) // COUNTED["packets"] for name, count in COUNTED.items()}
    host.count(few)
    row = thread(read(source))
    assert row.counts["packets"].delta == pmd_threads.LEAST_PACKETS - 1
    assert {name for name in pmd_threads.RATIOS if row.gauges[name] is not None} == set()
    assert row.gauges["busy_pct"] is not None, "a share of the time says something of an idle thread, too"


@pytest.mark.proves("ovs_pmd", "tables.threads.{packets,cycles_per_packet}")
def test_a_clear_is_recognised_by_counts_or_by_the_duration(source: OvsPmd, host: PmdHost) -> None:
    read(source)
    host.clear()
    host.count(ms=400)
    frames = read(source)
    assert set_back(frames) == [1]
    row = thread(frames)
    assert row.counts["packets"].delta == COUNTED["packets"] and row.gauges["cycles_per_packet"] == 192307.69
    assert row.gauges["sleep_pct"] == 50.0, "by the thread's own duration"
    host.clear()
    host.count({name: 3 * count for name, count in COUNTED.items()}, ms=300)  # more than before, in less time
    frames = read(source)
    assert set_back(frames) == [1] and thread(frames).counts["packets"].delta == 3 * COUNTED["packets"]
    host.count()
    frames = read(source)
    assert set_back(frames) == [] and thread(frames).counts["packets"].delta == COUNTED["packets"]


def test_from_4_0_on_cycles_come_of_the_usage_of_the_last_seconds(source: OvsPmd, host: PmdHost) -> None:
    host.has_statistics = False
    read(source)
    host.count()
    assert thread(read(source)).gauges["busy_pct"] is None, "a queue is not measured yet"
    host.count()
    host_rxqs = RXQS.replace("NOT AVAIL", "30 %")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "RXQS", host_rxqs)
        row = thread(read(source))
    assert row.gauges["busy_pct"] == 75.0 and row.counts["busy_cycles"].delta == 1_500_000_000
    assert row.gauges["cycles_per_packet"] == 192307.69


@pytest.mark.proves("ovs_pmd", "tables.rxqs.{datapath,port,queue,core,numa,enabled,isolated,usage_pct,remote}")
def test_queues_and_the_threads_that_poll_them(source: OvsPmd, host: PmdHost) -> None:
    first, second = rows(read(source), "rxqs")
    assert first.labels == {"datapath": DATAPATH, "port": "dpdk0", "queue": 0}
    assert first.gauges == {"core": 3, "numa": 1, "usage_pct": 40, "enabled": 1, "isolated": 0, "remote": 1}
    assert second.labels == {"datapath": DATAPATH, "port": "vhost-1", "queue": 1}
    assert second.gauges == {"core": 3, "numa": 1, "usage_pct": None, "enabled": 0, "isolated": 0, "remote": None}


@pytest.mark.proves("ovs_pmd", "tables.rxqs.usage_pct")
def test_a_minute_that_has_only_begun_is_no_usage(source: OvsPmd, host: PmdHost) -> None:
    """Before 3.1 it is divided by 60 s all the same: full load is shown as 14 % after 12 s."""
    host.has_window = False
    for _ in range(60):
        frames = read(source)
        assert not any(row.gauges["usage_pct"] for row in rows(frames, "rxqs"))
    assert {row.gauges["usage_pct"] for row in rows(read(source), "rxqs")} == {40, None}
    assert sum("-secs" in one for one in host.asked) == 1, "what it does not know is not asked again"


@pytest.mark.proves(
    "ovs_pmd",
    "tables.ports.{port,type,rx_missed,rx_no_buffers,rx_policed,tx_full,tx_too_large,tx_policed,tx_refused,tx_retries}",
    "tables.ports.{down,numa}",
)
def test_what_ports_lose_by_cause(source: OvsPmd, host: PmdHost) -> None:
    names = {
        "rx_missed_errors": "rx_missed", "rx_mbuf_allocation_errors": "rx_no_buffers", "ovs_rx_qos_drops": "rx_policed",
        "ovs_tx_failure_drops": "tx_full", "ovs_tx_mtu_exceeded_drops": "tx_too_large",
        "ovs_tx_qos_drops": "tx_policed", "ovs_tx_invalid_hwol_drops": "tx_refused", "ovs_tx_retries": "tx_retries",
    }  # fmt: skip
    host.database.statistics = dict.fromkeys(names, 1000)
    first, away = rows(read(source), "ports")
    assert (first.labels, away.labels) == (
        {"port": "dpdk0", "type": "dpdk"}, {"port": "vhost-1", "type": "dpdkvhostuserclient"},
    )  # fmt: skip
    assert first.gauges == {"down": 0, "numa": 0} and away.gauges == {"down": None, "numa": None}
    assert not away.counts, "it has none of them: that is not 0"
    host.database.statistics = {name: 1000 + 10 * number for number, name in enumerate(names)}
    host.database.link = "down"
    for _ in range(4):
        assert not any(count.delta for row in rows(read(source), "ports") for count in row.counts.values())
    (row,) = rows(read(source), "ports")
    assert {name: count.delta for name, count in row.counts.items()} == {
        name: 10 * number for number, name in enumerate(names.values())
    }
    assert row.interval_ns == 5 * SECOND_NS and row.gauges["down"] == 1
    assert host.database.asked == 2, "once in five readings"


def test_a_database_that_does_not_answer_is_said_and_the_threads_go_on(source: OvsPmd, host: PmdHost) -> None:
    read(source)
    host.database.error = TimeoutError(110, "Connection timed out")
    for _ in range(4):
        read(source)
    host.count()
    frames = read(source)
    (said,) = [frame for frame in frames if isinstance(frame, Status)]
    assert said.state == "degraded"
    assert said.why == "what ports lose is not known: Open vSwitch's database: Connection timed out"
    assert thread(frames).counts["packets"].delta == COUNTED["packets"]
    host.database.error, host.database.has_garbage = None, True
    whys = [frame.why for _ in range(5) for frame in read(source) if isinstance(frame, Status)]
    assert whys == ["what ports lose is not known: Open vSwitch's database: it gives no answer that can be read"]
    host.database.has_garbage = False
    states = [frame.state for _ in range(5) for frame in read(source) if isinstance(frame, Status)]
    assert states == ["attached"]


@pytest.mark.proves("ovs_pmd", "tables.trouble.{counter,meaning,count}")
def test_counters_of_trouble(source: OvsPmd, host: PmdHost) -> None:
    (meter,) = rows(read(source), "trouble")
    assert (
        meter.labels == {"counter": "datapath_drop_meter", "meaning": "a meter was exceeded"}
        and meter.counts["count"].total == 0
    )
    host.coverage |= {"datapath_drop_meter": 27, "vhost_tx_contention": 11, "netdev_sent": 100}
    found = {row.labels["counter"]: row.counts["count"].delta for row in rows(read(source), "trouble")}
    assert found == {"datapath_drop_meter": 20, "vhost_tx_contention": 11}, "one that is told first has just begun"


def test_each_command_is_asked_once_a_second_at_most(source: OvsPmd, host: PmdHost) -> None:
    read(source)
    host.asked.clear()
    for _ in range(20):
        read(source, SECOND_NS // 10)
    assert {host.asked.count(one) for one in host.asked} == {2} and len(set(host.asked)) == 5


def test_a_late_answer_is_no_silence_and_its_counts_come_with_the_next(
    source: OvsPmd, host: PmdHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("netconsole_collector.sources.ovs.vswitchd.time.monotonic", lambda: now_s)
    read(source)
    host.is_silent = True
    host.count()
    now_s += 1.0
    assert read(source) == [], "a CPU may be busy"
    host.is_silent = False
    now_s += 1.0
    assert thread(read(source)).counts["packets"].delta == COUNTED["packets"]
    host.is_silent = True
    now_s += 1.0
    assert read(source) == []
    now_s += 1.0
    with pytest.raises(SourceError, match=r"no answer to upcall/show within 0.25 s"):
        read(source)


def test_a_process_that_is_stopped_is_named_and_asked_less_often(source: OvsPmd, host: PmdHost) -> None:
    read(source)
    host.is_silent = True
    host.files[f"/proc/{PID}/stat"] = f"{PID} (ovs-vswitchd) T 1 1"
    for _ in range(3):
        with pytest.raises(SourceError, match=r"no answer to upcall/show within 0.25 s; .* stopped \(SIGSTOP\)"):
            read(source)


def test_garbage_and_a_closed_socket_are_said_at_once(
    source: OvsPmd, host: PmdHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("netconsole_collector.sources.ovs.vswitchd.time.monotonic", lambda: now_s)
    read(source)
    host.has_garbage = True
    with pytest.raises(SourceError, match="pmd-perf-show: this version of netconsole cannot read the answer"):
        read(source)
    host.has_garbage = False
    host.error = ConnectionResetError(104, "the connection was closed")
    now_s += 1.0
    with pytest.raises(SourceError, match="upcall/show: the connection was closed"):
        read(source)
    host.error = None
    host.count()
    now_s += 5.0
    assert thread(read(source)).counts["packets"].delta == COUNTED["packets"], "it counts on"


def test_a_new_process_counts_anew(source: OvsPmd, host: PmdHost, monkeypatch: pytest.MonkeyPatch) -> None:
    read(source)
    host.count()
    read(source)
    monkeypatch.setitem(globals(), "PID", 4712)
    host.files = {name.replace("4711", "4712"): text.replace("4711", "4712") for name, text in host.files.items()}
    host.clear()
    host.count()
    frames = read(source)
    assert set_back(frames) == [] and thread(frames).counts["packets"].delta == 0


def test_without_a_pmd_thread_one_sentence_says_so(source: OvsPmd, host: PmdHost) -> None:
    assert source.finds_any()
    host.has_pmd = False
    assert not source.finds_any()
    assert rows(read(source), "threads") == []
    with pytest.raises(SourceError, match="no PMD thread") as it:
        read(source)
    assert it.value.state == "unsupported"
    host.has_pmd = True
    assert thread(read(source))


def test_without_open_vswitch_one_sentence_says_so(host: PmdHost) -> None:
    with pytest.raises(SourceError, match="no ovs-vswitchd runs here") as it:
        OvsPmd(cast(Here, host), where=["/nowhere"]).open()
    assert it.value.state == "unsupported"
