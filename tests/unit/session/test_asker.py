"""Asking a host why: each question once, what it answers comes as a frame, and one that fails is said."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from netconsole.far.host import THIS_HOST
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.session.asker import MAX_A_MINUTE, CauseAsker
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row, Scalar
from netconsole.telemetry.request import HostQuestion
from netconsole.telemetry.session import News
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key
from tests.unit.telemetry.test_state import SECOND, Stream

LABELS: dict[str, frames.Label] = {"device": "vB"}
ROUTE = HostQuestion("p", "t", row_key(LABELS), "route", {"netns": "blue"})


class Session:
    """What an asker needs of one."""

    def __init__(self) -> None:
        self.state, self.news = State(), threading.Condition()
        self.callbacks: list[Callable[[News], None]] = []
        self.told: list[tuple[HostQuestion, Mapping[str, Scalar | None], str | None]] = []

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        yield self.state

    def on_news(self, callback: Callable[[News], None]) -> None:
        self.callbacks.append(callback)

    def say_answer(
        self, question: HostQuestion, document: Mapping[str, Scalar | None], error: str | None = None
    ) -> None:
        with self.news:
            self.told.append((question, document, error))
            self.news.notify_all()

    def answers(self, count: int) -> list[tuple[HostQuestion, Mapping[str, Scalar | None], str | None]]:
        with self.news:
            assert self.news.wait_for(lambda: len(self.told) >= count, 10)
            return list(self.told)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the host answers, by question; one that it has not fails."""
    known: dict[str, Any] = {}

    def ask(_host: object, question: str, _arguments: object, _kind: object) -> Any:
        if question not in known:
            raise Unanswered(5, "no answer within 3 s")
        found = known[question]
        return found() if callable(found) else found

    monkeypatch.setattr(door, "ask", ask)
    return known


def test_a_question_is_asked_once_and_a_failure_is_said(answers: dict[str, Any]) -> None:
    answers["route"] = {"forwarding": 0}
    session = Session()
    asking = CauseAsker(session, THIS_HOST)
    asking.ask([ROUTE, ROUTE])
    asking.ask([ROUTE, ROUTE._replace(name="firewall")])
    assert session.answers(2) == [
        (ROUTE, {"forwarding": 0}, None),
        (ROUTE._replace(name="firewall"), {}, "no answer within 3 s"),
    ]
    asking.close()


def test_a_host_that_was_too_busy_to_answer_is_asked_once_more(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netconsole.session.asker._AGAIN_AFTER_S", 0.0)
    session, tries = Session(), list[str]()

    def answered_the_second_time(name: str) -> dict[str, Scalar]:
        tries.append(name)
        if tries.count(name) == 1 or name == "never":
            raise Unanswered(errno.ETIMEDOUT, "no answer within 10 s")
        return {"forwarding": 0}

    answers["route"] = lambda: answered_the_second_time("route")
    answers["firewall"] = lambda: answered_the_second_time("never")
    asking = CauseAsker(session, THIS_HOST)
    asking.ask([ROUTE])
    assert session.answers(1) == [(ROUTE, {"forwarding": 0}, None)]
    asking.ask([ROUTE._replace(name="firewall")])
    assert session.answers(2)[1] == (ROUTE._replace(name="firewall"), {}, "no answer within 10 s")
    assert tries == ["route"] * 2 + ["never"] * 2
    asking.close()


@pytest.mark.parametrize(
    ("lost", "counted_per_s", "went_on"),
    [(1, 0, True), (0, 0, False), (100, 60.0, True), (100, 40.0, False)],
    ids=["more was lost", "no more was lost", "it counted about as much", "it counted much less"],
)
def test_what_is_left_over_holds_if_more_was_lost_meanwhile(
    answers: dict[str, Any], lost: int, counted_per_s: float, went_on: bool
) -> None:
    session = Session()
    stream = Stream(session.state)

    def lose(total: int) -> None:
        counts = {"n": Count(delta=max(1, lost), total=total)}
        row = Row(labels=LABELS, counts=counts)
        stream.state.apply(frames.Table(**stream.stamp(), name="t", interval_ns=SECOND, full=False, rows=[row]))

    def looked_up() -> dict[str, Scalar]:
        lose(1 + lost)
        threading.Timer(0.01, lambda: [one("interval") for one in session.callbacks]).start()
        return {"remains": True, "counted_per_s": counted_per_s}

    lose(1)
    answers["route"] = looked_up
    asking = CauseAsker(session, THIS_HOST)
    asking.ask([ROUTE])
    assert session.answers(1)[0][1]["went_on"] is went_on
    asking.close()


def test_a_worse_minute_asks_no_more_than_it_may(answers: dict[str, Any]) -> None:
    answers["route"] = {}
    session = Session()
    asking = CauseAsker(session, THIS_HOST)
    asking.ask(ROUTE._replace(key=row_key({"device": f"v{number}"})) for number in range(2 * MAX_A_MINUTE))
    assert len(session.answers(MAX_A_MINUTE)) == MAX_A_MINUTE
    asking.close()


def test_an_answer_is_in_the_state_of_its_row_and_the_newest_are_kept() -> None:
    stream = Stream(State())
    stream.hello()
    for number in range(300):
        labels: dict[str, frames.Label] = {"device": f"v{number}"}
        stamp = {**stream.stamp(), "source": "console"}
        answer = frames.Answer(**stamp, table="t", labels=labels, question="route", document={"forwarding": number})
        stream.state.apply(frames.decode(frames.encode(answer)))
    probe = stream.state.probes["p"]
    assert probe.answer("t", row_key({"device": "v0"})) is None
    newest = probe.answer("t", row_key({"device": "v299"}))
    assert newest is not None and newest.document == {"forwarding": 299}
