"""What to check: rules that are valid, facts that are judged, commands that stay text."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from netconsole.ping.analysis.advice import RULES, rules
from netconsole.ping.analysis.analyze import analyze
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import PingAdvice
from netconsole.ping.cases import case_of
from netconsole.ping.compared import against
from netconsole.ping.model import PATH, STAGES
from netconsole.report import of_ping, to_html, to_text
from tests.support.ping import linked


def facts(**values: Any) -> dict[str, Any]:
    """Facts by key; two underscores stand for a slash."""
    return {name.replace("__", "/"): {"value": value, "source": "test"} for name, value in values.items()}


SLEEPY = facts(
    cpu__idle__state3__exit_latency_us=133,
    cpu__idle__state3__disabled="0",
    cpu__idle__state4__exit_latency_us=890,
    cpu__idle__state4__disabled="1",
    cpu__governor="powersave",
    module__kvm__halt_poll_ns="200000",
)


def of_topic(found: list[PingAdvice], topic: str, segment: str) -> PingAdvice:
    return next(one for one in found if one.topic == topic and one.segment == segment)


def slow_interrupt(**more: Any) -> list[CaptureFile]:
    """A case whose receiver's interrupt takes 200 us, 190 of them until vhost's worker runs."""
    found = []
    for file, one in linked(5, facts=SLEEPY, **more):
        if one.role == "receiver-host" and one.vhost_irq is not None:
            rows = [msgspec.structs.replace(row, s1_s2=190.0, total=200.0) for row in one.vhost_irq.packets]
            irq = msgspec.structs.replace(one.vhost_irq, packets=rows)
            packets = [
                msgspec.structs.replace(row, between_us=(row.between_us or 0) + 180, total_us=(row.total_us or 0) + 180)
                for row in one.packets
            ]
            one = msgspec.structs.replace(one, vhost_irq=irq, packets=packets)
        elif one.role.startswith("sender"):
            packets = [
                msgspec.structs.replace(row, between_us=(row.between_us or 0) + 180, total_us=(row.total_us or 0) + 180)
                for row in one.packets
            ]
            one = msgspec.structs.replace(one, packets=packets)
        found.append(CaptureFile(file, one))
    return found


def test_every_rule_is_of_segments_and_stages_that_exist_and_every_segment_has_one() -> None:
    stages = {stage for names in STAGES.values() for stage in names}
    covered = set()
    for rule in rules():
        assert set(rule.segments) <= set(PATH) and set(rule.stages) <= stages, rule.topic
        assert rule.reason and rule.command and rule.facts and rule.command.isprintable(), rule.topic
        assert all(look.fact in rule.facts for look in rule.look), rule.topic
        covered |= set(rule.segments)
    assert covered == set(PATH)
    assert len({rule.topic for rule in rules()}) == len(rules()) and RULES.is_file()


def test_an_exit_latency_is_held_against_the_measured_stage_unless_the_state_is_disabled() -> None:
    found = analyze(slow_interrupt())
    assert found.dominant == "E"
    idle = of_topic(found.advice, "idle states of the CPUs", "E")
    words = {fact.fact: fact.word for fact in idle.facts}
    assert words["cpu/idle/state3/exit_latency_us"] == "!" and words["cpu/idle/state4/exit_latency_us"] == "ok"
    assert idle.word == "!" and found.advice[0].word == "!" and idle.host == "of receiver-host"
    polling = of_topic(found.advice, "halt polling", "E")
    assert polling.word == "ok"


def test_with_a_baseline_the_segments_of_the_difference_are_looked_into_and_changed_facts_are_said() -> None:
    then = [CaptureFile(file, one) for file, one in linked(5, facts=facts(cpu__governor="performance"))]
    found = against(case_of(slow_interrupt(), "now"), case_of(then, "then"))
    assert {one.segment for one in found.advice} == {"E"}
    governor = of_topic(found.advice, "frequency of the CPUs", "E").facts[0]
    assert governor.word == "!" and "in the baseline: performance" in governor.says


def test_names_from_outside_stay_text_in_commands_and_reports() -> None:
    evil = "a'b; $(reboot) <script>\x1b[31m"
    found = analyze(slow_interrupt(vm=evil, host=evil, outside=[evil]))
    commands = [one.command for one in found.advice if "b; $(reboot)" in one.command]
    assert commands
    for command in commands:
        assert shlex.quote(evil) in command
    assert "<script>" not in to_html(of_ping(found))
    assert all(line.isprintable() for line in to_text(of_ping(found), 80).splitlines())
