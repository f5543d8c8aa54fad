"""What comes over the line of questions when nobody waits for it any more."""

from __future__ import annotations

import json
from concurrent.futures import Future

import pytest

from netconsole.far.program import Launch
from netconsole.host.question_line import Greeting, QuestionLine, _hello, _Nonsense


def test_a_greeting_that_comes_after_it_was_given_up_is_no_answer() -> None:
    line = QuestionLine(lambda: Launch(["true"]))
    given_up: Future[Greeting] = Future()
    given_up.set_exception(OSError("it does not answer"))
    greeting = json.dumps({"version": 1, "nodename": ["x" * 40] * 3}).encode()
    with pytest.raises(_Nonsense):
        line._next(bytearray(len(greeting).to_bytes(4, "little") + greeting), given_up)
    assert (line.cpu_ns, line.memory_kb) == (0, 0)


@pytest.mark.parametrize("said", [b'{"byteorder":"\xff"}', b"[" * 5000, b"{}", b'{"version":[]}'])
def test_a_greeting_that_cannot_be_read_is_no_message(said: bytes) -> None:
    with pytest.raises(_Nonsense):
        _hello(said)
