"""The constants of STANDS OUT are those of docs/use/console.md and docs/reference/probes.md."""

from __future__ import annotations

from netconsole.findings import incidents, matches, of_rules, open_incident, saved_log, windows
from tests.support.documents import Stated, check, each

CONSOLE, PROBES = "use/console.md", "reference/probes.md"


@each(
    Stated((windows.SHORT, windows.LONG), (10, 60), CONSOLE, "over 10 seconds, or over a minute if it is at least"),
    Stated((windows.SHORT, windows.LONG), (10, 60), PROBES, "in the mean of ten intervals, or over `lasting` in"),
    Stated(open_incident.LEAVES_AFTER, 5, CONSOLE, "An incident ends after five intervals without a loss"),
    Stated(
        open_incident.PAUSES,
        10,
        CONSOLE,
        "its incident ends after ten of its usual pauses",
    ),
    Stated(open_incident.LEAVES_AFTER_LASTING, 30, CONSOLE, "its usual pauses, at the latest after 30 intervals"),
    Stated(incidents.ENDED_SHOWN, 60, CONSOLE, "it stays for a minute"),
    Stated(of_rules.AT_ONCE_FACTOR, 10.0, PROBES, "`over` for `!!`, ten times `over` for `!`"),
    Stated(of_rules.HANDFUL, 10, PROBES, "fewer than 10 in a minute are `!` at most"),
    Stated(windows.NEW_TIMES, 10.0, PROBES, "or new: ten times what it was in the minute before"),
    Stated(windows.MIN_SAMPLES, 10, PROBES, "a percentile of the interval, of at least ten samples"),
    Stated(saved_log.MAX_SAVED, 200, "use/recording.md", "up to its beginning (the newest 200 incidents)"),
    Stated(matches.OVER_BUDGET_AFTER, 10, "design/governor.md", "After ten intervals over the limit the governor"),
)
def test_a_constant_is_the_one_that_the_page_names(one: Stated) -> None:
    check(one)
