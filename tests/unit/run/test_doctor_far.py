"""`doctor --host` asks twice where the kernel refuses BTF-typed programs: what the first round found has to stay."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netconsole.far.host import ThisHost
from netconsole.far.program import Launch
from netconsole.probes.catalogue import Catalogue, load_all
from netconsole.run import doctor
from netconsole_collector.doctor import BY_HELPERS

KERNEL = "6.1.0-56-amd64"
TYPED = {
    "softirq_health": {"state": "attached", "programs": [{"name": "one", "attach": "raw_tracepoint:kfree_skb"}]},
    "kernel_drops": {
        "state": "failed",
        "why": "drops cannot be measured: raw_tracepoint:kfree_skb: invalid mem access",
        "programs": [
            {
                "name": "drop",
                "tried": [{"point": "raw_tracepoint:kfree_skb", "why": "invalid mem access", "detail": "R1"}],
            },
        ],
    },
}
PLAIN = {
    "kernel_drops": {
        "state": "attached",
        "why": "no reasons",
        "notes": ["no reasons"],
        "programs": [{"name": "drop", "attach": "raw_tracepoint:kfree_skb"}],
    }
}
ANSWERS = """
import pathlib, sys
state = pathlib.Path(sys.argv[1])
sys.stdin.readline()
answers = state.read_text().splitlines()
state.write_text("\\n".join(answers[1:]))
print(answers[0]) if answers else sys.exit("the link is cut")
"""


class Compiler:
    """Compiles nothing. Each probe has programs that are not BTF-typed, too."""

    def prepare(self, spec: Mapping[str, Any], source: str, is_plain: bool = False) -> dict[str, object]:
        return {"compiled": "", "has_plain": not is_plain}


class Host(ThisHost):
    """Its collector gives these answers, one a start, and then none."""

    def __init__(self, state: Path, *answers: Mapping[str, Any]) -> None:
        self.compiler = Compiler()  # type: ignore[assignment]
        self._state = state
        state.write_text("\n".join(json.dumps({"host": {"kernel": KERNEL}, "probes": one}) for one in answers))

    def collector(self, *arguments: str) -> Launch:
        return Launch([sys.executable, "-c", ANSWERS, str(self._state)])


@pytest.fixture
def manifests() -> Catalogue:
    shipped = load_all()
    return Catalogue({name: shipped[name].directory for name in TYPED})


def test_a_probe_that_is_refused_typed_is_tried_again_by_itself(tmp_path: Path, manifests: Catalogue) -> None:
    report = doctor.examine(manifests, Host(tmp_path / "answers", TYPED, PLAIN))
    assert report.running == ["kernel_drops", "softirq_health"]
    assert report.capabilities["collector"].ok
    (limit,) = doctor.limits_on(manifests["kernel_drops"], KERNEL)
    notes = ["no reasons", BY_HELPERS.format("invalid mem access"), limit]
    assert report.probes["kernel_drops"].why == "; ".join(notes)
    assert report.probes["kernel_drops"].notes == notes
    assert report.probes["softirq_health"].why is None


def test_each_step_is_told_as_it_comes(tmp_path: Path, manifests: Catalogue) -> None:
    host = Host(tmp_path / "answers")
    host.compiler = None
    steps = [{"trying": "a"}, {"trying": "b\x1b[2J"}, {"tried": "a", "state": "attached"}, {"tried": "b", "state": "?"}]
    written = "\n".join(json.dumps(step) for step in steps)
    program = (
        "import sys, time; sys.stdin.readline()\nfor one in sys.argv[1]: sys.stdout.write(one); sys.stdout.flush()"
    )
    program += "\nprint(); print('{', '\"host\": {}}', sep='\\n')"
    host.collector = lambda *_: Launch([sys.executable, "-c", program, written])  # type: ignore[method-assign]
    told: list[str] = []
    report = doctor.examine(manifests, host, told.append)
    assert told == ["trying 1 of 2: a", "trying 2 of 2: b\\x1b[2J", "a: ok", "b: ?"]
    assert report.capabilities["collector"].ok, "what follows the steps is the document"


def test_a_second_round_without_an_answer_takes_nothing_from_the_first(tmp_path: Path, manifests: Catalogue) -> None:
    report = doctor.examine(manifests, Host(tmp_path / "answers", TYPED))
    assert report.running == ["softirq_health"]
    assert report.capabilities["collector"].ok
    failed = report.probes["kernel_drops"]
    assert not failed.notes
    assert failed.state == "failed" and "the link is cut" in (failed.why or "")


@pytest.mark.parametrize("said", ['b\'{"probes":{"a":{"state":"\\xff"}}}\'', "b'[' * 5000"])
def test_an_answer_that_cannot_be_read_is_none(said: str, tmp_path: Path, manifests: Catalogue) -> None:
    host = Host(tmp_path / "answers")
    program = f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({said}); sys.exit('it ends')"
    host.collector = lambda *_: Launch([sys.executable, "-c", program])  # type: ignore[method-assign]
    report = doctor.examine(manifests, host)
    assert not report.capabilities["collector"].ok and "it ends" in (report.capabilities["collector"].why or "")
