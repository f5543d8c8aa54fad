"""doctor on one screen: each reason once, and what would help."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from netconsole.base.figure import width
from netconsole.run.doctor import CapabilityCheck, ProbeResult, ProgramCheck, Report
from netconsole.run.doctor_text import COLUMNS, brief, verbose
from netconsole_collector.doctor import WITHOUT_BPF

WHY = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
NO_REASONS = "this kernel gives no drop reasons"
HOST = {"name": "hv-017", "kernel": "6.18.0", "os": "Debian"}


def refused(name: str, state: str = "unsupported") -> ProbeResult:
    tried = [{"point": f"kprobe:{name}", "why": WHY, "detail": ""}]
    there = [ProgramCheck("one", "raw_tracepoint:x")] if state == "degraded" else []
    return ProbeResult(
        state, f"no attach point: kprobe:{name}: {WHY}", None, None, [*there, ProgramCheck(name, None, tried)]
    )


def report() -> Report:
    probes = {f"lacking_{number}": refused(f"function_{number}") for number in range(9)}
    probes |= {"kernel_drops": ProbeResult("attached")}
    probes["ovs_flows"] = ProbeResult("unsupported", "no Open vSwitch here", "name its sockets")
    probes |= {f"works_{number}": ProbeResult("attached") for number in range(12)}
    probes["works_3"] = ProbeResult("attached", NO_REASONS, notes=[NO_REASONS])
    partly = refused("other", "degraded")
    probes["partly_one"] = msgspec.structs.replace(partly, why=f"{partly.why}; {NO_REASONS}", notes=[NO_REASONS])
    probes["link_rates"] = ProbeResult("attached", WITHOUT_BPF)
    capabilities = {"bcc": CapabilityCheck(True), "kprobe": CapabilityCheck(False, WHY, "another kernel")}
    return Report(HOST, capabilities, probes)


def test_it_fits_a_screen_and_says_each_reason_once() -> None:
    text = brief(report())
    lines = text.splitlines()
    assert len(lines) < 24 and max(map(width, lines)) <= COLUMNS
    told = " ".join(text.split())
    assert told.count(WHY) == 3, "of the host, of what does not run, and of what runs in part"
    assert "? unsupported lacking_0, lacking_1," in told and f"! degraded partly_one: {WHY}" in told
    assert "ovs_flows: no Open vSwitch here → name its sockets" in told
    assert "ok 14 of 25 probes: kernel_drops, works_0" in told
    assert f"but works_3, partly_one: {NO_REASONS}" in told and WITHOUT_BPF not in told
    assert "15 of 25 probes run here." in told and "doctor --verbose" in told


def test_the_details_have_every_attach_point() -> None:
    text = " ".join(verbose(report()).split())
    assert text.count(WHY) >= 10 and "one: raw_tracepoint:x" in text and "function_8: not attached" in text


def test_every_line_of_a_small_report() -> None:
    tried = ["kprobe:a", {"point": "kprobe:b", "why": "no b", "detail": ""}, ["kprobe:c", "no c"], 7]
    whole = ProbeResult(
        "attached", None, None, None, [ProgramCheck("drop", "kprobe:d", ["fentry:d"]), ProgramCheck("x", "y")]
    )
    partly = ProbeResult("degraded", "in part", "look", None, [ProgramCheck("late", None, tried), ProgramCheck("z")])
    able = {"bcc": CapabilityCheck(True, help="unneeded"), "raw_tp": CapabilityCheck(False, "too old", "a new one")}
    found = Report(
        HOST, {**able, "map_size": CapabilityCheck(False)}, {"one": whole, "two": partly}, ["three: odd"], True
    )
    assert verbose(found).splitlines() == [
        "  host               hv-017, kernel 6.18.0, Debian",
        "",
        "This host",
        "  bcc                ok",
        "  raw tp             missing: too old",
        "                     → a new one",
        "  map size           missing:",
        "",
        "Probes",
        "  one                ok",
        "                     drop: kprobe:d; not fentry:d",
        "                     x: y",
        "  two                ! degraded: in part",
        "                     late: not attached; tried kprobe:a, kprobe:b: no b,",
        "                       kprobe:c: no c, 7",
        "                     z: not attached; tried nothing",
        "                     → look",
        "  broken             three: odd",
        "",
        "2 of 2 probes run here. The reasons are above.",
    ]
    assert brief(found).splitlines() == [
        "host          hv-017, kernel 6.18.0, Debian",
        "can           bcc",
        "cannot        raw tp: too old",
        "              → a new one",
        "cannot        map size: no reason known",
        "ok            1 of 2 probes: one",
        "! degraded    two: no b",
        "              → look",
        "broken        three: odd",
        "",
        "2 of 2 probes run here. The reasons are above. netconsole doctor --verbose shows",
        "every attach point.",
    ]


def test_what_notes_say_is_not_said_again_where_several_programs_are_missing() -> None:
    tried = [[{"point": f"kprobe:{name}", "why": f"no {name}", "detail": ""}] for name in "ab"]
    programs = [ProgramCheck(name, None, one) for name, one in zip("ab", tried, strict=True)]
    partly = ProbeResult("degraded", "a is not measured; b is not measured; old; odd", notes=["old", "odd"])
    told = " ".join(brief(Report(HOST, {}, {"one": msgspec.structs.replace(partly, programs=programs)})).split())
    assert "! degraded one: a is not measured; b is not measured" in told
    assert (told.count("old"), told.count("odd")) == (1, 1) and "but one: old" in told


def test_the_reason_of_most_probes_comes_first_and_help_is_said_once() -> None:
    def failed(why: str | None, help: str) -> ProbeResult:
        return ProbeResult("failed", why, help)

    probes = {
        "a": failed("rare", "h"),
        "b": failed("often", "one"),
        "c": failed("often", "two"),
        "d": failed("often", "one"),
    }
    lines = brief(Report(HOST, {}, {**probes, "e": failed(None, "")})).splitlines()
    assert lines[1:9] == [
        "can           nothing",
        "ok            nothing",
        "!! failed     b, c, d: often",
        "              → one",
        "              → two",
        "!! failed     a: rare",
        "              → h",
        "!! failed     e: no reason known",
    ]


@pytest.mark.parametrize(
    ("is_far", "user", "said"),
    [
        (True, 1000, "0 of 1 probes run here. The reasons are above."),
        (False, 0, "0 of 1 probes run here. The reasons are above."),
        (False, 1000, "0 of 1 probes run here. Probes in the kernel need root: run netconsole doctor"),
    ],
)
def test_why_nothing_runs_depends_on_who_asks(
    monkeypatch: pytest.MonkeyPatch, is_far: bool, user: int, said: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert said in verbose(Report(HOST, {}, {"a": ProbeResult("failed")}, [], is_far)).splitlines()
    fine = Report(HOST, {}, {"a": ProbeResult("attached", programs=[ProgramCheck("p", "x")])}, [], is_far)
    assert verbose(fine).splitlines()[-1] == "1 of 1 probes run here."


def test_what_comes_from_a_host_is_printable() -> None:
    hostile = Report({"name": "\x1b[31m"}, {}, {"\x1b]0;x\x07": ProbeResult("failed\x1b[2J", "\x1b[2J")})
    for text in (brief(hostile), verbose(hostile)):
        assert "\x1b" not in text


@pytest.mark.parametrize("text", [brief, verbose])
def test_a_command_is_never_broken(text: Callable[[Report], str]) -> None:
    """It can be pasted as it is, however long it is; what is no command wraps."""
    command = f"sudo install -Dm644 -t /etc/netconsole/btf/{'5.10.0-32-amd64' * 3} '*debug*'"
    help = f"make them on any machine with netconsole and pahole 1.22 or newer, such as Debian 12:\n    {command}\nthen"
    probes = {"ovs_drops": ProbeResult("unsupported", "no types", help)}
    capabilities = {"btf": CapabilityCheck(False, "no BTF", help)}
    lines = text(Report(HOST, capabilities, probes)).splitlines()
    assert lines.count(f"    {command}") == 2
    assert max(width(line) for line in lines if command not in line) <= COLUMNS
    assert [line.strip() for line in lines].count("then") == 2
