"""Where packets die, by made-up rules: what is one place, who says how many, and what remains of a coarse source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from netconsole.findings.drop_places import (
    CLEARLY_MORE,
    MOSTLY_UNSEEN,
    CountedRow,
    DropPlace,
    drop_places,
    of_span,
    with_incidents,
)
from netconsole.findings.match import Level
from netconsole.findings.windows import Family
from netconsole.probes.catalogue import shipped
from netconsole.probes.manifest import DropPlaceSpec, Manifest
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key
from tests.unit.telemetry.test_state import Stream

EXACT, LEAST = False, True


def spec(stage: str = "tap", say: str = "full", **more: Any) -> DropPlaceSpec:
    return DropPlaceSpec("t", "n", **{"stage": stage, "at": "{device}", "say": say, **more})


def rules(**specs: DropPlaceSpec | tuple[DropPlaceSpec, ...]) -> dict[str, Manifest]:
    """Probes that count in the value n of a table t, by name."""
    known = {name: one if isinstance(one, tuple) else (one,) for name, one in specs.items()}
    return {name: replace(shipped("softnet"), name=name, drop_places=some) for name, some in known.items()}


def row(
    probe: str,
    total: int,
    per_s: float | None = None,
    at_least: bool = False,
    now: bool = False,
    kind: str = "",
    **labels: Any,
) -> CountedRow:
    labels = {"device": "eth0", **({"class": kind} if kind else {}), **labels}
    return CountedRow(Family(probe, "t", "n"), row_key(labels), labels, total, per_s, at_least, now)


def told(found: list[DropPlace]) -> list[tuple[str, str, int, float | None]]:
    return [(place.stage, place.at, place.total, place.per_s) for place in found]


def test_rows_that_differ_in_what_no_line_says_are_one_place() -> None:
    manifests = rules(fine=spec())
    rows = [row("fine", 2, 1.0, cpu=0), row("fine", 5, None, True, cpu=1), row("fine", 3, 0.5, now=True, cpu=2)]
    [place] = drop_places(rows, manifests)
    assert (place.total, place.per_s, place.at_least, place.now_at_least) == (10, 1.5, True, True)
    assert [one.total for one in place.rows] == [5, 3, 2] and place.best is rows[1]
    assert place.name == ("tap", "eth0", "full")
    [unknown] = drop_places([row("fine", 2)], manifests)
    assert (unknown.per_s, unknown.at_least, unknown.now_at_least) == (None, False, False)


def test_the_last_rule_that_fits_a_row_says_it() -> None:
    manifests = rules(
        fine=(
            spec("kernel"),
            spec("firewall", where={"hook": ("input",)}),
            spec("none", where={"part": ("yes",)}, left_out=True),
            DropPlaceSpec("t", "other", "x", "x", "x"),
            DropPlaceSpec("other", "n", "x", "x", "x"),
        )
    )
    rows = [row("fine", 1), row("fine", 2, hook="input"), row("fine", 4, hook="input", part="yes")]
    assert told(drop_places(rows, manifests)) == [("firewall", "eth0", 2, None), ("kernel", "eth0", 1, None)]
    assert drop_places([row("unknown", 1)], manifests) == []


@pytest.mark.parametrize(
    ("labels", "at", "level"),
    [
        ({}, "eth0", "!"),
        ({"netns": "host"}, "eth0", "!"),
        ({"netns": ""}, "eth0", "!"),
        ({"netns": "blue"}, "eth0 (netns blue)", "!"),
        ({"netns": "blue", "device": ""}, "netns blue", "!"),
        ({"device": None}, "", "!"),
        ({"class": "benign"}, "eth0", "ok"),
        ({"class": "unknown"}, "eth0", "?"),
        ({"class": "suspicious"}, "eth0", "!"),
        ({"device": "x" * 95}, f"{'x' * 90}…", "!"),
    ],
)
def test_a_place_is_named_with_its_namespace(labels: dict[str, Any], at: str, level: str) -> None:
    [place] = drop_places([row("fine", 1, **labels)], rules(fine=spec()))
    assert (place.at, place.level) == (at, level)


FINE, COARSE = (
    spec("tap", fine=2, same_as=("w",), by={"d": "{device}"}),
    spec("driver", fine=1, same_as=("w",), by={"d": "{device}"}),
)


def test_the_source_that_saw_most_says_how_many() -> None:
    manifests = rules(coarse=COARSE, fine=FINE)
    for totals, rates, expected in (
        ((70, 100), (5.0, 3.0), ("tap", "eth0", 100, 5.0)),
        ((100, 70), (3.0, 5.0), ("tap", "eth0", 100, 5.0)),
        ((1, 2), (None, 3.0), ("tap", "eth0", 2, 3.0)),
        ((1, 2), (3.0, None), ("tap", "eth0", 2, 3.0)),
        ((1, 2), (None, None), ("tap", "eth0", 2, None)),
        ((1, 2), (None, 0.0), ("tap", "eth0", 2, 0.0)),
    ):
        rows = [row("fine", totals[0], rates[0]), row("coarse", totals[1], rates[1])]
        found = drop_places(rows, manifests)
        assert told(found) == [expected]
        assert found[0].rows == rows and not found[0].shared


def test_two_places_of_a_coarse_source_are_added_up() -> None:
    """70 of the fine one; 60 and 20 of the coarse one, which names two reasons."""
    coarse = (COARSE, replace(COARSE, say="other", where={"why": ("y",)}))
    rows = [row("fine", 70, 7.0), row("coarse", 60, 6.0), row("coarse", 20, 2.0, why="y")]
    assert told(drop_places(rows, rules(fine=FINE, coarse=coarse))) == [("tap", "eth0", 80, 8.0)]


@pytest.mark.parametrize(
    ("fine", "coarse", "at_least"),
    [((70, EXACT), (100, LEAST), True), ((70, LEAST), (100, EXACT), False), ((100, LEAST), (70, EXACT), True),
     ((100, EXACT), (70, LEAST), False), ((70, EXACT), (70, LEAST), True)],
)  # fmt: skip
def test_a_total_is_a_lower_bound_where_its_source_says_so(
    fine: tuple[int, bool], coarse: tuple[int, bool], at_least: bool
) -> None:
    rows = [row("fine", fine[0], 1.0, fine[1]), row("coarse", coarse[0], 1.0, coarse[1])]
    [place] = drop_places(rows, rules(fine=FINE, coarse=COARSE))
    assert place.at_least is at_least


@pytest.mark.parametrize(
    ("other", "count"),
    [
        ({}, 1),
        ({"device": "eth1"}, 2),
        ({"device": ""}, 1),  # a source that knows no device
        ({"device": None}, 1),
    ],
)
def test_only_what_is_of_one_place_is_the_same(other: dict[str, Any], count: int) -> None:
    manifests = rules(fine=FINE, coarse=COARSE)
    assert len(drop_places([row("fine", 1), row("coarse", 1, **other)], manifests)) == count
    assert len(drop_places([row("fine", 1, **other), row("coarse", 1)], manifests)) == count


def test_sources_without_a_word_in_common_count_other_packets() -> None:
    other = replace(COARSE, same_as=("v", ""))
    assert len(drop_places([row("fine", 1), row("coarse", 1)], rules(fine=FINE, coarse=other))) == 2
    by_alias = replace(other, aliases={"w": ("u", "v")})
    assert len(drop_places([row("fine", 1), row("coarse", 1)], rules(fine=FINE, coarse=by_alias))) == 1
    filled = replace(COARSE, same_as=("{word}",))
    rows = [row("fine", 1), row("coarse", 1, word="w"), row("coarse", 4, word="x")]
    assert [place.total for place in drop_places(rows, rules(fine=FINE, coarse=filled))] == [4, 1]


def test_a_finer_place_may_tell_the_same_elsewhere() -> None:
    here = replace(COARSE, elsewhere={"d": "{peer}"}, same_elsewhere=("w",), same_as=())
    rows = [row("fine", 5, device="veth1"), row("coarse", 3, peer="veth1")]
    assert [place.at for place in drop_places(rows, rules(fine=FINE, coarse=here))] == ["veth1"]
    for peer in ("veth2", "", None):  # another one, or none
        rows[1] = row("coarse", 3, peer=peer)
        assert [place.at for place in drop_places(rows, rules(fine=FINE, coarse=here))] == ["veth1", "eth0"]


REST = replace(COARSE, rest=True)


@pytest.mark.parametrize(
    ("fine", "coarse", "rest"),
    [
        ((90, 9.0), (100, 10.0), (10, 1.0)),  # a tenth of its rate
        ((90, 9.0), (100, 9.99), None),
        ((50, None), (100, None), (50, None)),  # half of its total
        ((51, None), (100, None), None),
        ((50, 2.0), (100, 1.0), (50, 0.0)),
        ((100, 1.0), (100, 9.0), None),  # no packet more, whatever the rates
        ((200, 1.0), (100, 9.0), None),
        ((99, 0.0), (100, 0.0), None),
        ((99, None), (100, 5.0), (1, 5.0)),
    ],
)
def test_what_remains_of_a_coarse_place_is_told_where_it_is_clearly_more(
    fine: tuple[int, float | None], coarse: tuple[int, float | None], rest: tuple[int, float | None] | None
) -> None:
    assert (CLEARLY_MORE, MOSTLY_UNSEEN) == (0.1, 0.5)
    rows = [row("fine", *fine), row("coarse", *coarse)]
    found = drop_places(rows, rules(fine=FINE, coarse=REST))
    of_stage = {place.stage: place for place in found}
    assert (of_stage["tap"].total, of_stage["tap"].per_s) == fine
    if rest is None:
        assert [*of_stage] == ["tap"] and of_stage["tap"].rows == rows and not of_stage["tap"].shared
    else:
        assert (of_stage["driver"].total, of_stage["driver"].per_s) == rest and of_stage["tap"].rows == rows[:1]


def test_of_several_finer_places_all_are_taken_off_and_share_what_is_not_clearly_more() -> None:
    fine = [row("fine", 40, 4.0), row("fine", 30, 3.0, device="eth1")]
    for coarse in (REST, COARSE):
        manifests = rules(fine=FINE, coarse=coarse)
        more = drop_places([*fine, row("coarse", 100, 10.0, device="")], manifests)
        assert sorted(told(more))[0] == ("driver", "", 30, 3.0)
        rest = next(place for place in more if place.stage == "driver")
        assert (rest.counted, rest.rates) == ({Family("coarse", "t", "n"): 30}, {Family("coarse", "t", "n"): 3.0})
        few = row("coarse", 75, 7.0, device="")
        found = drop_places([*fine, few], manifests)
        assert [place.rows for place in found] == [[fine[0], few], [fine[1], few]]
        assert [place.shared for place in found] == [{(few.family, few.key)}] * 2


def test_what_remains_is_held_against_sources_that_are_coarser_still() -> None:
    """Of 100, the driver's rest is 40. The protocol's 90 are the same packets: 60 of the tap, and 40 of the rest."""
    coarsest = replace(REST, stage="protocol", fine=0)
    rows = [row("fine", 60, 6.0), row("coarse", 100, 10.0), row("coarsest", 90, 9.0)]
    found = drop_places(rows, rules(coarsest=coarsest, coarse=REST, fine=FINE))
    assert told(found) == [("tap", "eth0", 60, 6.0), ("driver", "eth0", 40, 4.0)]
    assert [len(place.rows) for place in found] == [2, 2]


def test_places_are_ranked_by_what_nobody_wants_then_by_rate_total_and_name() -> None:
    rows = [
        row("fine", 1, 9.0, device="wanted", kind="benign"),
        row("fine", 9, 0.0, device="stands"),
        row("fine", 9, None, device="quiet"),
        row("fine", 10, None, device="many"),
        row("fine", 1, 0.5, device="slow"),
        row("fine", 1, 2.0, device="fast"),
        row("fine", 2, 0.5, device="more"),
    ]
    order = ["fast", "more", "slow", "many", "quiet", "stands", "wanted"]
    assert [place.at for place in drop_places(rows, rules(fine=spec()))] == order


def test_an_incident_raises_the_level_of_its_place_and_its_rank() -> None:
    rows = [row("fine", 5, 5.0), row("fine", 1, 1.0, device="eth1", kind="benign")]
    levels: Mapping[str, Level] = {"eth1": "!"}
    marked = with_incidents(drop_places(rows, rules(fine=spec())), lambda one: levels.get(str(one.labels["device"])))
    assert [(place.at, place.level) for place in marked] == [("eth0", "!"), ("eth1", "!")]
    lower = with_incidents(marked, lambda one: "?")
    assert [place.level for place in lower] == ["!", "!"]
    worse = with_incidents(marked, lambda one: "!!" if one is rows[1] else None)
    assert [(place.at, place.level) for place in worse] == [("eth0", "!"), ("eth1", "!!")]


@pytest.fixture
def stream() -> Iterator[Stream]:
    one = Stream(State())
    one.hello()
    one.status()
    yield one


def test_places_of_a_running_measurement(stream: Stream) -> None:
    """Of the rows that have counted anything, with the rate of the last interval."""
    manifests = rules(p=(spec(), spec("again")), absent=spec())
    labels: list[dict[str, Any]] = [{"device": name} for name in ("eth0", "eth1", "eth2")]
    counts = [{"n": Count(3, 7)}, {"n": Count(0, 0)}, {"other": Count(1, 1)}]
    rows = [Row(labels=one, counts=count, gauges={}) for one, count in zip(labels, counts, strict=True)]
    stream.table(*rows, interval_ns=2_000_000_000)
    stream.end()
    [place] = of_span(Span(stream.state), manifests)
    assert (place.stage, place.at, place.total, place.per_s) == ("again", "eth0", 7, 1.5)
    assert (place.at_least, place.now_at_least) == (False, False)
    stream.cost(ledger={"missed": Count(1, 1)})
    stream.end()
    [place] = of_span(Span(stream.state), manifests)
    assert (place.at_least, place.now_at_least) == (True, True)
    stream.cost(ledger={"missed": Count(0, 1)})
    stream.end()
    [place] = of_span(Span(stream.state), manifests)
    assert (place.at_least, place.now_at_least) == (True, False)
    assert of_span(Span(stream.state), rules(p=DropPlaceSpec("none", "n", "x", "x", "x"))) == []
