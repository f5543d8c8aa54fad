"""The constants of the budget are those of docs/design/governor.md."""

from __future__ import annotations

from netconsole.budget import governor, ladder, sampling
from netconsole.profile import spending
from netconsole.telemetry import costs
from tests.support.documents import Stated, check, each

PAGE = "design/governor.md"


@each(
    Stated(governor.SETTLE_S, 10.0, PAGE, "when there has been room for it (60 % of the limit) for 10 s"),
    Stated(governor.ROOM, 0.6, PAGE, "when there has been room for it (60 % of the limit) for 10 s"),
    Stated(governor.MAX_SETTLE_S, 80.0, PAGE, "it waits twice as long the next time, up to 80 s"),
    Stated(governor.RELAPSE_S, 30.0, PAGE, "If it must be given up again within 30 s"),
    Stated(governor.REACTION_S, 4.0, PAGE, "a steady load is over the budget for four seconds at most"),
    Stated(governor.PATIENCE, 2, PAGE, "After two actions that were not enough, the third one detaches"),
    Stated(governor.MACHINE, 5.0, PAGE, "above five times the limit, three figures in a row"),
    Stated(governor.BURST, 1.25, PAGE, "up to a quarter above the limit are allowed for two intervals"),
    Stated(governor.OVERHEAD_AFTER, 10, PAGE, "After ten intervals over the limit the governor and STANDS OUT"),
    Stated(ladder._EVENTS_DOWN, 4, PAGE, "a quarter of the events per second"),
    Stated(ladder._THRESHOLD_UP, 4, PAGE, "four times the threshold (from 0: 100 µs)"),
    Stated(ladder._FIRST_THRESHOLD_US, 100, PAGE, "four times the threshold (from 0: 100 µs)"),
    Stated(ladder._SEEN_PCT, (50, 25, 10, 4), PAGE, "half, a quarter, a tenth or a twenty-fifth of the time"),
    Stated(ladder._ROWS_ONE_IN, (4, 16), PAGE, "rows of 1 packet in 4, then of 1 in 16"),
    Stated(ladder._FLOWS_DOWN, 8, PAGE, "the knob `flows_one_in` is multiplied by eight"),
    Stated(sampling.JUMP, 1.5, PAGE, "(above 1.5 times the last measured cost, and above 30 % of the limit)"),
    Stated(sampling.WORTH, 0.3, PAGE, "(above 1.5 times the last measured cost, and above 30 % of the limit)"),
    Stated(sampling.NEAR, 0.8, PAGE, "or reaches 80 % of the limit, figures come every interval for ten seconds"),
    Stated(sampling.OFTEN_S, 10.0, PAGE, "or reaches 80 % of the limit, figures come every interval for ten"),
    Stated(sampling.UNKNOWN_NS, 1000.0, PAGE, "Before the first figure, a run is taken to last up to 1 µs."),
    Stated(spending.MIN_PACKETS_PER_S, 10_000.0, PAGE, "Below 10 000 packets per second"),
    Stated(spending.FULL_BYTES, 1514.0, PAGE, "A packet of more than 1514 bytes"),
    Stated(costs.UNSEEN_NS["raw_tracepoint"], 30, PAGE, "30 ns at a tracepoint"),
    Stated(costs.UNSEEN_NS["fentry"], 35, PAGE, "35 at fentry, 60 at fexit, 90 at a kprobe, 155 at a kretprobe"),
    Stated(costs.UNSEEN_NS["fexit"], 60, PAGE, "35 at fentry, 60 at fexit, 90 at a kprobe, 155 at a kretprobe"),
    Stated(costs.UNSEEN_NS["kprobe"], 90, PAGE, "35 at fentry, 60 at fexit, 90 at a kprobe, 155 at a kretprobe"),
    Stated(costs.UNSEEN_NS["kretprobe"], 155, PAGE, "35 at fentry, 60 at fexit, 90 at a kprobe, 155 at a kretprobe"),
    Stated(spending.NEAR, 0.8, "use/console.md", "`near` (80 % of a limit of the profile's budget or more)"),
)
def test_a_constant_is_the_one_that_the_page_names(one: Stated) -> None:
    check(one)
