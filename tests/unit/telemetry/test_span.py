"""A span is what was counted since a mark: without one everything, and of what began again all that it has."""

from __future__ import annotations

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.span import ProbeTotals, Span, has_gone_back, probe_totals, totals_before
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import Stream


def counted(stream: Stream, total: int, missed: int = 0) -> None:
    stream.table(Row({"cpu": 0}, {"n": Count(1, total)}), Row({"cpu": 1}, {"n": Count(0, 5)}))
    stream.cost(ledger={"missed": Count(0, missed)})
    stream.end()


def test_it_has_what_was_counted_since_its_mark() -> None:
    stream = Stream(State())
    stream.hello()
    stream.status()
    counted(stream, 40, missed=2)
    mark = probe_totals(stream.state.probes["p"])
    counted(stream, 47, missed=3)
    whole, since = Span(stream.state), Span(stream.state, {"p": mark})
    assert whole.rows("p", "t") == [{"cpu": 0, "n": 47}, {"cpu": 1, "n": 5}]
    assert since.rows("p", "t") == [{"cpu": 0, "n": 7}], "what has counted nothing is left out"
    assert (whole.ledger("p"), since.ledger("p")) == ({"missed": 3}, {"missed": 1})
    assert whole.rows("p", "other") == whole.rows("other", "t") == [] and whole.ledger("other") == {}


def test_a_total_that_is_lower_than_its_mark_began_again() -> None:
    stream = Stream(State())
    stream.hello()
    stream.status()
    counted(stream, 40)
    mark = probe_totals(stream.state.probes["p"])
    stream.state.apply(
        frames.Table(**stream.stamp(), name="t", interval_ns=1, full=True, rows=[Row({"cpu": 0}, {"n": Count(3, 3)})])
    )
    assert Span(stream.state, {"p": mark}).rows("p", "t") == [{"cpu": 0, "n": 3}]


def test_a_row_is_told_if_one_of_its_values_has_moved_or_it_has_gauges() -> None:
    stream = Stream(State())
    stream.hello()
    stream.table(Row({"cpu": 0}, {"n": Count(0, 0), "m": Count(3, 3)}), Row({"cpu": 1}, {"n": Count(0, 0)}, {"g": 0.0}))
    assert Span(stream.state).rows("p", "t") == [{"cpu": 0, "n": 0, "m": 3}, {"cpu": 1, "n": 0, "g": 0.0}]


def test_the_totals_before_the_last_interval_are_without_what_moved_in_it() -> None:
    stream = Stream(State())
    stream.hello()
    stream.status()
    stream.table(Row({"cpu": 0}, {"n": Count(7, 47), "m": Count(0, 5)}), Row({"cpu": 1}, {"n": Count(0, 5)}))
    stream.cost(ledger={"missed": Count(2, 9)})
    before = totals_before(stream.state.probes["p"])
    assert before.rows == {("t", (("cpu", 0),)): {"n": 40, "m": 5}, ("t", (("cpu", 1),)): {"n": 5}}
    assert before.ledger == {"missed": 7}
    stream.end()
    stream.end()  # without a frame of it: by how much it has moved is not known
    assert totals_before(stream.state.probes["p"]).rows["t", (("cpu", 0),)] == {"n": 47, "m": 5}


@pytest.mark.parametrize(("now", "gone_back"), [((40, 8), False), ((39, 8), True), ((40, 9), False), ((41, 7), True)])
def test_a_counter_that_is_lower_than_before_has_begun_again(now: tuple[int, int], gone_back: bool) -> None:
    stream = Stream(State())
    stream.hello()
    stream.counters(n=(0, 40), m=(0, 8))
    mark = probe_totals(stream.state.probes["p"])
    stream.counters(n=(0, now[0]), m=(0, now[1]), new=(0, 0))
    assert has_gone_back(stream.state.probes["p"], mark) is gone_back


def test_samples_are_those_that_have_come_since() -> None:
    stream = Stream(State())
    stream.hello()

    def sample(number: int) -> None:
        stream.state.apply(frames.Event(**stream.stamp(), name="one", fields={"number": number}))

    def since(mark: ProbeTotals | None) -> list[object]:
        span = Span(stream.state, {} if mark is None else {"p": mark})
        return [event.fields["number"] for event in span.events("p")]

    sample(1)
    first = probe_totals(stream.state.probes["p"])
    assert since(first) == []
    sample(2)
    assert (since(first), since(None)) == ([2], [1, 2])
    sample(3)
    assert since(first) == [2, 3] and Span(stream.state).events("other") == []
