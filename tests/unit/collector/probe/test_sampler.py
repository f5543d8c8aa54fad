"""When sampled probes are attached and when they rest, by a made-up clock: for their share, together, never at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pytest

from netconsole_collector.probe import sampler
from netconsole_collector.probe.attached_program import Released
from netconsole_collector.probe.sampler import MAX_PERIOD_NS, PAUSE_NS, PERIOD_NS, Sampler

MS = 1_000_000
SECOND = 1000 * MS


class Clock:
    def __init__(self) -> None:
        self.now = 50 * SECOND

    def __call__(self) -> int:
        return self.now


class Probe:
    """In place of a running probe: it knows when it was attached."""

    def __init__(self, name: str, seen_pct: int, clock: Clock, fds: list[int], attach_ns: int = 0) -> None:
        self.name, self.seen_pct, self.sampled_fds = name, seen_pct, fds
        self._clock, self._attach_ns = clock, attach_ns
        self.since: int | None = clock.now
        self.attached = len(fds)
        self.spans: list[tuple[int, int]] = []
        self.refuses = False

    @property
    def is_sampled(self) -> bool:
        return self.seen_pct < 100

    def rest(self) -> list[int]:
        assert self.since is not None
        self.spans.append((self.since, self._clock.now))
        self.since, self.attached = None, 0
        return self.sampled_fds

    def attach_next(self) -> bool:
        if self.attached == len(self.sampled_fds):
            return False
        self._clock.now += self._attach_ns
        self.attached += 1
        return True

    def wake(self) -> None:
        if self.refuses:
            raise OSError("gone")
        assert self.attached == len(self.sampled_fds), "all are attached before anything is seen"
        if self.since is None:
            self.since = self._clock.now


class Statistics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.log: list[tuple[str, object]] = []
        self.attached: dict[int, int] = {}
        self.covered: dict[int, int] = {}
        self.holds: list[tuple[int, int]] = []
        self.since: int | None = None

    def sample(self, fds: Iterable[int]) -> None:
        self.log.append(("sample", list(fds)))

    def hold(self) -> None:
        assert self.since is None
        self.since = self._clock.now

    def release(self) -> None:
        assert self.since is not None
        self.holds.append((self.since, self._clock.now))
        self.since = None

    def cover(self, fds: Iterable[int], attached_ns: int, period_ns: int) -> None:
        for fd in fds:
            self.attached[fd] = self.attached.get(fd, 0) + attached_ns
            self.covered[fd] = self.covered.get(fd, 0) + period_ns

    def free(self, fds: Iterable[int]) -> None:
        self.log.append(("free", list(fds)))


class Closing:
    """Takes as long as the test says to detach what it is given."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.takes_ns, self.cpu_ns, self._until = clock, 0, 0, 0
        self.costs_ns = 0
        """CPU time of a call."""
        self.closed: list[int] = []

    @property
    def is_busy(self) -> bool:
        return self._clock.now < self._until

    def close(self, fds: list[int]) -> None:
        self.closed += fds
        self.cpu_ns += self.costs_ns
        self._until = max(self._clock.now, self._until) + self.takes_ns


class Made:
    def __init__(self, *probes: Callable[[Clock], Probe], chance: Callable[[], float] = lambda: 0.5) -> None:
        self.clock = Clock()
        self.statistics, self.closing = Statistics(self.clock), Closing(self.clock)
        self.probes = {probe.name: probe for probe in (make(self.clock) for make in probes)}
        self.settled = 0
        self.lost: list[str] = []
        self.sampler = Sampler(
            self.probes,  # type: ignore[arg-type]
            self.statistics,  # type: ignore[arg-type]
            self._settle,
            self._fail,  # type: ignore[arg-type]
            self.closing,  # type: ignore[arg-type]
            self.clock,
            chance,
        )
        self.sampler.changed()

    def _settle(self, _: object) -> None:
        self.settled += 1

    def _fail(self, probe: Probe, _: OSError) -> None:
        self.lost.append(probe.name)
        del self.probes[probe.name]
        self.sampler.changed()

    def run(self, seconds: float) -> None:
        """Ticks whenever something is due."""
        end = self.clock.now + round(seconds * SECOND)
        while (due := self.sampler.deadline_ns()) is not None and due <= end:
            self.clock.now = max(self.clock.now, due)
            self.sampler.tick(self.clock.now)
        self.clock.now = max(self.clock.now, end)

    def pauses(self, name: str) -> list[int]:
        spans = self.probes[name].spans
        return [later[0] - earlier[1] for earlier, later in pairwise(spans)]


def probe(name: str, seen_pct: int, *fds: int, attach_ns: int = 0) -> Callable[[Clock], Probe]:
    return lambda clock: Probe(name, seen_pct, clock, list(fds), attach_ns)


@pytest.fixture(autouse=True)
def no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "cpu_ns", lambda: 0)


@pytest.mark.parametrize("seen_pct", [50, 25, 10, 4, 1, 75, 90, 99])
def test_a_probe_is_attached_for_its_share_of_the_time(seen_pct: int) -> None:
    turns = iter(range(10**6))
    made = Made(probe("p", seen_pct, 7), chance=lambda: next(turns) % 10 / 10 + 0.05)
    made.run(300)
    spans = made.probes["p"].spans
    seen = sum(end - begin for begin, end in spans)
    assert seen / (300 * SECOND) == pytest.approx(seen_pct / 100, rel=0.15)
    assert min(made.pauses("p")) >= PAUSE_NS // 2
    assert made.closing.closed == [7] * len(spans)


def test_without_a_sampled_probe_there_is_nothing_to_do() -> None:
    made = Made(probe("p", 100, 1))
    assert made.sampler.deadline_ns() is None
    made.sampler.tick(made.clock.now + SECOND)
    assert made.probes["p"].spans == []


def test_pauses_are_of_different_length_so_that_nothing_periodic_is_always_seen() -> None:
    chances = iter([0.0, 0.0, 0.99, 0.99, 0.3, 0.3, 0.7, 0.7] * 100)  # of a hold, and of a pause
    made = Made(probe("p", 10, 1), chance=lambda: next(chances))
    made.run(20)
    pauses = made.pauses("p")
    assert max(pauses) - min(pauses) > PERIOD_NS // 2
    assert min(pauses) >= 0.4 * PERIOD_NS and max(pauses) <= 1.4 * PERIOD_NS


def test_all_are_attached_at_the_same_moment_each_for_its_own_share() -> None:
    made = Made(probe("little", 4, 1), probe("much", 50, 2), probe("always", 100, 3))
    made.run(30)
    little, much = made.probes["little"].spans[1:], made.probes["much"].spans[1:]
    assert [span[0] for span in little] == [span[0] for span in much]
    assert {end - begin for begin, end in little} == {40 * MS} and {end - begin for begin, end in much} == {500 * MS}
    assert made.probes["always"].spans == [] and made.settled == len(little) + 1 - (made.probes["much"].since is None)


def test_the_cost_of_a_period_is_that_of_the_time_in_which_it_was_attached() -> None:
    made = Made(probe("p", 10, 1, 2))
    began = made.clock.now
    made.run(20)
    spans = made.probes["p"].spans
    assert made.statistics.covered[1] == made.statistics.covered[2] >= spans[-1][1] - began
    assert made.statistics.attached[1] == made.statistics.attached[2] == sum(end - begin for begin, end in spans)


def test_the_time_that_attaching_takes_is_part_of_what_it_costs() -> None:
    made = Made(probe("p", 10, 1, 2, attach_ns=10 * MS))
    made.run(20)
    spans = made.probes["p"].spans
    attaching_ns = 20 * MS * (len(spans) - 1)  # at first it is attached already
    assert made.statistics.attached[1] == sum(end - begin for begin, end in spans) + attaching_ns


@pytest.mark.parametrize(("seen_pct", "held_ns"), [(50, 50 * MS), (25, 25 * MS), (10, 20 * MS), (1, 10 * MS)])
def test_the_statistics_are_on_for_a_part_of_the_time_while_all_are_attached(seen_pct: int, held_ns: int) -> None:
    turns = iter(range(10**6))
    made = Made(probe("p", seen_pct, 1), probe("longer", 60, 2), chance=lambda: next(turns) % 7 / 7)
    made.run(40)
    spans, holds = made.probes["p"].spans, made.statistics.holds
    assert len(holds) in {len(spans), len(spans) + 1} and {end - begin for begin, end in holds} == {held_ns}
    assert all(span[0] <= hold[0] and hold[1] <= span[1] for span, hold in zip(spans, holds, strict=False))
    places = {hold[0] - span[0] for span, hold in zip(spans, holds, strict=False)}
    assert len(places) > 3 or held_ns == spans[0][1] - spans[0][0], "not always the same part"


def test_a_period_in_which_the_collector_came_too_late_is_not_measured() -> None:
    made = Made(probe("p", 10, 1))
    made.clock.now += SECOND
    made.sampler.tick(made.clock.now)
    assert made.probes["p"].since is None and made.statistics.holds == []
    made.run(10)
    assert len(made.statistics.holds) == len(made.probes["p"].spans) - 1


def test_a_hold_ends_with_the_last_sampled_probe() -> None:
    made = Made(probe("p", 10, 1))
    made.run(0.05)
    assert made.statistics.since is not None
    del made.probes["p"]
    made.sampler.changed()
    assert made.statistics.since is None


def test_no_time_is_counted_twice_when_another_probe_begins_to_be_sampled() -> None:
    """Its first share ends a pause of the others early. So does that of each one that comes then."""
    made = Made(probe("p", 10, 1), probe("late", 100, 2), probe("later", 100, 3))
    began = made.clock.now
    made.run(5.5)
    for number, name in ((2, "late"), (3, "later")):
        assert made.probes["p"].since is None, "it rests"
        made.probes[name].seen_pct = 10
        made.probes[name].since = since = made.clock.now
        made.sampler.changed()
        made.run(0.3)
        assert made.statistics.covered[number] <= made.sampler._next_ns - since  # type: ignore[operator]
    made.run(20)
    assert made.statistics.covered[1] <= made.clock.now + PERIOD_NS - began
    for number, name in ((1, "p"), (2, "late"), (3, "later")):
        spans = made.probes[name].spans
        assert made.statistics.attached[number] == sum(end - begin for begin, end in spans), name


def test_programs_are_attached_one_by_one_and_all_that_is_seen_begins_then() -> None:
    made = Made(probe("p", 10, 1, 2, 3, attach_ns=30 * MS), probe("other", 10, 4, attach_ns=30 * MS))
    made.run(60)
    p, other = made.probes["p"].spans, made.probes["other"].spans
    assert p == other
    begin, end = p[-1]
    assert end - begin == pytest.approx(120 * MS, rel=0.01), "as long as it takes to attach them"


def test_one_that_is_lowered_while_others_are_being_attached_is_sampled_with_them() -> None:
    """The real clock goes on between the reading of it and what is done about it."""
    made = Made(
        lambda clock: Probe("slow", 10, clock, [1, 2, 3], attach_ns=30 * MS),
        lambda clock: Probe("late", 100, clock, [4]),
    )
    while not (made.sampler._is_attaching and made.probes["slow"].attached == 1):
        due = made.sampler.deadline_ns()
        assert due is not None
        now = made.clock.now = max(made.clock.now, due)
        made.clock.now += 1
        made.sampler.tick(now)
    made.probes["late"].seen_pct = 20
    made.sampler.changed()
    for _ in range(100):
        due = made.sampler.deadline_ns()
        assert due is not None
        now = made.clock.now = max(made.clock.now, due)
        made.clock.now += 1
        made.sampler.tick(now)
    assert len(made.probes["slow"].spans) > 2 and len(made.probes["late"].spans) > 2


@pytest.mark.parametrize(("before_pct", "at_ms", "after_pct"), [(50, 200, 10), (50, 480, 10), (10, 90, 50)])
def test_what_was_measured_is_not_taken_for_that_of_another_share(before_pct: int, at_ms: int, after_pct: int) -> None:
    made = Made(probe("one", before_pct, 1))
    made.clock.now += at_ms * MS
    made.statistics.log.clear()
    made.probes["one"].seen_pct = after_pct
    made.sampler.changed()
    assert made.statistics.log == [("sample", [1])]
    changed = made.clock.now
    made.run(0.9)
    rested = made.probes["one"].spans[0][1]
    assert rested == changed + PERIOD_NS * after_pct // 100, "it is attached for its new share from now on"
    assert made.statistics.attached[1] == PERIOD_NS * after_pct // 100


def test_a_slow_detach_makes_periods_longer_than_the_switching() -> None:
    made = Made(probe("p", 10, 1))
    made.closing.takes_ns = 400 * MS
    made.run(120)
    begin, end = made.probes["p"].spans[-1]
    assert 380 * MS <= end - begin <= 450 * MS, "as long as it takes to attach and detach"
    made.closing.takes_ns = 40 * SECOND
    made.run(600)
    begin, end = made.probes["p"].spans[-1]
    assert end - begin == MAX_PERIOD_NS // 10
    made.closing.takes_ns = 0
    made.run(300)
    begin, end = made.probes["p"].spans[-1]
    assert end - begin == PERIOD_NS // 10


def test_nothing_is_attached_while_programs_are_being_detached() -> None:
    made = Made(probe("p", 90, 1))
    made.closing.takes_ns = 700 * MS
    made.run(20)
    assert min(made.pauses("p")) >= 700 * MS


@pytest.mark.parametrize(("others", "closing_ms"), [((), 14), ((probe("q", 10, 2),), 3)])
def test_switching_takes_a_hundredth_of_a_core_at_most(
    others: Sequence[Callable[[Clock], Probe]], closing_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(probe("p", 10, 1), *others)
    spent = itertools.count(0, 8 * MS)  # one program of each is attached, and then none is left
    monkeypatch.setattr(sampler, "cpu_ns", lambda: next(spent))
    made.closing.costs_ns = closing_ms * MS
    made.run(60)
    begin, end = made.probes["p"].spans[-1]
    assert end - begin == 300 * MS, "a period of 3 s for 30 ms of CPU time"


def test_one_slow_time_says_nothing_about_the_next() -> None:
    made = Made(probe("p", 10, 1))
    made.run(5)
    made.closing.takes_ns = 2 * SECOND
    made.run(1.5)
    made.closing.takes_ns = 0
    made.run(20)
    assert all(end - begin == PERIOD_NS // 10 for begin, end in made.probes["p"].spans)


def test_a_probe_that_is_lowered_rests_after_its_first_share_and_one_that_is_raised_is_free() -> None:
    made = Made(probe("p", 100, 1), probe("other", 10, 2))
    made.run(5.05)
    p = made.probes["p"]
    p.seen_pct = 25
    lowered = made.clock.now
    made.sampler.changed()
    made.run(2)
    assert p.spans[0][1] == lowered + PERIOD_NS // 4
    p.seen_pct = 100
    p.wake()
    made.sampler.changed()
    count = len(p.spans)
    made.run(5)
    assert len(p.spans) == count and ("free", [1]) in made.statistics.log
    assert made.probes["other"].spans[-1][1] > lowered + 5 * SECOND, "the other goes on"


def test_without_the_last_sampled_probe_there_is_nothing_to_do() -> None:
    made = Made(probe("p", 10, 1))
    made.run(3)
    del made.probes["p"]
    made.sampler.changed()
    assert made.statistics.since is None and made.sampler.deadline_ns() is None


def test_a_probe_whose_maps_cannot_be_written_fails_and_the_others_go_on() -> None:
    made = Made(probe("p", 10, 1), probe("other", 10, 2))
    made.probes["p"].refuses = True
    made.run(5)
    assert made.lost == ["p"] and len(made.probes["other"].spans) > 3


def test_attachments_are_closed_in_their_order_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr("os.close", closed.append)
    closing = sampler.Closing()
    assert not closing.is_busy
    closing.close([Released(fd) for fd in (3, 2, 1)])
    closing.close([Released(fd) for fd in (6, 5)])
    assert closing._thread is not None
    closing._thread.join()
    assert closed == [3, 2, 1, 6, 5] and not closing.is_busy
