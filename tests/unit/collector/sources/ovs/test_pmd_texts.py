"""What ovs-vswitchd says of its PMD threads, as versions 2.6 to 4.0 write it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from netconsole_collector.sources.ovs.pmd_texts import (
    Polled,
    Rxq,
    ThreadName,
    coverage_in,
    performance_in,
    rxqs_in,
    statistics_in,
)

ANSWERS = Path(__file__).parents[4] / "support/data/ovs-pmd"
"""Of ovs-vswitchd 3.1, 3.5 and 4.0 with a datapath in user space, as ovs-appctl printed them."""
VERSIONS = ("3.1.0", "3.5.0", "4.0.0")
MAIN, FIRST, SECOND = ThreadName(None, None), ThreadName(0, 0), ThreadName(1, 0)
TIERS = {"phwol_hits", "simple_hits", "emc_hits", "smc_hits", "megaflow_hits", "upcalls"}
OF_2_6 = """pmd thread numa_id 0 core_id 2:
\temc hits:4711
\tmegaflow hits:21
\tavg. subtable lookups per hit:1.50
\tmiss:3
\tlost:1
\tpolling cycles:900 (90.00%)
\tprocessing cycles:100 (10.00%)
\tavg cycles per packet: 0.21 (1000/4736)
\tavg processing cycles per packet: 0.02 (100/4736)
main thread:
\temc hits:0
\tmegaflow hits:0
\tmiss:0
\tlost:0
"""
OF_2_9 = """pmd thread numa_id 1 core_id 9:
  packets received: 5000
  packet recirculations: 120
  avg. datapath passes per packet: 1.02
  emc hits: 4000
  megaflow hits: 1100
  avg. subtable lookups per megaflow hit: 1.05
  miss with success upcall: 19
  miss with failed upcall: 1
  avg. packets per output batch: 1.19
  idle cycles: 800 (80.00%)
  processing cycles: 200 (20.00%)
  avg cycles per packet: 0.20 (1000/5000)
  avg processing cycles per packet: 0.04 (200/5000)
"""
PERFORMANCE_OF_2_10 = """
Time: 08:19:01.371
Measurement duration: 3.500 s

pmd thread numa_id 0 core_id 10:

  Cycles:             8050000000  (2.30 GHz)
  Iterations:             500000  (7.00 us/it)
  - idle:                 400000  ( 80.0 % cycles)
  - busy:                 100000  ( 20.0 % cycles)
  Rx packets:            3200000  (914 Kpps, 503 cycles/pkt)
  Datapath passes:       6400000  (2.00 passes/pkt)
  - EMC hits:            6300000  ( 98.4 %)
  - SMC hits:                  0  (  0.0 %)
  - Megaflow hits:         99990  (  1.6 %, 1.25 subtbl lookups/hit)
  - Upcalls:                  10  (  0.0 %, 34.5 us/upcall)
  - Lost upcalls:              0  (  0.0 %)
  Tx packets:            3200000  (914 Kpps)
  Tx batches:             110000  (29.09 pkts/batch)
"""


def answer(version: str, name: str) -> str:
    return (ANSWERS / version / f"{name}.txt").read_text()


@pytest.mark.parametrize("path", sorted(ANSWERS.glob("*/*perf-show*.txt")), ids=lambda path: f"{path.parent.name}")
def test_every_thread_of_every_answer_is_read(path: Path) -> None:
    text = path.read_text()
    found = performance_in(text)
    assert len(found) == len(re.findall(r"^(?:pmd|main) thread", text, re.M))
    for thread, figures in found.items():
        assert figures.duration_ms, "each thread has a duration of its own"
        assert figures.counts.keys() >= {"packets", "tx_packets", *TIERS}
        assert ("used_cycles" in figures.counts) is (thread != MAIN)
        hits = sum(figures.counts[one] for one in TIERS)
        missing = figures.counts["passes"] - hits - figures.counts["lost"]
        assert 0 <= missing <= 0.001 * figures.counts["passes"] + 600, "each pass is a hit, an upcall or lost"


@pytest.mark.parametrize("version", VERSIONS)
def test_two_threads_each_with_a_time_of_its_own(version: str) -> None:
    found = performance_in(answer(version, "two-pmds.pmd-perf-show"))
    assert list(found)[:2] == [FIRST, SECOND] and (MAIN in found) is (version == "4.0.0")
    durations = {one: figures.duration_ms or 0 for one, figures in found.items()}
    assert 7000 <= durations[FIRST] <= 7100 and durations[SECOND] >= 10000
    assert all(one.counts["packets"] > 10**7 for thread, one in found.items() if thread != MAIN)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_thread_without_packets_the_tiers_are_left_out_and_are_0(version: str) -> None:
    text = answer(version, "pmd-idle.pmd-perf-show")
    assert "EMC" not in text and "Lost upcalls" not in text
    figures = performance_in(text)[SECOND]
    assert {figures.counts[one] for one in (*TIERS, "lost", "passes", "tx_batches", "packets")} == {0}
    assert figures.counts["used_cycles"] > 10**10 and figures.us_per_upcall is None


def test_a_line_that_is_missing_beside_packets_is_not_known() -> None:
    text = answer("3.1.0", "pmd-traffic.pmd-perf-show")
    figures = performance_in(re.sub(r"  - Lost upcalls.*\n", "", text))[SECOND]
    assert "lost" not in figures.counts and figures.counts["upcalls"] == 2


def test_means_of_0_were_not_measured_and_histograms_are_passed_over() -> None:
    assert performance_in(answer("3.1.0", "pmd-traffic.pmd-perf-show"))[SECOND].us_per_upcall is None
    measured = performance_in(answer("3.1.0", "pmd-perf-metrics.pmd-perf-show-it3-ms3"))[SECOND]
    assert (measured.us_per_upcall, measured.lookups_per_hit) == (25.4, 1.69)
    assert measured.counts["packets"] == 79816704


def test_performance_as_2_10_wrote_it() -> None:
    ((thread, figures),) = performance_in(PERFORMANCE_OF_2_10).items()
    assert (thread, figures.duration_ms, figures.us_per_upcall) == (ThreadName(10, 0), 3500, 34.5)
    assert {name: figures.counts[name] for name in ("packets", "passes", "emc_hits", "busy_iterations", "upcalls")} == {
        "packets": 3200000, "passes": 6400000, "emc_hits": 6300000, "busy_iterations": 100000, "upcalls": 10,
    }  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_cycles_as_they_are_until_4_0(version: str) -> None:
    """Then the command still succeeds, with the text of the other one."""
    found = statistics_in(answer(version, "pmd-traffic.pmd-stats-show"))
    if version == "4.0.0":
        assert found == {}
        return
    counts = found[SECOND]
    assert counts["busy_cycles"] > 10**10 and counts["idle_cycles"] > 10**9
    shown = re.search(r"avg processing cycles per packet: ([\d.]+)", answer(version, "pmd-traffic.pmd-stats-show"))
    assert shown and counts["busy_cycles"] / counts["packets"] == pytest.approx(float(shown[1]), abs=0.01)
    assert "busy_cycles" not in found[MAIN]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OF_2_6, {ThreadName(2, 0): (None, None, 4711, 3, 1, 900, 100), MAIN: (None, None, 0, 0, 0, None, None)}),
        (OF_2_9, {ThreadName(9, 1): (5000, 5120, 4000, 19, 1, 800, 200)}),
    ],
    ids=["2.6", "2.9"],
)
def test_statistics_as_older_versions_wrote_them(
    text: str, expected: Mapping[ThreadName, tuple[int | None, ...]]
) -> None:
    names = ("packets", "passes", "emc_hits", "upcalls", "lost", "idle_cycles", "busy_cycles")
    found = statistics_in(text)
    assert {one: tuple(map(counts.get, names)) for one, counts in found.items()} == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_and_what_a_thread_spends_besides(version: str) -> None:
    ((thread, polled),) = rxqs_in(answer(version, "pmd-traffic.pmd-rxq-show-secs5")).items()
    assert thread == SECOND and (polled.busy_pct or 0) >= 98
    assert [(one.port, one.queue) for one in polled.rxqs] == [("n0", 0), ("n0", 1), ("n1", 0), ("vh0", 0)]
    assert {one.enabled for one in polled.rxqs} == {True}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["two-pmds.pmd-rxq-show", "pmd-idle-start.pmd-rxq-show"])
def test_a_queue_without_a_measure_is_not_lost(version: str, name: str) -> None:
    text = answer(version, name)
    queues = [one for polled in rxqs_in(text).values() for one in polled.rxqs]
    assert "NOT AVAIL" in text and len(queues) == text.count("queue-id")
    assert rxqs_in(text)[queues[0].thread].busy_pct is None, "a sum without one of its parts"


def test_queues_of_other_versions_and_states() -> None:
    assert rxqs_in(answer("3.1.0", "no-bridge.pmd-rxq-show")) == {}
    ((_, gone),) = rxqs_in(answer("4.0.0", "vhost-gone.pmd-rxq-show")).items()
    assert gone.rxqs == (Rxq(SECOND, "vh1", 0, False, None, False),)
    of_2_6 = "pmd thread numa_id 0 core_id 1:\n\tisolated : true\n\tport: dpdk0\tqueue-id: 0 1\n"
    assert rxqs_in(of_2_6) == {
        SECOND: Polled(tuple(Rxq(SECOND, "dpdk0", queue, None, None, True) for queue in (0, 1)), None)
    }
    of_2_9 = (
        "pmd thread numa_id 0 core_id 1:\n  isolated : false\n  port: d 0 (a): b  \tqueue-id:  7\tpmd usage:  3 %\n"
    )
    assert rxqs_in(of_2_9)[SECOND].rxqs == (Rxq(SECOND, "d 0 (a): b", 7, None, 3, False),)


@pytest.mark.parametrize("version", VERSIONS)
def test_coverage_counters(version: str) -> None:
    text = answer(version, "pmd-traffic.coverage-show")
    found = coverage_in(text)
    assert len(found) == text.count("total: ") > 40
    assert found["datapath_drop_upcall_error"] > 300, "a name that is wider than its column"


@pytest.mark.parametrize("read", [performance_in, statistics_in, rxqs_in, coverage_in])
@pytest.mark.parametrize("part", [" ", "a", "- ", "0", "port: a ", "pmd thread ", "a \n", "\n", "a 0.0/sec "])
def test_garbage_is_read_in_time(read: Callable[[str], object], part: str) -> None:
    began = time.process_time()
    read("pmd thread numa_id 0 core_id 1:\n  " + part * 200_000)
    assert time.process_time() - began < 5.0
