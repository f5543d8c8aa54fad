"""doctor on one screen: each reason once, and what would help."""

from __future__ import annotations

from netconsole.base.figure import width
from netconsole.run.doctor import CapabilityCheck, ProbeResult, ProgramCheck, Report
from netconsole.run.doctor_text import COLUMNS, brief, verbose

WHY = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
HOST = {"name": "hv-017", "kernel": "6.18.0", "os": "Debian"}


def refused(name: str, state: str = "unsupported") -> ProbeResult:
    tried = [{"point": f"kprobe:{name}", "why": WHY, "detail": ""}]
    there = [ProgramCheck("one", "raw_tracepoint:x")] if state == "degraded" else []
    return ProbeResult(
        state, f"no attach point: kprobe:{name}: {WHY}", None, None, [*there, ProgramCheck(name, None, tried)]
    )


def report() -> Report:
    probes = {f"lacking_{number}": refused(f"function_{number}") for number in range(9)}
    probes |= {"partly_one": refused("other", "degraded"), "kernel_drops": ProbeResult("attached")}
    probes["ovs_flows"] = ProbeResult("unsupported", "no Open vSwitch here", "name its sockets")
    probes |= {f"works_{number}": ProbeResult("attached") for number in range(12)}
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
    assert "ok 13 of 24 probes: kernel_drops, works_0" in told
    assert "14 of 24 probes run here." in told and "doctor --verbose" in told


def test_the_details_have_every_attach_point() -> None:
    text = " ".join(verbose(report()).split())
    assert text.count(WHY) >= 10 and "one: raw_tracepoint:x" in text and "function_8: not attached" in text


def test_what_comes_from_a_host_is_printable() -> None:
    hostile = Report({"name": "\x1b[31m"}, {}, {"\x1b]0;x\x07": ProbeResult("failed", "\x1b[2J")})
    for text in (brief(hostile), verbose(hostile)):
        assert "\x1b" not in text
