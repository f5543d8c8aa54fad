"""A span is what was counted since a mark: without one everything, and of what began again all that it has."""

from __future__ import annotations

from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.span import Span, probe_totals
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
