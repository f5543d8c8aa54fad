"""What an escalation may cost by default is what docs/use/profiles.md and docs/design/governor.md say."""

from __future__ import annotations

from netconsole.escalation import escalator, investigation
from netconsole.profile.escalation_rules import Escalation
from netconsole.recording import flight_recorder
from tests.support.documents import Stated, check, each

RULE = Escalation("p", "t", "count", None, 1.0)
PROFILES, GOVERNOR = "use/profiles.md", "design/governor.md"


@each(
    Stated(RULE.for_s, 60.0, PROFILES, 'for = "60s"'),
    Stated(RULE.events_per_s, 50.0, PROFILES, "All of these have the default shown here events_per_s = 50"),
    Stated(RULE.kernel_cpu_pct, 1.0, PROFILES, "kernel_cpu_pct = 1.0 keep"),
    Stated(RULE.keep_s, 30.0, PROFILES, 'keep = "30s"'),
    Stated(RULE.pause_s, 600.0, PROFILES, 'pause = "10m"'),
    Stated(escalator.MAX_FILES, 200, GOVERNOR, "Nothing is started either when that directory has 200 files."),
    Stated(flight_recorder.MAX_WEIGHT, 50_000, GOVERNOR, "(at most 50 000 frames and rows)"),
)
def test_a_constant_is_the_one_that_the_page_names(one: Stated) -> None:
    check(one)


def test_what_a_user_investigates_has_a_budget_of_its_own() -> None:
    """Beside the profile's. The key i of docs/use/console.md asks for it."""
    assert (investigation.FOR_S, investigation.EVENTS_PER_S, investigation.KERNEL_CPU_PCT) == (30.0, 50.0, 1.0)
