"""A host is asked the same here and over a line, before a session and during it; what hangs or lies is one sentence."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.base.fact_keys import FactData
from netconsole.far import archive
from netconsole.far.far_host import FarHost
from netconsole.far.host import THIS_HOST
from netconsole.far.program import Launch
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.sources.facts import collect
from netconsole.sources.ping_ends import read_tables
from netconsole.telemetry.frames import Bye, Cost, Hello
from netconsole_collector.questions import known
from tests.support.far_host import NearHost
from tests.support.local_line import host

LIMIT_S = 60.0
OLDEST = next((str(one) for one in sorted(Path.home().glob(".pyenv/versions/3.[67].*/bin/python3"))), sys.executable)
"""As old as there is one here, from 3.6 on."""


@pytest.fixture
def far() -> Iterator[FarHost]:
    """Probes for it would be compiled here."""
    with closing(host()) as made:
        made.compiler = cast(Any, object())
        yield made


def test_a_far_host_is_asked_like_this_one(far: FarHost) -> None:
    own = Path("/proc/self/ns/net").stat().st_ino
    for one in (THIS_HOST, far):
        assert door.ask(one, "namespace", {"inode": own})["is_own"]
        assert "lo" in door.ask(one, "interfaces", None, set[str])
        with pytest.raises(Unanswered, match="name: expected a text"):
            door.ask(one, "namespace", {"name": 7})
        with pytest.raises(Unanswered, match="interfaces: an answer that makes no sense"):
            door.ask(one, "interfaces", None, dict[str, int])


def lasting(found: Mapping[str, FactData]) -> dict[str, object]:
    """Values, without those of namespaces: other tests make and remove some meanwhile."""
    return {key: fact.value for key, fact in found.items() if not (key.split("/")[0] == "namespace" or fact.volatile)}


def test_facts_and_tables_of_a_far_host_are_those_that_are_read_there(far: FarHost) -> None:
    there, here = collect(far), collect()
    assert lasting(there) == lasting(here)
    assert {fact.source for fact in there.values()} == {fact.source for fact in here.values()}
    assert "lo" in read_tables(far).links


def test_an_old_python_there_answers_the_same() -> None:
    with closing(NearHost(python=OLDEST)) as old:
        assert lasting(collect(old)) == lasting(collect())
        assert read_tables(old).own == read_tables().own
        assert door.ask(old, "namespace", {"name": "host"}) == door.ask(THIS_HOST, "namespace", {"name": "host"})


@pytest.mark.parametrize(
    ("byteorder", "message", "why"),
    [
        ("middle", "", "the host's processors order bytes otherwise than those here"),
        (sys.byteorder, "AAAA", "netconsole cannot read it: "),
        (sys.byteorder, "no base64", "netconsole cannot read it: "),
    ],
)
def test_messages_of_traffic_control_that_cannot_be_read_are_unknown_facts(
    far: FarHost, monkeypatch: pytest.MonkeyPatch, byteorder: str, message: str, why: str
) -> None:
    messages = {"byteorder": byteorder, "names": [], "qdiscs": [message], "filters": [], "classes": []}
    told = json.dumps({"facts": {"kernel/release": ["6.1", "uname", None, False]}, "tc": messages})
    said = f"""print('{{"answer": %d, "document": {told}}}' % json.loads(input())["id"], flush=True)"""
    code = f"import json; {said}; input()"
    monkeypatch.setattr(far, "measuring", lambda: Launch([sys.executable, "-c", code]))
    found = collect(far)
    assert found["kernel/release"].value == "6.1"
    assert found["tc"].value is None and str(found["tc"].why).startswith(why)


@pytest.mark.parametrize("first", [b"", b'{"id": 1, "command": "clock"}\n'])
def test_its_collector_ends_by_itself_when_the_line_is_silent(
    far: FarHost, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(archive, "SILENCE_S", 0.2)
    launch = far.measuring()
    # It may have ended before all of its program was written.
    with (
        contextlib.suppress(BrokenPipeError),
        subprocess.Popen(launch.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as running,
    ):
        assert running.stdin is not None
        running.stdin.write(launch.opening + first)
        running.stdin.flush()
        running.wait(LIMIT_S)
    assert running.wait(LIMIT_S) is not None


def test_a_host_that_cannot_be_asked_has_unknown_facts(far: FarHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "measuring", lambda: Launch(["/none"]))
    assert {fact.why for fact in collect(far).values()} == {
        "cannot start the collector /none: No such file or directory"
    }


def test_a_session_takes_the_collector_that_was_asked_and_it_is_asked_on(far: FarHost) -> None:
    door.ask(far, "interfaces")
    with closing(door.collector_for_session(far)) as process:
        process.send({"id": 1, "command": "interval", "ms": 50})
        frames = process.frames()
        assert isinstance(next(frames), Hello), "before that it said nothing"
        told: list[object] = []
        asking = threading.Thread(target=lambda: told.append(door.ask(far, "namespace", {"name": "host"})))
        asking.start()
        seen = [next(frames)]
        while not told:
            seen.append(next(frames))
        asking.join(LIMIT_S)
        assert told == [door.ask(THIS_HOST, "namespace", {"name": "host"})]
        assert {one.seq for one in seen} == set(range(2, len(seen) + 2)), "answers have no number"
        assert any(isinstance(one, Cost) for one in seen)
        with closing(door.collector_for_session(far)) as another:
            assert another.pid != process.pid
        process.close()
        assert isinstance([*frames][-1], Bye)
    assert "lo" in door.ask(far, "interfaces", None, set[str]), "another one is started"


def test_a_question_that_hangs_here_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    may = threading.Event()
    monkeypatch.setitem(known.KNOWN, "hanging", 0.01)
    module = SimpleNamespace(answer=lambda arguments: may.wait(LIMIT_S))
    monkeypatch.setitem(sys.modules, "netconsole_collector.questions.hanging", module)
    with pytest.raises(Unanswered, match=r"hanging: no answer within 0\.01 s"):
        door.ask(THIS_HOST, "hanging")
    may.set()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.stdin.read()", "the host does not answer"),
        ("sys.exit('no room here')", "no room here"),
        ('print(\'{"answer":7}\\n{"answer":[\', flush=True); sys.stdin.read()', "the host does not answer"),
    ],
)
def test_a_program_that_does_not_answer_is_one_sentence(
    far: FarHost, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    monkeypatch.setattr(door, "_LOOK_S", 0.01)
    monkeypatch.setattr(door, "LINE_S", 0.1)
    monkeypatch.setattr(door, "START_S", 0.1)
    monkeypatch.setitem(known.KNOWN, "interfaces", 0.1)
    monkeypatch.setattr(far, "measuring", lambda: Launch([sys.executable, "-I", "-c", f"import sys; {code}"]))
    with pytest.raises(Unanswered, match=why):
        door.ask(far, "interfaces")
