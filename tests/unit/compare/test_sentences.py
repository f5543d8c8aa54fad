"""A change in a sentence: what, where, from how much to how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netconsole.compare.judge import Judged, Statistic
from netconsole.compare.metrics import Metric, MetricKind
from netconsole.compare.sentences import figures, sentence
from netconsole.probes.catalogue import shipped
from netconsole.snapshot.document import SnapshotValue

DROPS, QUEUES, LINKS = (shipped(name) for name in ("kernel_drops", "tx_queue_latency", "link_rates"))


def judged(
    kind: MetricKind,
    name: str,
    before: float | None,
    now: float | None,
    statistic: str = "rate",
    unit: str = "packets/s",
    spread: float | None = None,
    distance: float | None = None,
    labels: Mapping[str, SnapshotValue] | None = None,
) -> Judged:
    """A change from ``before`` to ``now``."""
    metric = Metric(("p", kind, name, tuple((labels or {}).items())), unit, "up")
    return Judged(metric, Statistic(statistic, before, now, spread, 0.0), unit, True, 1.0, distance=distance)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (2.0, 10.0, "rose from 2 packets/s to 10 packets/s (×5)"),
        (10.0, 2.0, "fell from 10 packets/s to 2 packets/s (×0.2)"),
        (0.0, 2.0, ": 2 packets/s, and none before"),
        (None, 2.0, ": 2 packets/s, and none before"),
        (2.0, 0.0, ": none, and 2 packets/s before"),
        (2.0, None, ": none, and 2 packets/s before"),
        (0.0, 0.0, "fell from 0 packets/s to 0 packets/s"),
    ],
)
def test_from_how_much_to_how_much(before: float | None, now: float | None, said: str) -> None:
    one = judged("counter", "my_drops", before, now)
    gap = "" if said.startswith(":") else " "
    assert sentence(one, None) == f"My drops{gap}{said}"
    assert sentence(one, None, ["a", "b"]) == f"My drops{gap}{said}; a; b"


def test_both_figures_with_their_ratio_and_how_much_the_runs_vary() -> None:
    assert figures(judged("counter", "x", 1.0, 2.0)) == "1 packets/s → 2 packets/s (×2)"
    assert figures(judged("counter", "x", 0.0, 2.0, spread=0.0)) == "0 packets/s → 2 packets/s"
    whole = judged("histogram", "x", 1.0, 2.0, "p99", "us", spread=0.5)
    assert figures(whole) == "p99 1 us → 2 us (×2), the baseline's runs vary by 500 ns"
    assert figures(judged("gauge", "x", 1.0, 2.0, "value", "")) == "1 → 2 (×2)"


def test_another_shape_is_said_by_its_factor() -> None:
    """Two log2 units apart are four times as much."""
    one = judged("histogram", "wait", None, None, "shape", "us", distance=2.0)
    assert sentence(one, None) == "Wait has another distribution, as if all values were ×4"
    assert figures(one) == (
        "the distribution has another shape, as if all values were ×4; its percentiles did not change"
    )


def test_what_it_is_in_words_of_its_manifest() -> None:
    def subject(one: Judged, manifest: Any) -> str:
        return sentence(one, manifest).partition(" rose")[0]

    title = DROPS.tables["drops"].title or DROPS.title
    words = title if title[:2].isupper() else title[:1].upper() + title[1:]
    assert subject(judged("counter", "drops.count", 1, 2), DROPS) == words
    assert subject(judged("counter", "links.rx_drops", 1, 2), LINKS) == "Rx drops"
    wait = QUEUES.histograms["wait"].title or "wait"
    assert subject(judged("histogram", "wait", 1, 2, "p99", "us"), QUEUES) == f"P99 of {wait[:1].lower()}{wait[1:]}"
    assert subject(judged("histogram", "wait_us", 1, 2, "mean", "us"), None) == "Mean of wait us"
    assert subject(judged("counter", "TCP_resets", 1, 2), None) == "TCP resets"
    assert subject(judged("counter", "Tcp_resets", 1, 2), None) == "Tcp resets"


def test_where_it_is_in_a_fixed_order_without_what_follows_from_others() -> None:
    labels: dict[str, SnapshotValue] = {
        "queue": 0, "device": "vnet3", "reason": "XDP", "class": "benign", "meaning": "m", "ethertype": 2048,
        "provenance": "p", "vm": "web", "process": "q (7)", "location": "f", "netns": "blue", "cpu_of": 3, "port": "",
    }  # fmt: skip
    assert sentence(judged("counter", "x", 1, 2, labels=labels), None).startswith(
        "X with reason XDP in f of q (7) of VM web on vnet3 in namespace blue, queue 0, cpu of 3 rose"
    )
    assert sentence(judged("counter", "x", 1, 2, labels={"netns": "host", "queue": None}), None).startswith("X rose")
    assert sentence(judged("counter", "x", 1, 2, labels={"queue": 1, "cpu": 2}), None).startswith(
        "X queue 1, cpu 2 rose"
    )
    assert "on e\\x1b" in sentence(judged("counter", "x", 1, 2, labels={"device": "e\x1b"}), None)
