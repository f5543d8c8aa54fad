"""A probe that is attached for a share of the time: what goes on, what is given up, and what its figures say."""

from __future__ import annotations

import pytest

from netconsole_collector.probe import config, device_sets, running
from tests.support.running_probe import BEGAN_NS, SECOND, Made

pytestmark = pytest.mark.usefixtures("no_kernel")

# ---- a share of the time ----


def sampled(modes: list[str], clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(running, "mono_ns", clock)
    knobs = {"device": "", "events_per_s": 100, "threshold_us": 0, "seen_pct": 100}
    made = Made(probe={"modes": modes}, knobs=knobs)
    made.probe.configure("summary", {})
    made.log.clear()
    return made


class Clock:
    """CLOCK_MONOTONIC as the test has it, in seconds since the probe began."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> int:
        return BEGAN_NS + round(self.at_s * SECOND)


def test_a_probe_that_rests_does_nothing_before_its_programs_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sampled(["summary"], Clock(), monkeypatch)
    shares = [(made.probe.is_sampled, made.probe.seen_pct)]
    made.probe.configure("summary", {"seen_pct": 10})
    shares.append((made.probe.is_sampled, made.probe.seen_pct))
    assert shares == [(False, 100), (True, 10)] and made.probe.sampled_fds == [1, 2, 3]
    assert made.did() == [device_sets.MAP, "nc_config", "detach tell"], "attached until the sampler says otherwise"
    assert made.rest() == [2, 1]
    resting = config.pack("counters", made.probe.knobs, rests=True)
    assert ("nc_config", resting) in made.log
    assert made.did() == ["nc_config", "release wait", "release count"]
    assert made.probe.attached == ["point of count", "point of wait"], "what it is attached to when it does not rest"
    for name in ("count", "wait"):
        assert made.probe.attach_next() and made.did() == [f"attach {name}"]
    assert not made.probe.attach_next()
    made.probe.wake()
    assert made.did() == [running.RESUMED, "nc_config", "detach tell"]
    made.probe.wake()
    assert made.did() == [] and not made.probe.attach_next()


def test_a_probe_with_the_mode_counters_goes_on_in_it_while_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sampled(["counters", "summary", "details"], Clock(), monkeypatch)
    made.probe.configure("summary", {"seen_pct": 25})
    made.log.clear()
    assert made.probe.sampled_fds == [2, 3]
    assert made.rest() == [2]
    raw = config.pack("counters", made.probe.knobs)
    assert made.log[0] == ("nc_config", raw)
    assert made.did() == ["nc_config", "release wait"]
    made.probe.configure("summary", {"device": "eth0"})
    assert made.did() == [device_sets.MAP, "nc_config"], "it goes on resting"
    made.probe.configure("summary", {"seen_pct": 100})
    assert made.did() == ["attach wait", running.RESUMED, device_sets.MAP, "nc_config", "detach tell"]
    assert not made.probe.is_sampled
    made.probe.configure("counters", {"seen_pct": 25})
    assert not made.probe.is_sampled, "counters alone are always exact"


def test_a_layout_that_turns_out_wrong_while_it_rests_keeps_its_programs_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "mono_ns", Clock())
    checks = [{"slot": 0, "says": "struct sock differs", "programs": ["wait"]}]
    made = Made(probe={"modes": ["summary"]}, checks=checks, knobs={"seen_pct": 10})
    made.probe.configure("summary", {})
    assert made.rest() == [2, 1]
    assert made.probe.detach_failed_checks()
    made.log.clear()
    while made.probe.attach_next():
        pass
    made.probe.wake()
    assert [entry for entry in made.did() if entry.startswith("attach")] == ["attach count"]
    assert [one["name"] for one in made.probe.missing] == ["wait"]


def test_figures_say_how_much_of_the_interval_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    made = sampled(["counters", "summary", "details"], clock, monkeypatch)
    made.probe.mode = "details"
    made.probe.configure("details", {"seen_pct": 50})
    assert all("seen_ns" not in body for body in made.read(1.0))
    clock.at_s = 1.25
    made.probe.rest()
    clock.at_s = 1.75
    made.probe.wake()
    bodies = made.read(2.0)
    half = SECOND // 2
    assert [(one["kind"], one.get("seen_ns"), list(one.get("values", {}))) for one in bodies[:3]] == [
        ("counters", None, ["seen"]),
        ("counters", half, ["slow"]),
        ("table", half, []),
    ]
    assert bodies[-1]["ledger"]["unseen_ms"] == {"delta": 500, "total": 500}
    clock.at_s = 2.9
    made.probe.rest()
    clock.at_s = 3.5
    assert made.read(3.0)[1]["seen_ns"] == SECOND - SECOND // 10
    assert made.read(4.0)[1]["seen_ns"] == 0, "nothing at all"
    clock.at_s = 4.5
    made.probe.wake()
    assert made.read(5.0)[1]["seen_ns"] == half
    assert all("seen_ns" not in body for body in made.read(6.0))


def test_all_counters_of_a_probe_without_the_mode_counters_are_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sampled(["summary", "details"], Clock(), monkeypatch)
    made.probe.configure("summary", {"seen_pct": 50})
    made.probe.rest()
    body, *_ = made.read(1.0)
    assert (body["seen_ns"], list(body["values"])) == (0, ["seen"])
    made.spec["counters"] = {}
    made.probe._tables.clear()  # its rows are held against one
    assert made.read(2.0)[0]["values"] == {}, "it says so without any counter, too"


def test_programs_that_go_on_stay_attached_while_the_probe_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sampled(["summary"], Clock(), monkeypatch)
    made.probe.programs[0].goes_on = True
    made.probe.configure("summary", {"seen_pct": 50})
    assert made.probe.sampled_fds == [2, 3] and made.rest() == [2]


def test_a_program_that_does_not_come_back_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sampled(["summary"], Clock(), monkeypatch)
    made.probe.configure("summary", {"seen_pct": 50})
    made.probe.programs[1].refuses = True  # type: ignore[attr-defined]
    made.probe.rest()
    assert not made.probe.lost_a_program()
    while made.probe.attach_next():
        pass
    made.probe.wake()
    assert made.probe.lost_a_program() and not made.probe.lost_a_program()
    made.probe.rest()
    made.log.clear()
    while made.probe.attach_next():
        pass
    assert made.did() == ["attach count"]
