"""Who sent what died at a place: of flows the largest, of samples the newest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.findings.drop_places import Senders

PLACE = {"location": "here", "device": "eth0"}


def place(*labels: Mapping[str, object]) -> Any:
    return SimpleNamespace(rows=[SimpleNamespace(labels=one, family=SimpleNamespace(probe="drops")) for one in labels])


def flow(source: str, per_s: float | None, total: int, **more: object) -> Any:
    labels = {**PLACE, "source": source, "source_port": 53, **more}
    return SimpleNamespace(labels=labels, per_s=lambda name: per_s, total=lambda name: total)


def senders(flows: Sequence[Any] = (), samples: Sequence[Mapping[str, object]] = ()) -> Senders:
    tables = {"flows": SimpleNamespace(rows=dict(enumerate(flows)))} if flows else {}
    events = [SimpleNamespace(fields={**PLACE, **one}) for one in samples]
    return Senders.of_state(cast(Any, SimpleNamespace(probes={"drops": SimpleNamespace(tables=tables, events=events)})))


def test_the_largest_flow_is_told_by_its_rate_and_then_by_its_total() -> None:
    flows = [flow("10.0.0.1", 5.0, 900), flow("10.0.0.2", 7.0, 10), flow("10.0.0.3", None, 9999)]
    assert senders(flows).first(place(PLACE)) == "10.0.0.2:53"
    assert senders([flow("10.0.0.1", None, 9), flow("10.0.0.2", 0.5, 1)]).first(place(PLACE)) == "10.0.0.2:53"
    rest = [flow("10.0.0.1", None, 900), flow("10.0.0.2", 0.0, 901)]
    assert senders(rest).first(place(PLACE)) == "10.0.0.2:53"


def test_the_newest_sample_is_told_where_no_flow_is_known() -> None:
    samples = [{"source": "10.0.0.1"}, {"source": "10.0.0.2"}]
    assert senders(samples=samples).first(place(PLACE)) == "10.0.0.2"
    assert senders([flow("10.0.0.9", 1.0, 1)], samples).first(place(PLACE)) == "10.0.0.9:53"


@pytest.mark.parametrize("name", ["location", "reason", "device", "port", "netns"])
def test_it_is_of_the_same_place(name: str) -> None:
    rows = {name: "there"}
    samples = [{"source": "10.0.0.1", name: "there"}, {"source": "10.0.0.2", name: "elsewhere"}]
    assert senders(samples=samples).first(place(rows)) == "10.0.0.1"
    assert senders(samples=[{**samples[1], "location": "here"}]).first(place({**PLACE, **rows})) == ""


def test_the_first_of_the_first_eight_rows_that_has_one_is_told() -> None:
    rows = [{"location": str(number)} for number in range(9)]
    for number, told in ((7, "10.0.0.1"), (8, "")):
        assert senders(samples=[{"source": "10.0.0.1", "location": str(number)}]).first(place(*rows)) == told
    assert senders(samples=[{"source": ""}]).first(place(PLACE)) == ""
    assert Senders.of_state(cast(Any, SimpleNamespace(probes={}))).first(place(PLACE)) == ""


def test_an_address_of_ipv6_has_brackets_before_its_port() -> None:
    samples = [{"source": "2001:db8::1", "source_port": 53}]
    assert senders(samples=samples).first(place(PLACE)) == "[2001:db8::1]:53"


def test_what_is_no_address_is_cut_and_harmless() -> None:
    assert senders(samples=[{"source": "\x1b" + "x" * 60}]).first(place(PLACE)) == "\\x1b" + "x" * 47 + "…"
