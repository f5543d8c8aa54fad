"""Calibration: intervals that keep their promise, verdicts that need both tests, files that cannot do harm."""

from __future__ import annotations

import math
import random
import stat
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.base.errors import BadInput, Unable
from netconsole.calibrate import estimate, plan, store
from netconsole.calibrate.estimate import Interval, change_pct, log_ratio, verdict
from netconsole.calibrate.plan import NOTHING, Measured, Outcome, Treatment
from netconsole.calibrate.result import Entry, ToolUse
from netconsole.calibrate.summary import entry
from netconsole.calibrate.tool import ProgramRuns, Runs
from netconsole.cli.main import run
from netconsole.probes.catalogue import shipped
from netconsole.report import to_markdown, to_text
from netconsole.report.of_calibration import of_calibration
from netconsole.telemetry.request import ProbeRequest

MANIFEST = shipped("kernel_drops")


@given(st.floats(1, 1e6), st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_a_steady_drift_is_no_change(begin: float, drift: float, effect: float) -> None:
    """Three stretches of a machine that gets faster or slower at a steady pace."""
    assert log_ratio(begin, begin * drift * effect, begin * drift**2) == pytest.approx(math.log(effect), abs=1e-9)


def test_the_interval_is_that_of_the_textbook() -> None:
    """Of 1 to 5 with 99 %: t is 4.604 with four degrees of freedom, the standard error 0.7071."""
    found = estimate.mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0 - 3.2557, 3.0 + 3.2557), abs=1e-3)
    assert estimate.MIN_PAIRS == 5


@pytest.mark.parametrize(
    ("low", "high", "holds"), [(0.0, 0.5, True), (-0.5, 0.0, True), (0.01, 0.5, False), (-0.5, -0.01, False)]
)
def test_an_interval_that_touches_zero_may_be_no_change(low: float, high: float, holds: bool) -> None:
    assert estimate.Interval(0.1, low, high).holds_zero == holds


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(7)
    held = sum(
        (lambda one: one.low <= 2.0 <= one.high)(change_pct([math.log(1.02) + dice.gauss(0, 0.01) for _ in range(5)]))
        for _ in range(4000)
    )
    assert 0.985 <= held / 4000 <= 0.995


def test_nothing_against_nothing_is_hardly_ever_called_a_change() -> None:
    dice = random.Random(8)

    def pairs() -> list[float]:
        return [dice.gauss(0, 0.03) for _ in range(5)]

    said = [verdict(change_pct(pairs()), change_pct(pairs()).farther_end, "up") for _ in range(4000)]
    assert sum(word != "no measurable change" for word in said) <= 0.005 * len(said)


@pytest.mark.parametrize(
    ("change", "floor_pct", "worse", "expected"),
    [
        (Interval(5, -1, 11), 1, "up", "no measurable change"),
        (Interval(5, 4, 6), 7, "up", "no measurable change"),
        (Interval(5, 4, 6), 5, "up", "no measurable change"),
        (Interval(5, 4, 6), 2, "up", "slower"),
        (Interval(5, 4, 6), 2, "down", "faster"),
        (Interval(-5, -6, -4), 2, "down", "slower"),
    ],
)
def test_a_change_is_outside_of_chance_and_of_the_floor(
    change: Interval, floor_pct: float, worse: Literal["up", "down"], expected: str
) -> None:
    assert verdict(change, floor_pct, worse) == expected


def outcome(measured: bool = True, cost_ns: float = 2000.0) -> tuple[Treatment, Outcome]:
    """Dropped datagrams of 5 µs, and a probe that takes so much more; programs of 2.1 µs, 0.1 of them empty."""
    dice = random.Random(9)
    treatment = Treatment("kernel_drops:summary", (ProbeRequest("kernel_drops"),))
    with_it, without = Measured(seconds=10, cpu_s=0.1, written_bytes=1000, pss_kb=12_000), Measured(seconds=10)
    for _ in range(6):
        around = [5000 * dice.gauss(1, 0.005) for _ in range(4)]
        with_it.figures.setdefault("dropped.cpu_ns", []).append((around[0], around[1] + cost_ns, around[2]))
        without.figures.setdefault("dropped.cpu_ns", []).append((around[0], around[3], around[2]))
        count = 10_000
        run_time_ns = round(count * 2100 * dice.gauss(1, 0.01)) if measured else 0
        runs = Runs(
            {("kernel_drops", "drop"): ProgramRuns("raw_tracepoint:kfree_skb", count if measured else 0, run_time_ns)},
            {("kernel_drops", "drops"): count},
            measured,
        )
        with_it.runs.setdefault("dropped", []).append((runs, count))
    return treatment, Outcome(
        {treatment.name: with_it, NOTHING: without}, {"raw_tracepoint:kfree_skb": 100.0} if measured else {}, 3.0
    )


def judged(measured: bool = True, cost_ns: float = 2000.0) -> Entry:
    treatment, found = outcome(measured, cost_ns)
    return entry(treatment, found, {"kernel_drops": MANIFEST}, 6, 0.4)


def test_a_known_cost_is_found() -> None:
    one = judged()
    (change,) = one.changes
    assert change.verdict == "slower" and change.during - change.before == pytest.approx(2000, rel=0.05)
    assert change.change_pct.low <= 40 <= change.change_pct.high and 0 < change.floor_pct < 5
    (in_kernel,) = one.kernel
    assert in_kernel.ns.value == pytest.approx(2000, rel=0.05) and in_kernel.runs == 1
    assert one.per_count["kernel_drops"].ns == pytest.approx(2100, rel=0.05)
    assert one.per_count["kernel_drops"].basis == "run times"


def test_an_entry_says_what_ran_and_what_the_tool_took() -> None:
    treatment, found = outcome()
    found.measured[NOTHING].cpu_s = 0.05
    one = entry(treatment, found, {"kernel_drops": MANIFEST}, 6, 0.4)
    assert (one.name, one.probes, one.versions) == (
        "kernel_drops:summary", {"kernel_drops": "summary"}, {"kernel_drops": MANIFEST.version},
    )  # fmt: skip
    assert (one.pairs, one.window_s, one.busy_pct) == (6, 0.4, 3.0)
    assert one.tool == ToolUse(cpu_pct=1.0, idle_cpu_pct=0.5, pss_kb=12_000, written_bytes_per_s=100.0)
    (program,) = one.programs
    assert (program.probe, program.name, program.attach) == ("kernel_drops", "drop", "raw_tracepoint:kfree_skb")
    assert program.ns_per_run == pytest.approx(2100, rel=0.02) and program.empty_ns == 100.0
    nothing_took = entry(treatment, Outcome({treatment.name: Measured(), NOTHING: Measured()}, {}, 0.0), {
        "kernel_drops": MANIFEST}, 6, 0.4)  # fmt: skip
    assert nothing_took.tool == ToolUse(0.0, 0.0, None, 0.0) and not nothing_took.per_count


@pytest.mark.parametrize(("stretches", "is_known"), [(1, False), (2, True)])
def test_an_interval_needs_two_stretches(stretches: int, is_known: bool) -> None:
    treatment, found = outcome()
    runs = found.measured[treatment.name].runs
    runs["dropped"] = runs["dropped"][:stretches]
    assert bool(entry(treatment, found, {"kernel_drops": MANIFEST}, 6, 0.4).kernel) == is_known


def test_the_programs_of_other_probes_are_no_cost_of_a_count() -> None:
    treatment, found = outcome()
    for runs, _ in found.measured[treatment.name].runs["dropped"]:
        runs.programs["tx_queue_latency", "freed"] = ProgramRuns("raw_tracepoint:kfree_skb", 9, 10**9)
        runs.counts["tx_queue_latency", "sent"] = 10**9
    one = entry(treatment, found, {"kernel_drops": MANIFEST}, 6, 0.4)
    assert one.per_count["kernel_drops"].ns == pytest.approx(2100, rel=0.05)


def test_where_the_kernel_does_not_tell_the_load_does() -> None:
    one = judged(measured=False)
    assert not one.kernel and one.programs[0].ns_per_run is None
    assert one.per_count["kernel_drops"].basis == "CPU of the sender"
    assert one.per_count["kernel_drops"].ns == pytest.approx(2000, rel=0.05)
    assert not judged(measured=False, cost_ns=0.0).per_count  # unknown, not 0


def test_it_is_stored_by_host_and_kernel_and_what_was_found_earlier_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store.load() is None
    one = judged()
    path = store.save(store.made([one]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.is_relative_to(tmp_path)
    store.save(store.made([msgspec.structs.replace(one, name="other")]))
    found = store.load()
    assert found is not None and set(found.entries) == {"kernel_drops:summary", "other"}
    assert found.entries["kernel_drops:summary"] == one
    path.write_text("{")
    with pytest.raises(BadInput, match="calibrate again"):
        store.load()


def test_what_a_probe_cost_before_its_figures_changed_is_no_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store.per_count({"kernel_drops": MANIFEST}) == {}
    store.save(store.made([judged()]))
    ((key, (counter, ns)),) = store.per_count({"kernel_drops": MANIFEST}).items()
    assert (key, counter) == (("kernel_drops", "summary"), "drops") and ns == pytest.approx(2100, rel=0.05)
    assert store.per_count({"kernel_drops": replace(MANIFEST, version=MANIFEST.version + 1)}) == {}
    assert store.per_count({}) == {}


def test_where_nothing_can_be_stored_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(BadInput, match=r"calibrations: cannot make this directory: not a directory"):
        store.save(store.made([judged()]))


def test_names_of_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = store.made([judged()])
    host = msgspec.structs.replace(made.host, name="h" * 200, kernel="k" * 200)
    path = store.save(msgspec.structs.replace(made, host=host))
    assert path.name == f"{'h' * 64}-{'k' * 64}.json"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_hosts_name_does_not_leave_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    found = store.made([])
    hostile = msgspec.structs.replace(found, host=msgspec.structs.replace(found.host, name="../../../etc/x\x1b[2J"))
    assert store.save(hostile).parent == tmp_path / "netconsole" / "calibrations"


def test_the_report_says_figures_intervals_floor_and_verdict() -> None:
    document = of_calibration(store.made([judged(), msgspec.structs.replace(judged(cost_ns=0.0), name="cheap")]))
    text, markdown = to_text(document), to_markdown(document)
    assert "slower" in text and "no measurable change" in text and "noise floor" in text
    assert "| dropped datagrams: CPU of the sender |" in markdown and "+40" in text


def test_a_busy_host_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "busy_pct", lambda _host: 45.0)
    with pytest.raises(Unable, match=r"45 %.*--force"):
        plan.run([], [], 5, 0.4, print)


class FakeTool:
    """Refuses the probes of a host that lacks what they watch."""

    def __init__(self, refused: set[str]) -> None:
        self.refused, self.attached = refused, set[str]()

    def attach(self, request: ProbeRequest) -> None:
        if request.name in self.refused:
            raise Unable(f"{request.name}: vhost is not loaded")
        self.attached.add(request.name)

    def detach(self, name: str) -> None:
        self.attached.remove(name)


def test_what_does_not_run_here_is_left_out_unless_it_was_named() -> None:
    here, absent = ProbeRequest("here"), ProbeRequest("absent")
    tool, said = FakeTool({"absent"}), list[str]()
    whole = plan.Treatment("profile x", (here, absent), is_named=False)
    treatments = [plan.Treatment("absent", (absent,), is_named=False), whole, plan.Treatment("named", (absent,))]
    found = plan._possible(tool, treatments, said.append)  # type: ignore[arg-type]
    assert [(one.name, one.requests) for one in found] == [("profile x", (here,)), ("named", (absent,))]
    assert said == ["left out: absent: vhost is not loaded"] * 2 and not tool.attached
    with pytest.raises(Unable, match="none of these"):
        plan._possible(tool, treatments[:1], said.append)  # type: ignore[arg-type]


def test_empty_programs_are_on_the_hooks_of_the_probes_once_each() -> None:
    request = plan.empty_programs([MANIFEST, MANIFEST])
    programs = request.spec["programs"]
    assert isinstance(programs, list) and len(programs) == len(MANIFEST.programs)
    assert all(one["attach"][0]["function"] == "nothing" for one in programs)


@pytest.mark.parametrize(
    "words",
    [
        ["--window", "1ms"],
        ["--pairs", "4"],
        ["--probe", "kernel_drop"],
        ["--probe", "kernel_drops:detail"],
        ["--probe", "link_rates"],
        ["--profile", "nonsense"],
        ["--format", "pdf"],
    ],
)
def test_a_bad_command_line_is_one_line_and_nothing_is_measured(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert said and "\n" not in said and "Traceback" not in said
