"""The end does not depend on the user interface; and what is known of the reader of the screen."""

from __future__ import annotations

import os
import pty
import signal
import termios
import threading
import time
from collections.abc import Iterator

import pytest

from netconsole.tui.terminal import lifeline
from netconsole.tui.terminal.flow_control import (
    BELIEVED_S,
    DOUBTED_S,
    GIVE_UP_S,
    GIVE_UP_TIMES,
    QUESTION,
    TERMINAL_BUFFER_BYTES,
    FlowControl,
)
from netconsole.tui.terminal.lifeline import DEADLINE_S, EXIT_INTERRUPTED, RESTORE, Lifeline
from netconsole.tui.terminal.pump import Pump

pytestmark = pytest.mark.terminals

LIMIT_S = 60.0


class Guarded:
    """A lifeline with everything around it pretended."""

    def __init__(self) -> None:
        self.master, self.terminal = pty.openpty()
        self.closed = threading.Event()
        self.asked = threading.Event()
        self.ended: list[int] = []
        self.gone = threading.Event()
        self.killed = threading.Event()
        self.lifeline = Lifeline(self.terminal, self.closed.set, self.asked.set, self.end, self.killed.set)

    def end(self, status: int) -> None:
        self.ended.append(status)
        self.gone.set()


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    one = Guarded()
    one.lifeline.start()
    yield one
    one.lifeline.finish()
    for fd in (one.master, one.terminal):
        if fd >= 0:
            os.close(fd)


def test_a_session_may_close_late_when_the_user_has_left_and_the_screen_is_closed(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lifeline, "DEADLINE_S", 0.0)
    guarded.lifeline.screen_closed()
    guarded.lifeline.leaving()
    assert guarded.asked.wait(LIMIT_S)
    guarded.lifeline.finish()
    assert not guarded.ended and not guarded.killed.is_set()
    guarded.lifeline = Lifeline(guarded.terminal, lambda: None, lambda: None, guarded.end, guarded.killed.set)
    guarded.lifeline.start()


@pytest.mark.parametrize("how", ["by a signal", "never"])
def test_but_not_after_a_signal_nor_for_ever(guarded: Guarded, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(lifeline, "DEADLINE_S", 0.0)
    monkeypatch.setattr(lifeline, "CLOSING_S", 0.0 if how == "never" else 3600.0)
    guarded.lifeline.screen_closed()
    if how == "never":
        guarded.lifeline.leaving()
    else:
        os.kill(os.getpid(), signal.SIGTERM)
    assert guarded.gone.wait(LIMIT_S)
    assert guarded.killed.is_set() and guarded.ended == [EXIT_INTERRUPTED]


def test_a_signal_closes_the_session_and_asks_to_leave(guarded: Guarded) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert guarded.closed.wait(LIMIT_S) and guarded.asked.wait(LIMIT_S)
    assert guarded.lifeline.reason == "SIGTERM"
    guarded.lifeline._finished.set()
    guarded.lifeline._thread.join(LIMIT_S)
    assert guarded.ended == [], "who leaves in time is not ended"


def test_who_does_not_leave_is_ended_and_the_terminal_restored(guarded: Guarded) -> None:
    before = termios.tcgetattr(guarded.terminal)
    raw = termios.tcgetattr(guarded.terminal)
    raw[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(guarded.terminal, termios.TCSANOW, raw)
    started = time.monotonic()
    guarded.lifeline.leaving()
    assert guarded.gone.wait(LIMIT_S)
    assert time.monotonic() - started > DEADLINE_S - 0.1
    assert guarded.ended == [EXIT_INTERRUPTED]
    assert guarded.closed.is_set() and guarded.killed.is_set()
    assert termios.tcgetattr(guarded.terminal) == before
    assert os.read(guarded.master, 4096).startswith(RESTORE.encode())


def test_a_terminal_that_vanishes_is_noticed_without_a_signal(guarded: Guarded) -> None:
    os.close(guarded.master)
    guarded.master = -1
    assert guarded.closed.wait(LIMIT_S) and guarded.asked.wait(LIMIT_S)
    assert guarded.lifeline.reason == "the terminal is gone"
    guarded.lifeline._finished.set()


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    one = Guarded()
    one.lifeline.start()
    assert signal.getsignal(signal.SIGTERM) is not before[0]
    one.lifeline.finish()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)] == before
    os.close(one.master)
    os.close(one.terminal)


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class TestFlow:
    def test_an_answer_ends_the_wait_and_tells_the_delay(self) -> None:
        clock = Clock()
        flow = FlowControl(True, clock)
        assert flow.question() == QUESTION
        assert flow.question() == "", "one at a time"
        clock.now_s += 0.4
        flow.answer()
        assert not flow.busy()
        assert flow.delay_s() == pytest.approx(0.4)
        flow.question()
        assert flow.busy(), "until it is answered, nothing more is drawn"

    def test_while_an_answer_is_late_the_delay_grows(self) -> None:
        clock = Clock()
        flow = FlowControl(True, clock)
        flow.question()
        flow.answer()
        flow.question()
        clock.now_s += 2.5
        assert flow.delay_s() == pytest.approx(2.5)

    def test_a_terminal_that_never_answers_is_left_alone(self) -> None:
        clock = Clock()
        flow = FlowControl(True, clock)
        for _ in range(GIVE_UP_TIMES):
            assert flow.question() == QUESTION
            assert not flow.busy(), "it may be one that cannot answer"
            clock.now_s += GIVE_UP_S + 0.1
            assert not flow.busy()
        assert flow.question() == ""

    def test_a_terminal_that_was_stopped_once_is_drawn_on_again(self) -> None:
        """It took ten bytes in ten seconds and reads as fast as ever since. Who writes nothing cannot know that."""
        clock = Clock()
        flow = FlowControl(False, clock)
        flow.wrote(20_000, waited_s=10.0, taken_waiting=10)
        clock.now_s += DOUBTED_S
        assert flow.busy()
        clock.now_s += 0.1
        assert not flow.busy()
        flow.wrote(3_000, 0.0, 0)
        assert not flow.busy() and flow.delay_s() == 0.0, "there was room"
        flow.wrote(20_000, waited_s=1.0, taken_waiting=8_000)
        assert flow.busy()
        clock.now_s += TERMINAL_BUFFER_BYTES / 8_000
        assert not flow.busy(), "by the speed of now"

    def test_a_sudden_stop_is_believed_for_long_only_when_it_is_measured_again(self) -> None:
        clock = Clock()
        flow = FlowControl(False, clock)
        for _ in range(2):
            flow.wrote(8_000, waited_s=1.0, taken_waiting=8_000)
            clock.now_s += 1.0
        for believed_s in (DOUBTED_S, BELIEVED_S):
            flow.wrote(100, waited_s=10.0, taken_waiting=100)
            clock.now_s += believed_s
            assert flow.busy()
            clock.now_s += 0.1
            assert not flow.busy()

    @pytest.mark.parametrize("was_full", [True, False])
    def test_a_few_bytes_that_waited_in_a_stop_do_not_make_a_reader_slow(self, was_full: bool) -> None:
        """In four seconds it has read 12 000 bytes: what was written, less what fills the buffer of one that was empty.

        For three of them it stood.
        """
        clock = Clock()
        flow = FlowControl(False, clock)
        if was_full:
            flow.wrote(20_000, waited_s=1.0, taken_waiting=8_000)
        clock.now_s += 4.0
        flow.wrote(12_000 + (0 if was_full else TERMINAL_BUFFER_BYTES), waited_s=3.0, taken_waiting=40)
        assert flow.busy()
        clock.now_s += TERMINAL_BUFFER_BYTES / 3_000
        assert not flow.busy()

    def test_without_answers_a_full_buffer_is_known_by_its_waiting(self) -> None:
        clock = Clock()
        flow = FlowControl(False, clock)
        flow.wrote(20_000, waited_s=1.0, taken_waiting=8_000)
        assert flow.busy()
        assert flow.delay_s() > TERMINAL_BUFFER_BYTES / 8_000
        clock.now_s += TERMINAL_BUFFER_BYTES / 8_000
        assert not flow.busy()

    def test_a_reader_that_becomes_faster_is_believed(self) -> None:
        clock = Clock()
        flow = FlowControl(False, clock)
        flow.wrote(20_000, waited_s=1.0, taken_waiting=1_000)
        before = flow.delay_s()
        flow.wrote(8_000, 0.0, 0)
        assert flow.delay_s() < before

    def test_a_reader_that_keeps_up_costs_nothing(self) -> None:
        flow = FlowControl(False, Clock())
        flow.wrote(50_000, 0.0, 0)
        assert not flow.busy() and flow.delay_s() == 0.0

    def test_leaving_waits_for_an_answer_that_is_due(self) -> None:
        flow = FlowControl(True)
        flow.question()
        threading.Timer(0.05, flow.answer).start()
        flow.stop_asking(LIMIT_S)
        assert flow.question() == "" and not flow.busy()


class TestPump:
    async def test_news_in_a_burst_is_one_drawing(self) -> None:
        import asyncio

        drawn: list[int] = []
        pump = Pump(lambda: drawn.append(1), lambda: 0)
        pump.start()
        threads = [threading.Thread(target=pump.news, args=("interval",)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert drawn == [1]

    async def test_after_the_end_news_is_nothing(self) -> None:
        pump = Pump(lambda: pytest.fail("drawn after the end"), lambda: 0)
        pump.start()
        pump.stop()
        pump.news()
        assert not pump.running


def test_rich_still_has_the_caches_that_are_emptied() -> None:
    from rich.cells import cached_cell_len
    from rich.segment import Segment

    from netconsole.tui.terminal import app

    cached_cell_len("some text that is new")
    Segment("漢字 and more").split_cells(5)
    assert Segment._split_cells.cache_info().currsize > 0
    app.forget_texts()
    assert cached_cell_len.cache_info().currsize == 0
    assert Segment._split_cells.cache_info().currsize == 0


def test_textual_still_has_the_queue_whose_depth_is_asked() -> None:
    from textual.drivers._writer_thread import WriterThread

    class Nowhere:
        def write(self, _text: str) -> None: ...

        def flush(self) -> None: ...

    writer = WriterThread(Nowhere())  # type: ignore[arg-type]
    writer.write("x")
    assert writer._queue.qsize() == 1
