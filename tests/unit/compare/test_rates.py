"""How far a figure can be trusted: steady losses, bursts, tails and shapes."""

from __future__ import annotations

from functools import cache, partial

import pytest

from netconsole.compare.compare import compare
from netconsole.snapshot.document import Snapshot
from tests.support import made_up
from tests.support.made_up import EMPTY, changed

lossy = cache(partial(made_up.with_losses, samples=50))


def test_a_burst_is_one_event_and_what_lasts_is_many() -> None:
    def run(per_s: list[float]) -> Snapshot:
        total = round(sum(per_s))
        drops = {"status": "attached", "counters": {"drops": {"total": total, "unit": "packets"}}}
        return changed(EMPTY, duration_s=float(len(per_s)), probes={"p": {**drops, "history": {"drops": per_s}}})

    quiet = [run([0.0] * 10) for _ in range(5)]
    assert compare(run([0.0] * 4 + [12.0] + [0.0] * 5), quiet).verdict == "same"
    assert compare(run([1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]), quiet).verdict == "regressed"


def test_a_steady_loss_is_found_with_a_single_snapshot_and_a_burst_is_not() -> None:
    """1 % of 1000 packets/s, over three seconds."""

    def run(*per_s: float) -> Snapshot:
        drops = {"status": "attached", "counters": {"drops": {"total": round(sum(per_s)), "unit": "packets"}}}
        return changed(EMPTY, duration_s=float(len(per_s)), probes={"p": {**drops, "history": {"drops": per_s}}})

    assert compare(run(10.0, 11.0, 9.0), [run(0.0, 0.0, 0.0)]).verdict == "regressed"
    assert compare(run(0.0, 30.0, 0.0), [run(0.0, 0.0, 0.0)]).verdict == "same"


@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize(
    ("by", "share", "regressed"),
    [
        ("", 0.0, range(2)),
        ("a firewall", 0.01, range(20, 21)),
        ("a full socket", 0.01, range(20, 21)),
        ("a policer", 0.01, range(20, 21)),
        ("a firewall", 0.002, range(15, 21)),
        ("a policer", 0.002, range(20, 21)),
    ],
)
def test_a_steady_loss_is_found_by_whatever_it_is_made_also_beside_bursts(
    by: str, share: float, bursts: bool, regressed: range
) -> None:
    """Of 20 trials; the same again is called a change in one at most. 0.2 % are 20 packets in a run."""
    verdicts = []
    for trial in range(20):
        *baseline, current = (100 * trial + number for number in range(4))
        before = [lossy(seed, bursts=bursts) for seed in baseline]
        verdicts.append(compare(made_up.with_losses(current, by=by, share=share, bursts=bursts, samples=50), before))
    assert [one.verdict for one in verdicts].count("regressed") in regressed
    assert by or [one.verdict for one in verdicts].count("same") >= 19
    if share == 0.01:
        assert all(made_up.LOSSES[by][0] in one.findings[0].metric for one in verdicts)


def test_a_burst_of_another_reason_in_the_baseline_hides_no_loss_in_an_older_snapshot() -> None:
    """It has no histories of rows: how all rows moved together counts, where it is known that this one was there."""

    def run(netfilter: list[float], closes: list[float]) -> Snapshot:
        rows = [
            {"reason": reason, "class": "benign", "count": round(sum(per_s))}
            for reason, per_s in (("NETFILTER_DROP", netfilter), ("SOCKET_CLOSE", closes))
            if sum(per_s)
        ]
        columns = {"drops": {"labels": ["reason", "class"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        history = {"drops.count": [one + other for one, other in zip(netfilter, closes, strict=True)]}
        probe = {"status": "attached", "tables": {"drops": rows}, "columns": columns, "history": history}
        return changed(EMPTY, probes={"p": probe}, facts={})

    none, loss, burst = [0.0] * 10, [10.0] * 10, [0.0] * 4 + [400.0] + [0.0] * 5
    found = compare(run(loss, none), [run(none, none), run(none, burst), run(none, none)])
    assert (found.verdict, found.findings[0].direction) == ("regressed", "worse")
    assert compare(run(burst, none), [run(none, none), run(none, burst), run(none, none)]).verdict == "same"


def test_what_one_run_of_the_baseline_had_another_may_have_a_little_more_of() -> None:
    def run(per_s: int) -> Snapshot:
        rows = [{"reason": "QDISC_DROP", "count": 10 * per_s}] if per_s else []
        columns = {"drops": {"labels": ["reason"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        history = {"drops.count": [[float(per_s)] * 10] if per_s else []}
        probe = {"status": "attached", "tables": {"drops": rows}, "columns": columns, "row_history": history}
        return changed(EMPTY, probes={"p": probe}, facts={})

    assert compare(run(11), [run(0), run(10), run(0)]).verdict == "same"
    assert compare(run(30), [run(0), run(10), run(0)]).verdict == "regressed"


def test_traffic_that_comes_in_bursts_is_held_against_its_own_unrest() -> None:
    """A table has no counter: how its rows moved together, interval by interval, says how far a rate can be trusted."""

    def run(*per_s: float) -> Snapshot:
        cells = [{"device": "eth0", "rx_packets": round(sum(per_s))}]
        columns = {"links": {"labels": ["device"], "values": {"rx_packets": {"unit": "packets"}}}}
        probe = {"status": "attached", "tables": {"links": cells}, "columns": columns}
        history = {"history": {"links.rx_packets": per_s}}
        return changed(EMPTY, duration_s=float(len(per_s)), probes={"p": probe | history}, facts={})

    assert compare(run(0, 90, 0, 0, 2700, 0, 0, 0, 40, 0), [run(0, 0, 600, 0, 0, 0, 0, 3, 0, 0)]).verdict == "same"
    assert compare(run(*[283] * 10), [run(*[60] * 10)]).verdict == "changed"


def test_a_little_traffic_beside_much_is_no_finding_and_a_little_loss_is() -> None:
    def run(**others: int) -> Snapshot:
        cells = [
            {"device": "eth0", "rx_packets": 1000, "tx_packets": 33_000, "errors": 0},
            {"device": "lo", "rx_packets": 0, "tx_packets": 0, "errors": 0, **others},
        ]
        values = {name: {"unit": "packets", "worse": "none"} for name in ("rx_packets", "tx_packets")}
        columns = {"links": {"labels": ["device"], "values": values | {"errors": {"unit": "packets", "worse": "up"}}}}
        probe = {"status": "attached", "tables": {"links": cells}, "columns": columns}
        return changed(EMPTY, probes={"p": probe}, facts={})

    assert compare(run(rx_packets=250), [run()]).verdict == "same"
    assert compare(run(rx_packets=2500), [run()]).verdict == "changed"
    assert compare(run(errors=250), [run()]).verdict == "regressed"


def test_the_tail_of_a_single_snapshot_is_trusted_less_than_its_middle() -> None:
    def run(slowest_us: float) -> Snapshot:
        buckets = [[1.0, 1.1, 3200], [slowest_us, slowest_us * 1.1, 100]]
        data = {"unit": "us", "count": 3300, "sum": 3300.0, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"wait": data}}})

    assert compare(run(35.0), [run(10.0)]).verdict == "same"
    assert compare(run(90.0), [run(10.0)]).verdict == "regressed"


def test_a_mean_that_one_sample_has_moved_is_no_change() -> None:
    def run(slowest_us: float) -> Snapshot:
        buckets = [[1.0, 1.1, 20_000], [slowest_us, slowest_us * 1.1, 1]]
        data = {"unit": "us", "count": 20_001, "sum": 21_000 + 1.05 * slowest_us, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"late": data}}})

    assert compare(run(57_000.0), [run(5.0)] * 5).verdict == "same"


@pytest.mark.parametrize(
    ("unit", "fast", "verdict"),
    [
        ("us", (50.0, 10.0), "changed"),  # four in ten wait a fifth as long, and no percentile says so
        ("us", (50.0, 40.0), "same"),
        ("ns", (800.0, 160.0), "same"),  # as much on a log scale, and less than a microsecond
    ],
)
def test_a_shape_is_a_finding_only_where_it_is_worth_one(unit: str, fast: tuple[float, float], verdict: str) -> None:
    slow = 20 * max(fast)

    def run(share: int, fastest: float) -> Snapshot:
        buckets = sorted([[fastest, fastest * 1.1, share], [slow, slow * 1.1, 2000 - share]])
        data = {"unit": unit, "count": 2000, "sum": 1000.0 * 2000, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"wait": data}}})

    baseline = [run(800 + 5 * seed, fast[0]) for seed in range(5)]
    found = compare(run(810, fast[1]), baseline)
    assert found.verdict == verdict
    if verdict == "changed":
        assert (found.findings[0].statistic, found.findings[0].direction) == ("shape", "different")


def test_a_shape_is_held_against_those_of_runs_that_know_nothing_of_it() -> None:
    """Each of the baseline's runs stands apart from the four others as far as one more run stands apart from all."""

    def run(fastest: float) -> Snapshot:
        buckets = sorted([[fastest, fastest * 1.1, 800], [4000.0, 4400.0, 1200]])
        data = {"unit": "us", "count": 2000, "sum": 1000.0 * 2000, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"wait": data}}})

    assert compare(run(10.0), [run(one) for one in (40.0, 120.0, 15.0, 300.0, 30.0)]).verdict == "same"
