"""A rule of [[escalate]]: its defaults, and the largest value of each key that is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.probes.catalogue import shipped
from netconsole.profile.escalation_rules import MAX_RULES, Escalation
from netconsole.profile.loader import load_file

MANIFESTS = {name: shipped(name) for name in ("kernel_drops", "tx_queue_latency", "softirq_health")}
RULE = """
[[escalate]]
probe = "kernel_drops"
table = "drops"
value = "count"
over = 100
"""
OF_HISTOGRAM = """
[[escalate]]
probe = "tx_queue_latency"
histogram = "wait"
over = 5_000_000
where = { device = "eth0" }
"""
PROBES = '[probes.kernel_drops]\nmode = "summary"\n[probes.tx_queue_latency]\nmode = "summary"\n'


def rules(directory: Path, text: str) -> tuple[Escalation, ...]:
    path = directory / "mine.toml"
    path.write_text(PROBES + text)
    return tuple(load_file(path, MANIFESTS).escalations)


def test_a_rule_has_the_defaults_of_the_page(tmp_path: Path) -> None:
    (rule,) = rules(tmp_path, RULE)
    assert rule == Escalation("kernel_drops", "drops", "count", None, 100.0, {}, 60.0, 50.0, 1.0, 30.0, 600.0)
    assert rule == Escalation("kernel_drops", "drops", "count", None, 100.0)
    assert rule.as_dict() == {
        "probe": "kernel_drops", "table": "drops", "value": "count", "where": {}, "over": 100.0, "for_s": 60.0,
        "events_per_s": 50.0, "kernel_cpu_pct": 1.0, "keep_s": 30.0, "pause_s": 600.0,
    }  # fmt: skip
    (rule,) = rules(tmp_path, OF_HISTOGRAM)
    assert (rule.figures, rule.value, rule.percentile, rule.over) == ("wait", "", 99.0, 5e6)
    assert rule.as_dict()["where"] == {"device": "eth0"} and rule.as_dict()["percentile"] == 99.0


@pytest.mark.parametrize(
    ("key", "taken", "refused"),
    [
        ("for", ('"1s"', '"600s"', '"10m"'), ('"0s"', '"601s"', "60")),
        ("keep", ('"1s"', '"300s"'), ('"301s"',)),
        ("pause", ('"24h"',), ('"25h"',)),
        ("events_per_s", ("1",), ("0", "-1")),
        ("kernel_cpu_pct", ("0.01", "100_000"), ("0.001", "100_001")),
    ],
)
def test_a_value_is_taken_up_to_its_limit(
    tmp_path: Path, key: str, taken: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    for value in taken:
        assert len(rules(tmp_path, f"{RULE}{key} = {value}\n")) == 1
    for value in refused:
        with pytest.raises(BadInput, match=key):
            rules(tmp_path, f"{RULE}{key} = {value}\n")


@pytest.mark.parametrize(("percentile", "is_taken"), [("1", True), ("100", True), ("0.5", False), ("100.1", False)])
def test_a_percentile_is_one_of_a_hundred(tmp_path: Path, percentile: str, is_taken: bool) -> None:
    text = f"{OF_HISTOGRAM}percentile = {percentile}\n"
    if is_taken:
        assert rules(tmp_path, text)[0].percentile == float(percentile)
    else:
        with pytest.raises(BadInput, match="percentile"):
            rules(tmp_path, text)


def test_a_percentile_is_of_a_histogram_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="percentile: is of a histogram"):
        rules(tmp_path, RULE + "percentile = 99\n")


def test_a_profile_has_a_bounded_number_of_rules(tmp_path: Path) -> None:
    assert len(rules(tmp_path, RULE * MAX_RULES)) == MAX_RULES == 16
    with pytest.raises(BadInput, match="16"):
        rules(tmp_path, RULE * (MAX_RULES + 1))


def test_a_table_that_names_no_device_or_flow_starts_no_details(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"escalate\[0\]\.table: tells no device or flow"):
        of_cpus = RULE.replace("kernel_drops", "softirq_health").replace('"drops"', '"cpus"')
        rules(tmp_path, of_cpus.replace('"count"', '"rx_runs"'))
