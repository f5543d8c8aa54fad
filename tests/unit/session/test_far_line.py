"""The clocks of a far host are related to ours by round trips, and its frames have the times of our clocks."""

from __future__ import annotations

import itertools
import time

import pytest

from netconsole.far.address import Address
from netconsole.host.collector_process import CollectorProcess
from netconsole.session.far_line import FarLine
from netconsole.telemetry import frames

S = 1_000_000_000
AHEAD_NS = 7000 * S
"""The far monotonic clock minus ours: another time of boot."""
WALL_AHEAD_NS = 3 * S


class Clocks:
    """Ours, which stand still until they are moved; and a collector that sends nothing."""

    received_bytes = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mono_ns = 100 * S
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.mono_ns)
        monkeypatch.setattr(time, "monotonic", lambda: self.mono_ns / S)
        monkeypatch.setattr(time, "time_ns", lambda: self.mono_ns + 1000 * S)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def sent(kind: type[frames.Hello] | type[frames.Reply], at_ns: int) -> frames.AnyFrame:
    """A frame that was sent when our clock was there."""
    mono_ns, wall_ns = at_ns + AHEAD_NS, at_ns + 1000 * S + WALL_AHEAD_NS
    if kind is frames.Reply:
        return frames.Reply(seq=1, mono_ns=mono_ns, wall_ns=wall_ns, id=1, ok=True)
    host = frames.Host(name="hv", kernel="6.1", arch="x86_64", os="", cpus=1, boot_id="")
    return frames.Hello(seq=1, mono_ns=mono_ns, wall_ns=wall_ns, host=host, collector={}, capabilities={})


def ask(line: FarLine, clocks: Clocks, there_ms: float, back_ms: float) -> frames.AnyFrame:
    """A question and its answer, which take so long; the answer as readers see it."""
    line.asked(1)
    at_ns = clocks.mono_ns + round(there_ms * 1e6)
    clocks.mono_ns = at_ns + round(back_ms * 1e6)
    return line.arrived(sent(frames.Reply, at_ns), process(clocks))


def process(clocks: Clocks) -> CollectorProcess:
    return clocks  # type: ignore[return-value]


def test_half_the_shortest_round_trip_is_the_most_that_the_clocks_are_off(clocks: Clocks) -> None:
    line = FarLine(Address("hv"))
    line.arrived(sent(frames.Hello, clocks.mono_ns - 25_000_000), process(clocks))
    assert line.state().clock_within_s is None
    ask(line, clocks, 300, 25)
    ask(line, clocks, 30, 20)
    ask(line, clocks, 25, 400)
    state = line.state()
    assert (state.round_trip_s, state.clock_within_s) == (0.05, 0.025)
    assert state.ahead_s == pytest.approx(WALL_AHEAD_NS / S, abs=0.025)
    at_ns = clocks.mono_ns
    frame = line.here(sent(frames.Reply, at_ns))
    assert abs(frame.mono_ns - at_ns) <= 0.025 * S and abs(frame.wall_ns - at_ns - 1000 * S) <= 0.025 * S


def test_what_is_older_than_a_minute_no_longer_counts(clocks: Clocks) -> None:
    line = FarLine(Address("hv"))
    ask(line, clocks, 1, 1)
    clocks.mono_ns += 61 * S
    ask(line, clocks, 20, 20)
    assert line.state().round_trip_s == 0.04


def test_before_the_first_answer_a_frame_is_from_about_now(clocks: Clocks) -> None:
    """The line's delay is then not known: 25 ms here."""
    line = FarLine(Address("hv"))
    hello = line.arrived(sent(frames.Hello, clocks.mono_ns - 25_000_000), process(clocks))
    assert hello.mono_ns == clocks.mono_ns


def test_it_asks_soon_at_first_and_seldom_later(clocks: Clocks) -> None:
    line = FarLine(Address("hv"))
    asked = []
    for _ in range(300):
        if line.is_due():
            asked.append(clocks.mono_ns / S)
            ask(line, clocks, 0, 0)
        clocks.mono_ns += S // 10
    gaps = [round(later - earlier, 1) for earlier, later in itertools.pairwise(asked)]
    assert gaps[:3] == [0.2] * 3 and gaps[-3:] == [5.0] * 3


def test_an_answer_to_another_command_tells_no_time(clocks: Clocks) -> None:
    line = FarLine(Address("hv"))
    line.asked(2)
    clocks.mono_ns += S
    line.arrived(sent(frames.Reply, clocks.mono_ns), process(clocks))
    assert line.state().round_trip_s is None


def test_what_is_carried_is_bytes_per_second(clocks: Clocks) -> None:
    line = FarLine(Address("hv"))
    line.arrived(sent(frames.Hello, clocks.mono_ns), process(clocks))
    clocks.mono_ns += 5 * S
    clocks.received_bytes = 10_000
    line.arrived(sent(frames.Reply, clocks.mono_ns), process(clocks))
    assert line.state().bytes_per_s == 2000.0
    clocks.mono_ns += 4 * S
    clocks.received_bytes = 11_000
    line.arrived(sent(frames.Reply, clocks.mono_ns), process(clocks))
    assert line.state().bytes_per_s == 2000.0, "the mean of five seconds, which are not over"
    clocks.mono_ns += 2 * S
    clocks.received_bytes = 13_000
    line.arrived(sent(frames.Reply, clocks.mono_ns), process(clocks))
    assert line.state().bytes_per_s == 500.0, "3000 bytes more in 6 s"


def test_clocks_that_make_no_sense_give_times_that_a_frame_has_room_for(clocks: Clocks) -> None:
    line = FarLine(Address("hv"))
    host = frames.Host(name="hv", kernel="6.1", arch="x86_64", os="", cpus=1, boot_id="")
    least, most = -(2**63), 2**63 - 1
    hello = frames.Hello(seq=1, mono_ns=least, wall_ns=least, host=host, collector={}, capabilities={})
    line.arrived(hello, process(clocks))
    frame = line.here(frames.Reply(seq=2, mono_ns=most, wall_ns=most, id=7, ok=True))
    assert frames.decode(frames.encode(frame)) == frame
