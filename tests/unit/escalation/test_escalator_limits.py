"""When an escalation starts, waits, ends and is refused: each rule at its limit and one step beside it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from netconsole.base.errors import Unable
from netconsole.budget.enforcer import Enforcer
from netconsole.escalation.escalator import MAX_FILES, OVER_FOR, START_LIMIT_S, Escalator
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.telemetry import frames
from netconsole.telemetry.request import ProbeRequest
from tests.unit.escalation.test_escalator import KEY, MANIFESTS, NAME, PROFILE, QUIET, RULE, SECOND_NS, FakeSession

DETAILS = NAME + SUFFIX


class SlowSession(FakeSession):
    """Goes on compiling what it is told to load, or refuses it."""

    refuses: str | None = None

    def load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        self.loaded.append(request)
        self.status(request.name, "compiling", request.mode)
        done: Future[None] = Future()
        if self.refuses is not None:
            done.set_exception(Unable(self.refuses))
        return done


def follow(session: FakeSession, tmp_path: Path, profile: Profile = PROFILE) -> tuple[Enforcer, Escalator]:
    enforcer = Enforcer(session, profile, MANIFESTS)  # type: ignore[arg-type]
    escalator = Escalator(session, enforcer, MANIFESTS, tmp_path)  # type: ignore[arg-type]
    escalator.start()
    session.second()
    return enforcer, escalator


def why_ended(session: FakeSession) -> list[str]:
    return [str(why) for _, why in session.unloaded]


def test_details_that_are_not_attached_end_after_two_minutes(tmp_path: Path) -> None:
    session = SlowSession()
    _, escalator = follow(session, tmp_path)
    session.second(drops=200)
    for _ in range(round(START_LIMIT_S) - 1):
        session.second(drops=200)
    assert len(session.loaded) == 1 and session.unloaded == [] and START_LIMIT_S == 120.0
    session.second(drops=200)
    assert why_ended(session) == ["details ended: they were not attached within 120 s"]
    escalator.close()


def test_their_time_counts_from_when_they_were_seen_to_run(tmp_path: Path) -> None:
    session = SlowSession()
    _, escalator = follow(session, tmp_path)
    session.second(drops=200)
    for _ in range(50):
        session.second()
    session.status(DETAILS, "attached", "details")
    for _ in range(round(RULE.for_s)):
        session.second()
    assert session.unloaded == [], "the first of these saw them run"
    session.second()
    assert why_ended(session) == ["details ended: the 3 s are over"]
    escalator.close()


def test_what_is_refused_ends_at_once_and_says_why(tmp_path: Path) -> None:
    session = SlowSession()
    session.refuses = "no BTF here"
    enforcer, escalator = follow(session, tmp_path)
    session.second(drops=200)
    session.second(drops=200)
    assert why_ended(session) == ["details ended: refused: no BTF here"]
    assert [one.action for one in enforcer.actions][1] == "details ended"
    escalator.close()


def test_a_single_interval_over_their_own_limit_is_borne_and_two_in_a_row_are_not(tmp_path: Path) -> None:
    session = FakeSession()
    _, escalator = follow(session, tmp_path, replace(PROFILE, escalations=[replace(RULE, for_s=60.0)]))
    session.second(drops=200)
    for pct in (1.5, 0.5, 1.5, 1.0, 1.5):
        session.second(drops=200, pct=pct)
    assert session.unloaded == [] and OVER_FOR == 2
    session.second(drops=200, pct=1.5)
    assert why_ended(session) == ["details ended: the samples took 1.50 % of a core; the limit is 1 %"]
    escalator.close()


@pytest.mark.parametrize(("files", "starts"), [(MAX_FILES - 1, True), (MAX_FILES, False)])
def test_nothing_starts_when_the_directory_has_200_files(files: int, starts: bool, tmp_path: Path) -> None:
    for number in range(files):
        (tmp_path / f"{number}").touch()
    session = FakeSession()
    enforcer, escalator = follow(session, tmp_path)
    session.second(drops=200)
    assert bool(session.loaded) is starts
    if not starts:
        [told] = enforcer.actions
        assert told.action == "no details" and told.probe == NAME
        assert told.because.endswith(f"but {tmp_path} has 200 files; remove those that you do not need")
        assert (told.measured, told.limit) == (200.0, 100.0)
    escalator.close()


def test_a_directory_that_cannot_be_made_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    session = FakeSession()
    enforcer, escalator = follow(session, tmp_path / "file" / "below")
    session.second(drops=200)
    assert session.loaded == [] and "not a directory" in enforcer.actions[0].because
    escalator.close()


def test_it_pauses_after_its_details_and_the_frames_behind_them(tmp_path: Path) -> None:
    session = FakeSession()
    _, escalator = follow(session, tmp_path)
    session.second(drops=200)
    for _ in range(round(RULE.for_s + RULE.keep_s + RULE.pause_s) - 1):
        session.second(drops=200)
    assert len(session.loaded) == 1
    session.second(drops=200)
    assert len(session.loaded) == 2
    escalator.close()


def test_a_rule_that_is_quiet_does_not_keep_the_next_one_from_starting(tmp_path: Path) -> None:
    session = FakeSession()
    other = replace(RULE, where={"reason": ("NO_SOCKET",)}, over=50.0)
    enforcer, escalator = follow(session, tmp_path, replace(PROFILE, escalations=[RULE, other]))
    session.second(drops=200)
    for _ in range(7):
        session.second()
    assert len(session.unloaded) == 1
    session.second(drops=60, labels={"device": "tap9", "netns": "7", "reason": "NO_SOCKET", "protocol": "UDP"})
    assert [one.knobs["device"] for one in session.loaded] == ["tap0", "tap9"]
    told = [one for one in enforcer.actions if one.action.startswith("details of")]
    assert [(one.measured, one.limit) for one in told] == [(200.0, 100.0), (60.0, 50.0)]
    escalator.close()


def test_old_frames_are_kept_while_details_run_and_not_longer(tmp_path: Path) -> None:
    session = FakeSession()
    _, escalator = follow(session, tmp_path)
    (flight,) = session._sinks
    for _ in range(5):
        session.second()
    before = flight.weight
    session.second(drops=200)
    for _ in range(6):
        session.second()
    assert flight.weight > 2 * before
    for _ in range(4):
        session.second()
    assert flight.weight <= before
    escalator.close()


def test_what_runs_at_the_end_is_written(tmp_path: Path) -> None:
    session = FakeSession()
    _, escalator = follow(session, tmp_path)
    session.second(drops=200)
    escalator.close()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".ncrec"]
    escalator.close()


def test_a_snapshot_that_was_taken_waits_for_the_frames_behind_it(tmp_path: Path) -> None:
    session = FakeSession()
    _, escalator = follow(session, tmp_path)
    session.second(drops=200)
    for _ in range(4):
        session.second()
    assert len(session.unloaded) == 1
    session.second()
    assert list(tmp_path.iterdir()) == [], "two seconds of frames are to come"
    session.second()
    escalator.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_an_investigation_needs_a_probe_that_runs_and_has_details(tmp_path: Path) -> None:
    session = FakeSession()
    session.status(NAME, "failed", "summary")
    _, escalator = follow(session, tmp_path, QUIET)
    with pytest.raises(Unable, match=f"{NAME} does not run here"):
        escalator.investigate(NAME, KEY)
    session.status(NAME, "attached", "summary")
    assert "all that this probe sees: this row names no device or flow" not in escalator.investigate(NAME, KEY)
    escalator.close()
    assert list(tmp_path.iterdir()) == []


def test_an_investigation_of_a_row_that_names_nothing_says_so(tmp_path: Path) -> None:
    session = FakeSession()
    enforcer, escalator = follow(session, tmp_path, QUIET)
    said = escalator.investigate(NAME, (("reason", "FULL_RING"),))
    assert said.endswith("investigating all that this probe sees: this row names no device or flow; i ends it")
    [told] = enforcer.actions
    assert told.because == "the user asked; 30 s, at most 50 samples/s and 1 % of a core"
    assert told.action.startswith("details of all that this probe sees") and told.probe == DETAILS
    escalator.close()


def test_while_the_frames_behind_details_are_kept_an_investigation_waits(tmp_path: Path) -> None:
    session = FakeSession()
    _, escalator = follow(session, tmp_path)
    session.second(drops=200)
    with pytest.raises(Unable, match=r"details of tap0 FULL_RING: 200/s run already$"):
        escalator.investigate(NAME, KEY)
    assert escalator.end_details("the budget is exceeded") and not escalator.end_details("again")
    with pytest.raises(Unable, match="run already, and the frames after it are kept for some seconds more"):
        escalator.investigate(NAME, KEY)
    escalator.close()


def test_details_have_the_knobs_that_the_probe_runs_with(tmp_path: Path) -> None:
    session = FakeSession()
    session.state.probes[NAME].knobs = {"threshold_us": 7, "rows_per_s": 3, "events_per_s": 1}
    profile = Profile("p", budget=Budget(action="warn"), probes={NAME: ProbeChoice()}, escalations=[RULE])
    _, escalator = follow(session, tmp_path, profile)
    session.second(drops=200)
    [request] = session.loaded
    assert (request.knobs["rows_per_s"], request.knobs["events_per_s"]) == (3, RULE.events_per_s)
    assert set(request.knobs) <= set(MANIFESTS[NAME].knobs)
    escalator.close()


@pytest.mark.parametrize(("is_cut", "end"), [(False, ""), (True, "; the end is missing, there were too many frames")])
def test_files_are_told_with_what_they_lack(is_cut: bool, end: str, tmp_path: Path) -> None:
    session = FakeSession()
    enforcer, escalator = follow(session, tmp_path)
    session.second(drops=200)
    escalator._flight._cut = is_cut
    escalator.close()
    told = enforcer.actions[-1]
    assert told.action.startswith(f"snapshot {NAME}-") and told.action.endswith(".json")
    assert told.because == f"in {tmp_path}, with the frames around it as .ncrec{end}"


def test_frames_are_kept_for_the_rule_that_wants_most(tmp_path: Path) -> None:
    session = FakeSession()
    rules = [RULE, replace(RULE, keep_s=30.0), replace(RULE, keep_s=5.0)]
    _, escalator = follow(session, tmp_path, replace(PROFILE, escalations=rules))
    assert escalator._flight._keep_ns == 30 * SECOND_NS
    escalator.close()


def test_samples_of_earlier_details_are_not_those_of_an_investigation(tmp_path: Path) -> None:
    session = FakeSession()
    enforcer, escalator = follow(session, tmp_path, QUIET)
    session.frame(frames.Event, probe=DETAILS, name="drop", fields={"device": "tap0"})
    escalator.investigate(NAME, KEY)
    session.frame(frames.Event, probe=DETAILS, name="drop", fields={"device": "tap0"})
    session.second()
    one = escalator.investigation
    assert one is not None and (one.samples, one.others) == (1, 0)
    assert enforcer.actions[0].at_s == 2.0, "the interval that had ended"
    escalator.close()
