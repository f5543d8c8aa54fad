"""Who sent what died at a place: of flows the largest, of samples the newest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.findings.drop_places import Senders
from netconsole.telemetry.frames import Label
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import CountState, RowState

PLACE: dict[str, Label] = {"location": "here", "device": "eth0"}


def place(*labels: Mapping[str, object]) -> Any:
    return SimpleNamespace(rows=[SimpleNamespace(labels=one, family=SimpleNamespace(probe="drops")) for one in labels])


def flow(source: str, per_s: float | None, total: int, **more: Label) -> Any:
    labels = {**PLACE, "source": source, "source_port": 53, **more}
    return RowState(labels, {"count": CountState(total, None, per_s)}, {}, 0, 0)


def senders(flows: Sequence[Any] = (), samples: Sequence[Mapping[str, object]] = (), by_rate: bool = True) -> Senders:
    events = [SimpleNamespace(fields={**PLACE, **one}) for one in samples]
    table = SimpleNamespace(name="flows", rows={one.key: one for one in flows})
    probe = SimpleNamespace(tables={"flows": table}, events=events, events_arrived=len(events))
    state = SimpleNamespace(probes={"drops": probe}, table=lambda name, _: table if name == "drops" else None)
    return Senders(Span(cast(Any, state)), by_rate)


def test_the_largest_flow_is_told_by_its_rate_and_then_by_its_total() -> None:
    flows = [flow("10.0.0.1", 5.0, 900), flow("10.0.0.2", 7.0, 10), flow("10.0.0.3", None, 9999)]
    assert senders(flows).first(place(PLACE)) == "10.0.0.2:53"
    assert senders([flow("10.0.0.1", None, 9), flow("10.0.0.2", 0.5, 1)]).first(place(PLACE)) == "10.0.0.2:53"
    rest = [flow("10.0.0.1", None, 900), flow("10.0.0.2", 0.0, 901)]
    assert senders(rest).first(place(PLACE)) == "10.0.0.2:53"
    assert senders(flows, by_rate=False).first(place(PLACE)) == "10.0.0.3:53", "in all: of a snapshot"


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
    assert Senders(Span(State())).first(place(PLACE)) == ""


def test_an_address_of_ipv6_has_brackets_before_its_port() -> None:
    samples = [{"source": "2001:db8::1", "source_port": 53}]
    assert senders(samples=samples).first(place(PLACE)) == "[2001:db8::1]:53"


def test_what_is_no_address_is_cut_and_harmless() -> None:
    assert senders(samples=[{"source": "\x1b" + "x" * 60}]).first(place(PLACE)) == "\\x1b" + "x" * 47 + "…"
