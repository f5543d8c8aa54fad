"""Questions are answered once each, in time or with one sentence; one that hangs holds up nobody."""

from __future__ import annotations

import json
import select
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole_collector.kernel.clock import mono_ns
from netconsole_collector.questions import asker, known
from netconsole_collector.questions.asker import Asker

LIMIT_S = 300.0


@pytest.fixture
def may() -> Iterator[threading.Event]:
    """Lets those go that hang."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, may: threading.Event) -> None:
    def broken(arguments: Any) -> Any:
        raise KeyError(7)

    def gone(arguments: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "/proc/none")

    modules: dict[str, Callable[[Any], Any]] = {
        "echo": lambda arguments: arguments,
        "long": lambda arguments: "x" * (asker.MAX_ANSWER_BYTES + 1),
        "broken": broken,
        "gone": gone,
        "hanging": lambda arguments: may.wait(LIMIT_S),
    }
    for name, answer in modules.items():
        monkeypatch.setitem(known.KNOWN, name, LIMIT_S)
        monkeypatch.setitem(sys.modules, f"netconsole_collector.questions.{name}", SimpleNamespace(answer=answer))


def answered(asked: Asker, now_ns: int = 0) -> list[dict[str, Any]]:
    assert select.select([asked.fd], [], [], LIMIT_S)[0]
    return [json.loads(line) for line in asked.answers(now_ns)]


@pytest.mark.parametrize(
    ("question", "arguments", "document", "error"),
    [
        ("echo", {"of": "\ud800 ü"}, {"of": "\ud800 ü"}, None),
        ("echo", [], None, "arguments: expected an object"),
        ("none", {}, None, "unknown question 'none': expected backlog, "),
        (None, {}, None, "unknown question 'None'"),
        ("long", {}, None, "long: an answer of more than 3 MB"),
        ("broken", {}, None, "KeyError: 7"),
        ("gone", {}, None, "No such file or directory"),
        ("namespace", {"name": 7}, None, "name: expected a text"),
        ("namespace", {}, None, "inode: expected a whole number"),
    ],
)
def test_each_has_one_answer_of_one_line(
    made_up: None, question: object, arguments: object, document: object, error: str | None
) -> None:
    asked = Asker()
    asked.ask(7, question, arguments)
    (told,) = answered(asked)
    assert (told["answer"], told["document"]) == (7, document)
    assert str(told["error"]).startswith(str(error))
    assert asked.deadline_ns() is None


def test_one_that_hangs_is_given_up_in_time_and_the_others_are_answered(made_up: None, may: threading.Event) -> None:
    asked = Asker()
    asked.ask(1, "hanging", {})
    asked.ask(2, "echo", {})
    assert [one["answer"] for one in answered(asked)] == [2]
    due = asked.deadline_ns()
    assert due is not None and due > mono_ns()
    (told,) = (json.loads(line) for line in asked.answers(due))
    assert told == {"answer": 1, "document": None, "error": "hanging: no answer within 300 s"}
    may.set()
    assert answered(asked) == [], "its answer comes too late"


def test_no_more_than_some_hang_at_a_time(made_up: None, may: threading.Event) -> None:
    asked = Asker()
    for number in range(asker.MAX_OPEN):
        asked.ask(number, "hanging", {})
    asked.ask(99, "echo", {})
    (told,) = answered(asked)
    assert (told["answer"], told["error"]) == (99, "8 questions have no answer yet")
    may.set()
    while asked.deadline_ns() is not None:
        answered(asked)
    asked.ask(100, "echo", {})
    assert [one["error"] for one in answered(asked)] == [None]
