"""Probes for a far host are compiled here and sent; a kernel that refuses BTF-typed programs gets others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from netconsole.far.host import ThisHost
from netconsole.far.program import Launch
from netconsole.session.live import LiveSession
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import CommandError
from netconsole_collector.compile.refused import TRY_PLAIN
from tests.support.fake_collector import Scenario
from tests.support.session_news import SessionNews

FAKE = Path(__file__).parents[2] / "support" / "fake_collector.py"
REQUEST = ProbeRequest("kernel_drops", knobs={"device": ""}, spec={"probe": {"name": "kernel_drops"}}, code="int x;")
LIMIT_S = 300.0


class Compiler:
    """Compiles nothing, and remembers what it was asked."""

    def __init__(self, fails: bool = False) -> None:
        self.asked: list[tuple[str, bool]] = []
        self._fails = fails

    def prepare(self, spec: Mapping[str, Any], source: str, is_plain: bool = False) -> dict[str, object]:
        self.asked.append((source, is_plain))
        if self._fails:
            raise ValueError("its types make no sense")
        return {"source": "", "compiled": "plain" if is_plain else "typed", "has_plain": not is_plain}


class Elsewhere(ThisHost):
    """A host whose probes are compiled here."""

    def __init__(self, command: list[str], compiler: Compiler) -> None:
        self._command = command
        self.compiler = compiler  # type: ignore[assignment]

    def collector(self, *arguments: str) -> Launch:
        return Launch([*self._command, *arguments])


class Run:
    """A session of such a host."""

    def __init__(self, place: Path, scenario: Scenario, compiler: Compiler) -> None:
        self._log = place / "log"
        command = [sys.executable, str(FAKE), str(scenario.save(place / "scenario.jsonl")), "--log", str(self._log)]
        self.session = LiveSession(Elsewhere(command, compiler), [REQUEST])
        self.until = SessionNews(self.session, LIMIT_S).until

    def loads(self) -> list[object]:
        """What was sent with each load."""
        commands = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [one["compiled"] for one in commands if one["command"] == "load"]


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for one in made:
        one.session.close()


def test_what_is_sent_is_compiled_and_no_source(runs: list[Run], tmp_path: Path) -> None:
    compiler = Compiler()
    scenario = Scenario().hello().do("await", command="load").status("kernel_drops").end()
    runs.append(run := Run(tmp_path, scenario, compiler))
    run.session.start()
    run.until(lambda state: state.probes["kernel_drops"].measuring)
    assert compiler.asked == [("int x;", False)] and run.loads() == ["typed"]


def test_a_kernel_that_refuses_typed_programs_gets_plain_ones(runs: list[Run], tmp_path: Path) -> None:
    compiler = Compiler()
    scenario = Scenario().do("refuse", command="load", probe="kernel_drops", error=TRY_PLAIN).hello()
    scenario.do("await", command="load").do("await", command="load").end()
    runs.append(run := Run(tmp_path, scenario, compiler))
    run.session.start()
    run.until(lambda state: state.collector.intervals > 0)
    assert compiler.asked == [("int x;", False), ("int x;", True)]


def test_what_cannot_be_compiled_says_so_and_ends_the_waiting(runs: list[Run], tmp_path: Path) -> None:
    runs.append(run := Run(tmp_path, Scenario().hello().end(), Compiler(fails=True)))
    run.session.start()
    run.until(lambda state: state.probes["kernel_drops"].status == "failed")
    with run.session.view() as state:
        assert "could not be compiled: ValueError: its types make no sense" in (state.probes["kernel_drops"].why or "")
    with pytest.raises(CommandError):
        run.session.reload("kernel_drops").result(LIMIT_S)
