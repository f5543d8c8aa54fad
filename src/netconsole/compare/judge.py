"""Judges one metric against a baseline: how large the change is, and whether it is beyond chance.

The method is in docs/use/comparison.md. With three or more snapshots in the baseline, a change must be beyond their
spread *and* beyond the noise of the counts. With fewer, it must be beyond that noise by a margin, because nobody knows
how much the figure varies from day to day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from netconsole.base import student_t
from netconsole.compare.metrics import EVENT_SIZES, Distribution, Metric, Worse, added
from netconsole.compare.significance import (
    dispersion,
    median,
    rate_p,
    shape_distance,
    shape_p,
    share_p,
    spread,
    two_sided,
)

MIN_RATIO = 1.25
"""A smaller change is not a finding, even if it is certain."""
SINGLE_RATIO = 2.0
"""Margin for a baseline with fewer than three snapshots: nobody has measured how much the figure varies."""
SINGLE_TAIL_RATIO = 4.0
"""The same margin for p99, which depends on few samples. On an unchanged path it is off by a factor of 4 in one of ten
runs (bench/real_comparison.py)."""
TYPICAL_BURST, BURST_WEIGHT = 4.0, 1.0
"""Events and slow samples come in bursts. Without a series to measure the size of bursts, so many events count as one.
With a series, this size has the weight of so many intervals."""
MIN_POINTS = 5.0
"""A smaller difference of two shares, in percentage points, is not a finding."""
MIN_EVENTS = 10
"""A difference of fewer events in the whole run is not a finding."""
MIN_PARTS = 3
"""With fewer parts, nobody can tell which events are lasting."""
USUAL_DEVIATIONS = 3.0
"""The usual deviation of a part from the median of all parts, in standard deviations of single events."""
CERTAIN = 1e-12
"""Smaller probabilities are treated as equal."""
MIN_TIME_NS = 1000
"""A difference of less than 1 µs is not a finding."""
SHAPE_MIN = 0.5
"""A shape has changed from this distance on, in log2 units: as if every sample had changed by a factor of 1.4."""
SPREAD_SNAPSHOTS = 3
"""With this many snapshots, a spread can be measured."""
PRIOR_DEGREES = 4
"""The weight of the typical spread of all metrics, in observations, beside the metric's own few ones."""
MAX_BELOW_TYPICAL = 3.0
"""The spread of a figure is at least the typical spread divided by this, even if all runs had the same value."""
MIN_SPREAD = {
    "p50": 0.05, "p90": 0.1, "p99": 0.2, "mean": 0.1, "rate": 0.05, "lasting": 0.05, "gauge": 0.4, "worst": 1.28,
    "shape": 0.05, "ratio": 0.1,
}  # fmt: skip
"""The least spread by kind of figure, in natural logarithms, measured by bench/real_comparison.py. No figure of a host
repeats better than to 5 %, and the tail is worse: five equal p99 say little about the sixth. ``worst`` is the longest
of many times, which is one sample. With a tail of 1/x (as waits for a busy CPU have), its logarithm has the standard
deviation π/√6 (Gumbel), a factor of 3.6."""
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}
_MIN_BEYOND = 5
"""A percentile is only compared with at least this many samples beyond it."""
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(slots=True)
class Statistic:
    """One figure of a metric, with the baseline's value and spread, in the metric's unit. None is not known."""

    name: str
    baseline: float | None
    current: float | None
    spread: float | None
    p: float

    @property
    def ratio(self) -> float | None:
        """Current divided by baseline. None when one of them is 0 or not known."""
        return self.current / self.baseline if self.baseline and self.current else None

    @property
    def log2_ratio(self) -> float:
        """The size of the change, with its sign. It is ±20 when one side is 0."""
        if not self.baseline and not self.current:
            return 0.0
        if not self.baseline or not self.current:
            return math.copysign(20.0, (self.current or 0) - (self.baseline or 0))
        return math.log2(self.current / self.baseline)


@dataclass(slots=True)
class Judged:
    """A metric with its statistics. A finding shows the one in ``stands_for``."""

    metric: Metric
    stands_for: Statistic
    unit: str
    large: bool
    """Whether the change is large enough for a finding, if it is beyond chance."""
    size: float
    """The size of the change in log2 units, for ranking. One event is added to both sides, so that 0 is not special."""
    statistics: list[Statistic] = field(default_factory=list)
    distance: float | None = None
    worse: Worse = None
    """The direction that is worse. It may differ from the metric's own."""
    share: float | None = None
    """Of a loss: its share of the device's packets."""

    def __post_init__(self) -> None:
        """Takes the metric's own direction at first."""
        self.worse = self.metric.worse

    @property
    def p(self) -> float:
        """The probability of the shown statistic, multiplied by the number of statistics (Bonferroni)."""
        return min(1.0, self.stands_for.p * max(1, len(self.statistics)))

    @property
    def factor(self) -> float:
        """What all values would have to be multiplied by for shapes at this distance."""
        return math.pow(2.0, self.distance or 0.0)


class Spreads:
    """Spreads over the baseline's snapshots. Each is drawn towards the typical spread of figures of the same kind."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}
        self._typical: dict[str, float] = {}

    def learn(self, kind: str, values: Sequence[float]) -> None:
        """Takes the values of one figure in all snapshots (natural logarithms)."""
        own = spread(values)
        if own is not None:
            self._seen.setdefault(kind, []).append(own)

    def of(self, kind: str, values: Sequence[float]) -> float | None:
        """The spread of a figure (natural logarithm). None with too few snapshots."""
        own = spread(values)
        if own is None:
            return None
        if kind not in self._typical:
            self._typical[kind] = max(MIN_SPREAD[kind], median(self._seen.get(kind, [0.0])))
        # On a log scale, because one kind can have very steady figures and very unsteady ones.
        typical, degrees = self._typical[kind], len(values) - 1
        own = max(own, typical / MAX_BELOW_TYPICAL, MIN_SPREAD[kind] / 2)
        steadied = (PRIOR_DEGREES * math.log(typical) + degrees * math.log(own)) / (PRIOR_DEGREES + degrees)
        return max(MIN_SPREAD[kind], math.exp(steadied))


@dataclass(frozen=True, slots=True)
class Counted:
    """A count of one snapshot in events, its time, and the events in each equal part of it (None: not known)."""

    events: float
    seconds: float
    parts: Sequence[float] | None = None

    @property
    def per_s(self) -> float:
        """Events per second."""
        return self.events / self.seconds


def lasting(count: Counted) -> Counted | None:
    """The lasting part of a count: no part counts more than is usual for the median of all parts. None: not known.

    A burst is in one part or in a few, so nothing of it is left. A loss of two a second is in nearly all parts.
    """
    if not count.events:
        return Counted(0.0, count.seconds, ())
    if not count.parts or len(count.parts) < MIN_PARTS:
        return None
    middle = median(count.parts)
    usual = middle + USUAL_DEVIATIONS * math.sqrt(middle) + 1 if middle else 0.0
    parts = [min(part, usual) for part in count.parts]
    return Counted(math.fsum(parts), count.seconds, parts)


def judge_count(
    now: Metric, now_s: float, before: Sequence[tuple[Metric | None, float]], spreads: Spreads, burst: float
) -> Judged | None:
    """Judges a count over ``now_s`` seconds. A count of the baseline is None for a row that it lacks. None: all are 0.

    It compares the whole count, and its lasting part. ``burst``: how many events come at once in the whole column.
    """
    if not now.count and not any(one.count for one, _ in before if one is not None):
        return None
    event = EVENT_SIZES.get(now.unit, 1.0)
    whole = [counted(one, seconds) for one, seconds in ((now, now_s), *before)]
    found = []
    if all(one.parts is not None or not one.events for one in whole):
        found.append(_count("rate", whole, event, _at_once(whole, burst), spreads, own_burst=True))
        steady = [lasting(one) for one in whole]
        known = [one for one in steady if one is not None]
        # A second comparison makes both less certain, so there is none when nothing came in bursts.
        if len(known) == len(whole) and any(a.events - b.events > 0.5 for a, b in zip(whole, known, strict=True)):
            found.append(_count("lasting", known, event, _at_once(known, burst), spreads, own_burst=True))
    else:
        found.append(_count("rate", whole, event, burst, spreads))
    best, large, size = min(found, key=lambda one: (not one[1], max(one[0].p, CERTAIN)))
    return Judged(now, best, f"{now.unit}/s" if now.unit else "/s", large, size, [one for one, _, _ in found])


def counted(metric: Metric | None, span_s: float) -> Counted:
    """The count of one snapshot. 0 for a row that it lacks."""
    if metric is None:
        return Counted(0.0, span_s)
    return Counted(metric.count / EVENT_SIZES.get(metric.unit, 1.0), span_s, metric.parts)


def _at_once(counts: Sequence[Counted], of_column: float) -> float:
    """How many events come at once, from the parts of the counts. With few parts, at most as many as in the column."""
    return dispersion([one.parts or () for one in counts], min(TYPICAL_BURST, of_column), BURST_WEIGHT)


def _count(
    name: str, counts: Sequence[Counted], event: float, burst: float, spreads: Spreads, own_burst: bool = False
) -> tuple[Statistic, bool, float]:
    """A statistic of counts, the current one first; whether the change is large enough; and its size in log2 units.

    ``own_burst``: whether ``burst`` was measured on this figure itself.
    """
    now, *before = counts
    typical = median([one.per_s for one in before])
    statistic = Statistic(name, typical * event, now.per_s * event, None, 1.0)
    expected = typical * now.seconds
    large = abs(now.events - expected) >= MIN_EVENTS and abs(statistic.log2_ratio) >= math.log2(MIN_RATIO)
    if len(before) >= SPREAD_SNAPSHOTS:
        logs = log_rates(before)
        own = spreads.of(name, logs)
        statistic.spread = own * statistic.baseline if own is not None and statistic.baseline is not None else None
        if large:
            events, span_s = sum(one.events for one in before), sum(one.seconds for one in before)
            if own_burst and not events:
                # A relative spread says nothing about a baseline of 0, so a margin is used.
                statistic.p = rate_p(0.0, span_s, now.events, now.seconds, SINGLE_RATIO, burst)
            else:
                pooled = rate_p(events, span_s, now.events, now.seconds, burst=burst)
                statistic.p = max(pooled, _spread_p(math.log((now.events + 0.5) / now.seconds), logs, own))
                nearest = (max if now.per_s > typical else min)(before, key=lambda one: one.per_s)
                if nearest.events:  # a run may have a little more than the highest run of the baseline
                    beside = rate_p(nearest.events, nearest.seconds, now.events, now.seconds, MIN_RATIO, burst)
                    statistic.p = max(statistic.p, beside)
    elif large:  # a change that is too small for a finding needs no test
        statistic.p = max(
            rate_p(one.events, one.seconds, now.events, now.seconds, SINGLE_RATIO, burst) for one in before
        )
    return statistic, large, math.log2((now.events + 1) / (expected + 1))


def judge_gauge(now: Metric, before: Sequence[float], spreads: Spreads) -> Judged | None:
    """Judges a gauge. None when the baseline has too few values: a gauge has no counts that tell its noise."""
    if now.value is None or len(before) < SPREAD_SNAPSHOTS:
        return None
    logs = [math.log1p(abs(value)) for value in before]
    kind = "worst" if now.unit in _NS else "gauge"
    own = spreads.of(kind, logs) or MIN_SPREAD[kind]
    p = _spread_p(math.log1p(abs(now.value)), logs, own)
    typical = median(before)
    statistic = Statistic("value", typical, now.value, own * typical, p)
    event = EVENT_SIZES.get(now.unit, 1.0)
    size = math.log2((abs(now.value) / event + 1) / (abs(typical) / event + 1))
    return Judged(now, statistic, now.unit, abs(size) >= math.log2(MIN_RATIO), size)


def judge_ratio(now: Metric, before: Sequence[float], spreads: Spreads) -> Judged | None:
    """Judges a ratio of counts. There are so many that chance plays no part: a few runs are compared by a margin."""
    if now.value is None or not before:
        return None
    typical = median(before)
    size = math.log2((now.value + 1) / (typical + 1))
    is_far = now.unit != "%" or abs(now.value - typical) >= MIN_POINTS
    statistic = Statistic("value", typical, now.value, None, 1.0)
    if len(before) >= SPREAD_SNAPSHOTS:
        logs = [math.log1p(value) for value in before]
        own = spreads.of("ratio", logs) or MIN_SPREAD["ratio"]
        statistic.spread, statistic.p = own * typical, _spread_p(math.log1p(now.value), logs, own)
    elif all(not 1 / SINGLE_RATIO < now.value / value < SINGLE_RATIO if value else now.value for value in before):
        statistic.p = 0.0
    return Judged(now, statistic, now.unit, is_far and abs(size) >= math.log2(MIN_RATIO), size)


def judge_histogram(now: Metric, before: Sequence[Distribution], spreads: Spreads) -> Judged | None:
    """Judges a histogram by p50, p90, p99, mean and shape. None when a side has too few samples for all of them."""
    current = now.histogram
    whole = added(before)
    if current is None or not current.count or not whole.count:
        return None
    statistics = [
        statistic
        for name, percent in PERCENTILES.items()
        if (statistic := _percentile(name, percent, current, before, whole, spreads)) is not None
    ]
    mean = _mean(current, before, whole, spreads)
    if mean is not None:
        statistics.append(mean)
    if not statistics:
        return None
    floor = least_difference(now.unit)
    distance = shape_distance(whole.buckets, current.buckets, floor)
    eligible = [statistic for statistic in statistics if _worth(statistic, floor)]
    if not eligible and distance >= SHAPE_MIN:
        shape = _shape(distance, floor, current, before, whole)
        return Judged(now, shape, "log2 units", True, distance, [*statistics, shape], distance)
    # The most certain one of those that changed enough. Among equally certain ones, the one that changed most.
    best = min(eligible or statistics, key=lambda one: (max(one.p, CERTAIN), -abs(one.log2_ratio)))
    return Judged(now, best, now.unit, bool(eligible), best.log2_ratio, statistics, distance)


def least_difference(unit: str) -> float:
    """A smaller difference of a figure in ``unit`` is not a finding."""
    return MIN_TIME_NS / _NS[unit] if unit in _NS else 0.0


def log_rates(counts: Sequence[Counted]) -> list[float]:
    """Natural logarithms of rates. Half an event is added, so that 0 has a logarithm."""
    return [math.log((one.events + 0.5) / one.seconds) for one in counts]


def log_values(values: Sequence[float | None]) -> list[float]:
    """Natural logarithms of the values that are known and above 0."""
    return [math.log(value) for value in values if value and value > 0]


def enough(distribution: Distribution, percent: float) -> bool:
    """Whether there are enough samples beyond a percentile to compare it."""
    return distribution.count * min(percent, 100 - percent) / 100 >= _MIN_BEYOND


def _shape(
    distance: float, floor: float, now: Distribution, before: Sequence[Distribution], whole: Distribution
) -> Statistic:
    """The distance to the baseline, compared with the distance of each of its snapshots to all its others."""
    p = shape_p(whole.buckets, now.buckets, floor)
    if len(before) < SPREAD_SNAPSHOTS:
        return Statistic("shape", 0.0, distance, None, p if distance >= math.log2(SINGLE_RATIO) else 1.0)
    # A snapshot is left out of the whole that it is compared with, or it would look too near.
    own = [
        shape_distance(added([*before[:number], *before[number + 1 :]]).buckets, one.buckets, floor)
        for number, one in enumerate(before)
    ]
    typical = median(own)
    width = max(MIN_SPREAD["shape"], spread(own) or 0.0, typical / 2)
    return Statistic("shape", typical, distance, width, max(p, _spread_p(distance, own, width)))


def _percentile(
    name: str, percent: float, now: Distribution, before: Sequence[Distribution], whole: Distribution, spreads: Spreads
) -> Statistic | None:
    current, typical = now.percentile(percent), whole.percentile(percent)
    if current is None or typical is None or not enough(now, percent) or not enough(whole, percent):
        return None
    parts = [one for one in before if enough(one, percent)]
    if len(parts) < SPREAD_SNAPSHOTS:
        margin = SINGLE_TAIL_RATIO if name == "p99" else SINGLE_RATIO
        return Statistic(name, typical, current, None, _counts_p(percent, now, whole, margin, TYPICAL_BURST))
    values = log_values([one.percentile(percent) for one in parts])
    own = spreads.of(name, values)
    p = max(_counts_p(percent, now, whole), _spread_p(math.log(current) if current else 0.0, values, own))
    baseline = math.exp(median(values)) if values else typical
    return Statistic(name, baseline, current, own * baseline if own is not None else None, p)


def _counts_p(
    percent: float, now: Distribution, before: Distribution, margin: float = 1.0, burst: float = 1.0
) -> float:
    """Tests whether the share of samples beyond the percentile (times the margin) is the same on both sides."""
    was, here = _reach(before, percent), _reach(now, percent)
    if was is None or here is None or was == here:
        return 1.0
    # A rise is tested. A fall is a rise with the two sides exchanged.
    low, high = (before, now) if here > was else (now, before)
    edge = min(was, here)[1]
    beyond_low, beyond_high = low.above(edge), high.above(edge * margin)
    if beyond_high / high.count <= beyond_low / low.count:
        return 1.0
    return share_p(beyond_low, low.count, beyond_high, high.count, burst)


def _reach(distribution: Distribution, percent: float) -> tuple[float, float] | None:
    """The bucket of a percentile. None when there are no samples."""
    total = sum(count for _, _, count in distribution.buckets)
    seen = 0
    for low, high, count in distribution.buckets:
        seen += count
        if count and seen >= max(1.0, total * percent / 100):
            return low, high
    return None


def _mean(now: Distribution, before: Sequence[Distribution], whole: Distribution, spreads: Spreads) -> Statistic | None:
    """The mean. It needs a spread, because the mean of one snapshot depends on its few slowest samples."""
    current, typical = now.mean, whole.mean
    values = log_values([one.mean for one in before if one.count >= _MIN_BEYOND])
    if not current or not typical or len(values) < SPREAD_SNAPSHOTS or now.count < _MIN_BEYOND:
        return None
    if min(current, typical) <= 0:
        return None  # no sum of times
    own = spreads.of("mean", values)
    # A mean depends on its few slowest samples. A change that they alone can cause does not count.
    deviation = math.hypot(now.mean_error, whole.mean_error)
    chance = two_sided((current - typical) / deviation) if deviation else 0.0
    p = max(chance, _spread_p(math.log(current), values, own))
    baseline = math.exp(median(values))
    return Statistic("mean", baseline, current, own * baseline if own is not None else None, p)


def _spread_p(value: float, values: Sequence[float], own: float | None) -> float:
    """Tests whether ``value`` can be one more of ``values``. It is not beyond chance within their range."""
    if own is None or not values or min(values) <= value <= max(values):
        return 1.0
    t = (value - median(values)) / (own * math.sqrt(1 + 1 / len(values)))
    return student_t.beyond(t, PRIOR_DEGREES + len(values) - 1)


def _worth(statistic: Statistic, floor: float) -> bool:
    difference = abs((statistic.current or 0) - (statistic.baseline or 0))
    return abs(statistic.log2_ratio) >= math.log2(MIN_RATIO) and difference >= floor
