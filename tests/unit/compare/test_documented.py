"""The constants of a comparison are those of docs/use/comparison.md."""

from __future__ import annotations

from netconsole.compare import baseline, compare, judge, significance
from tests.support.documents import Stated, check, each

PAGE = "use/comparison.md"
LARGE = "a factor of 1.25, and 10 events in the run or one microsecond"
LEAST = "It is never less than 5 % (p90 and mean 10 %, p99 20 %, a gauge 40 %)"


@each(
    Stated(judge.MIN_RATIO, 1.25, PAGE, LARGE),
    Stated(judge.MIN_EVENTS, 10, PAGE, LARGE),
    Stated(judge.MIN_TIME_NS, 1000, PAGE, LARGE),
    Stated(judge.SINGLE_RATIO, 2.0, PAGE, "the rate must differ by more than a factor of 2"),
    Stated(judge.SINGLE_TAIL_RATIO, 4.0, PAGE, "beyond twice the baseline's percentile, of p99 four times"),
    Stated(judge._MIN_BEYOND, 5, PAGE, "(at least 5 samples beyond it; no mean)"),
    Stated(judge.TYPICAL_BURST, 4.0, PAGE, "Without a series the size is taken to be four."),
    Stated(judge.BURST_WEIGHT, 1.0, PAGE, "This guess weighs as much as one part"),
    Stated(judge.USUAL_DEVIATIONS, 3.0, PAGE, "plus three standard deviations, plus one event"),
    Stated(judge.MIN_PARTS, 3, PAGE, "At least three parts are needed."),
    Stated(judge.SHAPE_MIN, 0.5, PAGE, "With a spread the distance must be at least 0.5"),
    Stated(judge.SPREAD_SNAPSHOTS, 3, PAGE, "| three or more | the same without the factor"),
    Stated(judge.PRIOR_DEGREES, 4, PAGE, "what is typical for figures of its kind (weight: four observations)"),
    Stated(judge.MIN_SPREAD["rate"], 0.05, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["lasting"], 0.05, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["p50"], 0.05, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["shape"], 0.05, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["p90"], 0.1, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["mean"], 0.1, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["p99"], 0.2, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["gauge"], 0.4, PAGE, LEAST),
    Stated(judge.MIN_SPREAD["ratio"], 0.1, PAGE, "beyond the spread, which is never less than 10 %"),
    Stated(judge.MIN_POINTS, 5.0, PAGE, "Shares also have to differ by 5 percentage points."),
    Stated(judge.MIN_SPREAD["worst"], 1.28, PAGE, "it is never less than a factor of 3.6"),  # exp(1.28) = 3.6
    Stated(significance.EFFECTIVE_SAMPLES, 2000, PAGE, "At most 2000 of them are taken as independent."),
    Stated(compare.FALSE_DISCOVERIES, 0.01, PAGE, "is set by Benjamini and Hochberg at 1 %"),
    Stated(compare.MIN_SHARE, 0.05, PAGE, "must also change by a twentieth of its table's total"),
    Stated(compare.LEAST_SHARE, 0.001, PAGE, "now they take 0.1 % of the packets of their device or more"),
    Stated(compare.MUCH_SHARE, 0.01, PAGE, "They take 1 % more of the packets of their device."),
    Stated(compare.MAX_UNCERTAIN, 10, PAGE, "is listed after the findings (at most ten), with `significant`"),
)
def test_a_constant_is_the_one_that_the_page_names(one: Stated) -> None:
    check(one)


def test_a_baseline_has_a_bounded_number_of_runs_of_bounded_size() -> None:
    assert (baseline.MAX_SNAPSHOTS, baseline.MAX_BYTES, baseline.OLD_DAYS) == (32, 256 << 20, 30)
