"""Runs tests of the project inside the lab's hypervisor, and reports their results outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import CANNOT
from tests.lab.machine.errors import CommandTimeout
from tests.lab.machine.hypervisor import CHECKOUT, Hypervisor, on_a_still_checkout
from tests.support.live.measurement import MUST_LOAD

REPORT = "/run/lab/junit.xml"
OUTPUT_SHOWN = 4000
INTERRUPT_LIMIT_S = 60.0  # for pytest to tear down its fixtures and write its report


@dataclass(frozen=True)
class Outcome:
    """One test that ran inside."""

    file: str
    name: str
    state: str  # passed, failed or skipped
    text: str
    duration_s: float


@dataclass(frozen=True)
class Run:
    """All outcomes, the end of what pytest printed, and whether it was cut off at the limit."""

    outcomes: list[Outcome]
    output: str
    cut_off: bool

    def of(self, file: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.file == file]

    def has_passed(self, file: str) -> None:
        """Fails unless tests of the file ran to the end, none failed, and not all were skipped.

        A skip has to say that it cannot be helped here. That a probe is refused inside is none (MUST_LOAD).
        """
        outcomes = self.of(file)
        assert outcomes, f"no test of {file} came back{' before the limit' if self.cut_off else ''}:\n{self.output}"
        failed = [f"{outcome.name}: {outcome.text}" for outcome in outcomes if outcome.state == "failed"]
        assert not failed, "\n".join(failed)
        skipped = [outcome for outcome in outcomes if outcome.state == "skipped"]
        needless = [f"{one.name}: {one.text}" for one in skipped if not one.text.startswith(CANNOT)]
        assert not needless, "skipped without need:\n" + "\n".join(needless)
        passed = [outcome for outcome in outcomes if outcome.state == "passed"]
        assert passed, "\n".join(f"{outcome.name}: {outcome.text}" for outcome in outcomes)
        assert not self.cut_off, f"cut off at its limit:\n{self.output}"


def console_command(*arguments: str) -> list[str]:
    """The console with these arguments, as a command for inside."""
    return on_a_still_checkout(str(Path(sys.executable).with_name("netconsole")), *arguments)


def run_pytest(
    hypervisor: Hypervisor, *paths: str, limit_s: float, select: str = "", leave_out: Iterable[str] = ()
) -> Run:
    """Runs these tests (paths from the checkout's root) with the project's interpreter.

    `select` is an expression for pytest's -k, and `leave_out` are tests that are not run. At the limit pytest is
    interrupted, so that what it has done until then is reported.
    """
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_rerunfailures"),
        *("--color=no", "-v", "--durations=5"),
        *(f"--junitxml={REPORT}", "-o", "junit_family=xunit1", *paths),
        *(("-k", select) if select else ()),
        *(f"--deselect={test}" for test in leave_out),
    ]
    # No plugin that the live tests do not use: to find and load them all takes longer than pytest itself.
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", MUST_LOAD: "1"}
    environment |= {name: os.environ[name] for name in ("CI",) if name in os.environ}
    _collect_here(paths, environment)
    hypervisor.shell(f"mkdir -p {Path(REPORT).parent}; rm -f {REPORT}")
    with hypervisor.start(*on_a_still_checkout(*command), env=environment) as process:
        process.close_input()
        cut_off = not process.ends_within(limit_s)
        if cut_off:
            process.signal(signal.SIGINT)
            with contextlib.suppress(CommandTimeout):  # then it is killed: no report, but its output
                process.wait(INTERRUPT_LIMIT_S)
        output = (bytes(process.out) + bytes(process.err)).decode("utf-8", "replace")[-OUTPUT_SHOWN:]
    report = hypervisor.run("cat", REPORT, check=False)
    return Run(_outcomes(report.text) if report.code == 0 else [], output, cut_off)


def _collect_here(paths: Sequence[str], environment: Mapping[str, str]) -> None:
    """What pytest makes of the tests' assertions is kept beside them: inside it would take it half a minute."""
    command = [sys.executable, "-m", "pytest", "-p", "pytest_rerunfailures", "--collect-only", "-q", *paths]
    kept = {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, cwd=CHECKOUT, env=kept, stdout=subprocess.DEVNULL, check=False)


def _outcomes(report: str) -> list[Outcome]:
    found = []
    for case in ET.fromstring(report).iter("testcase"):
        state, text = "passed", ""
        for kind, meaning in (("skipped", "skipped"), ("error", "failed"), ("failure", "failed")):
            for element in case.findall(kind):
                state = meaning
                text += f"{element.get('message') or ''}\n{element.text or ''}\n"
        found.append(Outcome(case.get("file") or "", case.get("name") or "", state, text, float(case.get("time") or 0)))
    return found
