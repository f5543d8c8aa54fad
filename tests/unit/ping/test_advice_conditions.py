"""What to check, rule by rule: when a fact is to be looked at, of which machine, and in which order it is told."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from netconsole.base.fact_keys import FactData
from netconsole.ping.analysis import advice as module
from netconsole.ping.analysis.advice import FROM_PCT, MAX_CPUS, MAX_FACTS, MOST_SEGMENTS, AdviceRule, advice, wanted
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown, FactShown, PathTime, PingAdvice, PingComparison, TimeChange
from netconsole.ping.capture import PingCapture
from netconsole.ping.model import PATH, SEGMENTS

Rule = Callable[..., None]


def breakdown(
    stages: Mapping[str, Mapping[str, float]] | None = None, mean_us: float = 100.0, **shares: float | None
) -> Breakdown:
    """Of segments with these shares of the round trip, in percent. Each takes ``mean_us``."""
    return of_shares(shares, stages, mean_us)


def of_shares(
    shares: Mapping[str, float | None],
    stages: Mapping[str, Mapping[str, float]] | None = None,
    mean_us: float = 100.0,
) -> Breakdown:

    def time(mean: float | None, share: float | None = None) -> PathTime:
        return PathTime(mean_us=mean, n=1, measured=True, share_pct=share)

    return Breakdown(
        schema="", round_trip_us=1000.0, paired_packets=1, parts={}, layers={}, checks=[],
        segments={name: time(mean_us, share) for name, share in shares.items()},
        stages={name: {stage: time(us) for stage, us in of.items()} for name, of in (stages or {}).items()},
    )  # fmt: skip


def capture(role: str = "receiver-host", **more: Any) -> CaptureFile:
    """A capture whose ``facts`` are given as values."""
    facts = {name: {"value": value} for name, value in more.pop("facts", {}).items()}
    document = {"schema": "", "role": role, "host": f"of {role}", "facts": facts, **more}
    return CaptureFile(f"{role}.json", msgspec.convert(document, PingCapture))


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Rule:
    """Puts a single rule in the place of all."""

    def put(**rule: Any) -> None:
        of_all = {"topic": "t", "segments": [*PATH], "reason": "r", "facts": ["a/b"], **rule}
        one = msgspec.convert(of_all, AdviceRule)
        monkeypatch.setattr(module, "rules", lambda: (one,))

    return put


def judged(only: Rule, look: dict[str, Any], value: Any, mean_us: float = 100.0, **others: Any) -> str:
    """The word of the fact a/b with this value, by a rule with this condition."""
    only(look=[{"fact": "a/b", "says": "look here", **look}])
    facts = {"a/b": value, **{name.replace("__", "/"): other for name, other in others.items()}}
    [found] = advice(breakdown(E=50.0, mean_us=mean_us), [capture(facts=facts)])
    [fact] = found.facts
    assert (fact.fact, fact.value) == ("a/b", value)
    assert fact.says == ("look here" if fact.word == "!" else "")
    assert found.word == fact.word
    return fact.word


@pytest.mark.parametrize(
    ("look", "value", "word"),
    [
        ({"above": 5}, 5, "ok"),
        ({"above": 5}, 5.01, "!"),
        ({"above": -1.5}, "-1.4", "!"),
        ({"above": 5}, "6 of them", "ok"),
        ({"above": 5}, "12.", "ok"),
        ({"above": 0}, True, "ok"),
        ({"above": 0}, ["1"], "ok"),
        ({"above": 0}, 10**400, "ok"),
        ({"above": 0}, float("inf"), "ok"),
        ({"above": 0}, None, "?"),
        ({"below": 5}, 5, "ok"),
        ({"below": 5}, 4.99, "!"),
        ({"below": 5}, "few", "ok"),
        ({"equals": ["0", "off"]}, 0, "!"),
        ({"equals": ["0", "off"]}, "off", "!"),
        ({"equals": ["0", "off"]}, "offline", "ok"),
        ({"differs": ["1", "2"]}, "3", "!"),
        ({"differs": ["1", "2"]}, 2, "ok"),
        ({"differs": ["1"]}, None, "?"),
        ({"matches": r"\d+ \d+"}, "100 200", "!"),
        ({"matches": r"\d+ \d+"}, "max 200", "ok"),
        ({"matches": r"\d+ \d+"}, "100 200 300", "ok"),
        ({}, "anything", "ok"),
    ],
)
def test_a_condition_holds_at_its_limit_or_beside_it(only: Rule, look: dict[str, Any], value: Any, word: str) -> None:
    if value == 10**400:  # a value that no document can hold, but that a fact collected here may
        only(look=[{"fact": "a/b", "says": "look here", **look}])
        huge = msgspec.structs.replace(capture().capture, facts={"a/b": FactData(value=value)})
        assert [one.word for one in advice(breakdown(E=50.0), [CaptureFile("f", huge)])] == [word]
    else:
        assert judged(only, look, value) == word


@pytest.mark.parametrize(
    ("value", "mean_us", "word"),
    [(30, 100, "!"), (0.3, 1, "!"), (29.9, 100, "ok"), (30, 101, "ok"), (0, 0, "ok"), (5, -10, "ok"), ("x", 1, "ok")],
)
def test_a_share_of_the_time_is_of_what_was_measured(only: Rule, value: Any, mean_us: float, word: str) -> None:
    """A fact in microseconds is held against the segment: 30 % of it or more. None or less takes no share."""
    assert judged(only, {"share_of_time": 0.3}, value, mean_us) == word


def test_a_segment_with_stages_is_held_by_its_largest(only: Rule) -> None:
    """The stage of 60 us of a segment with 100: 20 us are a third of it."""
    only(look=[{"fact": "a/b", "says": "much", "share_of_time": 1 / 3}], stages=["s1_s2"])
    files = [capture(facts={"a/b": 20})]
    stages = {"E": {"s1_s2": 60.0, "s2_s3": 40.0, "total": 100.0}}
    assert [one.word for one in advice(breakdown(stages, E=50.0), files)] == ["!"]
    other = {"E": {"s1_s2": 40.0, "s2_s3": 60.0}}
    assert advice(breakdown(other, E=50.0), files) == []  # the rule is for another stage
    assert [one.word for one in advice(breakdown(E=50.0), files)] == ["ok"]  # no stage known: 20 of 100 us


@pytest.mark.parametrize(
    ("worker", "vcpu", "word"),
    [
        ("3", "3", "!"),
        ("0-3", "3", "!"),
        ("0-1,8", "8-9", "!"),  # four CPUs together
        ("0-1,8", "8-10", "ok"),  # five: free to avoid each other
        ("0-1", "2-3", "ok"),
        ("0-", "0", "!"),
        ("1, 3", "3", "!"),
        ("3-x", "3", "ok"),
        ("0-1234567", "0", "ok"),  # no list of CPUs
        ("1234567", "1234567", "ok"),
        ("123456", "123456", "!"),
        ("", "", "ok"),
    ],
)
def test_threads_that_share_few_cpus_are_looked_at(only: Rule, worker: str, vcpu: str, word: str) -> None:
    assert MAX_CPUS == 4
    assert judged(only, {"same_cpus_as": "c/*/d"}, worker, c__x__d=vcpu, c__d="3") == word


def test_one_thread_on_the_same_cpus_is_enough(only: Rule) -> None:
    assert judged(only, {"same_cpus_as": "c/*/d"}, "1", c__x__d="5", c__y__d="1") == "!"
    assert judged(only, {"same_cpus_as": "c/*/d"}, "1") == "ok"


def test_a_rule_with_a_condition_that_does_not_exist_is_refused(only: Rule) -> None:
    for wrong in ({"abvoe": 1}, {"unless": {"property": "p", "equals": "1", "and": "q"}}):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            only(look=[{"fact": "a/b", "says": "s", **wrong}])
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        only(role=["host"])


def test_a_sibling_makes_a_fact_harmless(only: Rule) -> None:
    look = {"above": 1, "unless": {"property": "disabled", "equals": "1"}}
    assert judged(only, look, 5, a__disabled="1") == judged(only, look, 5, a__disabled=1) == "ok"
    assert judged(only, look, 5, a__disabled="0") == judged(only, look, 5, b__disabled="1") == "!"


def test_each_condition_is_for_the_fact_that_it_names(only: Rule) -> None:
    both = [{"fact": "a/b", "says": "one", "above": 1}, {"fact": "a/*", "says": "two", "above": 1}]
    only(facts=["a/c", "*/b"], look=both)
    [found] = advice(breakdown(E=50.0), [capture(facts={"a/b": 2, "a/c": 2, "a/d": 2, "x/y/b": 2})])
    assert found.facts == [FactShown("a/c", 2, "!", "two"), FactShown("a/b", 2, "!", "one; two")]


def test_names_of_the_capture_stand_in_patterns(only: Rule) -> None:
    only(facts=["vm/{vm}/x", "nic/{device}/y"], command="virsh {vm}; ethtool {device}")
    facts = {"vm/web/x": 1, "vm/db/x": 1, "vm/a%2Fb/x": 1, "nic/eth0/y": 1, "nic/eth1/y": 1, "nic/tap0/y": 1}

    def told(**more: Any) -> tuple[set[str], str]:
        [found] = advice(breakdown(E=50.0), [capture(facts=facts, **more)])
        return {fact.fact for fact in found.facts}, found.command

    named = {"vm/web/x", "nic/eth0/y", "nic/eth1/y"}
    assert told(vm="web", outside=["eth0", "eth1"], inside=["tap0"]) == (named, "virsh web; ethtool eth0")
    assert told(vm="a/b", outside=["eth1"]) == ({"vm/a%2Fb/x", "nic/eth1/y"}, "virsh a/b; ethtool eth1")
    assert told() == ({*facts}, "virsh VM; ethtool DEVICE")


def test_a_name_that_looks_like_a_placeholder_stays_one_word(only: Rule) -> None:
    only(command="virsh {vm} {device}")
    [found] = advice(breakdown(E=50.0), [capture(vm="{device}", outside=["; reboot {vm}"])])
    assert shlex.split(found.command) == ["virsh", "{device}", "; reboot {vm}"]


def test_what_is_to_be_looked_at_comes_first_and_twelve_facts_are_shown(only: Rule) -> None:
    assert MAX_FACTS == 12
    only(facts=["a/*"], look=[{"fact": "a/*", "says": "s", "equals": ["bad"]}])
    facts = {f"a/{n:02}": "good" for n in range(13)} | {"a/12": "bad", "a/13": None}
    [found] = advice(breakdown(E=50.0), [capture(facts=facts)])
    assert [fact.fact for fact in found.facts] == ["a/12", *(f"a/{n:02}" for n in range(11))]
    assert found.word == "!"


def test_what_is_not_known_says_why(only: Rule) -> None:
    only(facts=["a/*"])
    one = capture(facts={"a/b": None})
    unknown = {"a/b": FactData(value=None, why="no debugfs"), "a/c": FactData(value=None)}
    [found] = advice(breakdown(E=50.0), [CaptureFile("f", msgspec.structs.replace(one.capture, facts=unknown))])
    assert found.facts == [FactShown("a/b", None, "?", "no debugfs"), FactShown("a/c", None, "?", "")]
    assert found.word == "?"
    [mixed] = advice(breakdown(E=50.0), [capture(facts={"a/b": None, "a/c": 1})])
    assert mixed.word == "ok"


def test_what_was_different_in_the_baseline_is_looked_at(only: Rule) -> None:
    """At the same place: the first capture of this role that has facts."""
    only(facts=["a/*"], look=[{"fact": "a/b", "says": "much", "above": 5}])
    files = [capture(facts={"a/b": 6, "a/c": 1, "a/d": 1})]
    before = [
        capture("sender-host", facts={"a/c": 9, "a/d": 9}),
        capture(),
        capture(facts={"a/b": 5, "a/c": 1, "a/d": 2}),
        capture(facts={"a/c": 3}),
    ]
    [found] = advice(breakdown(E=50.0), files, before)
    assert found.facts == [
        FactShown("a/b", 6, "!", "much; in the baseline: 5"),
        FactShown("a/d", 1, "!", "in the baseline: 2"),
        FactShown("a/c", 1, "ok"),
    ]


@pytest.mark.parametrize(
    ("shares", "looked_into"),
    [
        ({"A": 15.0, "B": 50.0, "D": 14.99}, ["B", "A"]),
        ({"A": 3.0, "B": 4.0}, ["B"]),  # the largest, however small
        ({"A": 20.0, "B": 21.0, "D": 22.0, "E": 23.0}, ["E", "D", "B"]),
        ({"A": None, "B": 0.0, "D": -40.0}, []),
        ({"A": 0.01}, ["A"]),
    ],
)
def test_segments_that_explain_most_are_looked_into(shares: dict[str, float | None], looked_into: list[str]) -> None:
    assert (MOST_SEGMENTS, FROM_PCT) == (3, 15.0)
    assert wanted(of_shares(shares)) == looked_into


def test_with_a_comparison_it_is_the_difference_that_is_explained() -> None:
    segments = {"A": TimeChange(1, 2, 1, 2, 70.0), "B": TimeChange(2, 1, -1, 0.5, -30.0)}
    compared = PingComparison(segments["A"], segments, {}, {}, {}, [])
    assert wanted(msgspec.structs.replace(breakdown(B=90.0), comparison=compared)) == ["A"]


ALL = [capture(role, facts={"a/b": 1}) for role in ("sender-vm", "sender-host", "receiver-host", "receiver-vm")]
HOSTS, VMS = ["sender-host", "receiver-host"], ["sender-vm", "receiver-vm"]


@pytest.mark.parametrize(
    ("segments", "machines"),
    [
        ("A M", ["sender-vm", "sender-host"]),  # a guest is slow because of its host as well
        ("F G H", ["receiver-vm", "receiver-host"]),
        ("I1 B K L", ["sender-host"]),
        ("D E B1 I", ["receiver-host"]),
        ("C+J", HOSTS),
        ("U_sender", ["sender-host", "sender-vm"]),
        ("U_receiver", ["receiver-host", "receiver-vm"]),
        ("unknown", []),
    ],
)
def test_facts_are_those_of_the_machine_that_a_segment_is_on(only: Rule, segments: str, machines: list[str]) -> None:
    for segment in segments.split():
        only(segments=[segment])
        found = [one.host for one in advice(of_shares({segment: 50.0}), ALL)]
        assert found == [f"of {role}" for role in machines], segment
        for kind, roles in (("host", HOSTS), ("vm", VMS)):
            only(segments=[segment], roles=[kind])
            found = [one.host for one in advice(of_shares({segment: 50.0}), ALL)]
            assert found == [f"of {role}" for role in machines if role in roles], segment


def test_where_a_host_pings_its_facts_are_those_of_the_sending_side(only: Rule) -> None:
    own = [capture("host", facts={"a/b": 1})]
    for segment in ("B", "K", "C+J"):
        only(segments=[segment])
        assert [one.host for one in advice(of_shares({segment: 50.0}), own)] == ["of host"], segment
    assert {spec.role for spec in SEGMENTS} == {*HOSTS, *VMS}


def test_of_two_captures_of_a_machine_that_with_facts_counts(only: Rule) -> None:
    only()
    files = [capture(host="first"), capture(host="second", facts={"a/b": 1}), capture(host="", facts={"a/b": 2})]
    assert [one.host for one in advice(breakdown(E=50.0), files)] == ["second"]
    assert [one.host for one in advice(breakdown(E=50.0), files[:1] * 2)] == ["first"]
    assert [one.host for one in advice(breakdown(E=50.0), files[2:])] == ["receiver-host"]


def test_hosts_whose_facts_nobody_collected_are_one_line(only: Rule) -> None:
    only()
    none = [capture("sender-host"), capture("receiver-host")]
    [found] = advice(of_shares({"C+J": 50.0}), none)
    assert (found.host, found.word) == ("of sender-host, of receiver-host", "?")
    assert found.reason == "r" and found.facts == []
    one_has = [none[0], capture("receiver-host", facts={"a/b": 1})]
    both = advice(of_shares({"C+J": 50.0}), one_has)
    assert [(one.host, one.word) for one in both] == [("of receiver-host", "ok"), ("of sender-host", "?")]


def test_the_order_is_by_urgency_then_by_segment(only: Rule) -> None:
    only(look=[{"fact": "a/b", "says": "s", "equals": ["bad"]}])
    files = [capture("sender-host"), capture("receiver-host", facts={"a/b": "good"})]
    files.append(capture("receiver-vm", facts={"a/b": "bad"}))
    found = advice(breakdown(B=40.0, E=30.0, F=20.0), files)
    assert [(one.segment, one.word, one.host) for one in found] == [
        ("F", "!", "of receiver-vm"), ("E", "ok", "of receiver-host"), ("F", "ok", "of receiver-host"),
        ("B", "?", "of sender-host"),
    ]  # fmt: skip
    assert found[0] == PingAdvice("F", "t", "of receiver-vm", "!", "r", "", [FactShown("a/b", "bad", "!", "s")])
