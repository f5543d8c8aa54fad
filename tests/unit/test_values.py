"""Every value that a probe promises is proven: a test holds it against a measure that is not the probe's own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from netconsole.base.readers import read_toml
from tests.support.promises import losses, promises
from tests.support.proofs import ProofError, proofs

EXCEPTIONS = Path(__file__).parents[1] / "support" / "data" / "not-proven.toml"


@pytest.fixture(scope="module")
def promised() -> dict[str, set[str]]:
    return promises()


@pytest.fixture(scope="module")
def proven() -> dict[str, set[str]]:
    return {probe: set(names) for probe, names in proofs().items()}


@pytest.fixture(scope="module")
def excused() -> dict[str, set[str]]:
    document: Any = read_toml(EXCEPTIONS)
    return {probe: set(reasons) for probe, reasons in document["cannot"].items()}


def test_each_promise_has_a_proof_or_a_reason(
    promised: dict[str, set[str]], proven: dict[str, set[str]], excused: dict[str, set[str]]
) -> None:
    open_ = {probe: names - proven.get(probe, set()) - excused.get(probe, set()) for probe, names in promised.items()}
    assert not {probe: sorted(names) for probe, names in open_.items() if names}


def test_nothing_is_proven_that_nobody_promises(promised: dict[str, set[str]], proven: dict[str, set[str]]) -> None:
    unknown = {probe: names - promised.get(probe, set()) for probe, names in proven.items()}
    assert not {probe: sorted(names) for probe, names in unknown.items() if names}


def test_what_is_proven_or_gone_is_no_exception_any_more(
    promised: dict[str, set[str]], proven: dict[str, set[str]], excused: dict[str, set[str]]
) -> None:
    stale = {
        probe: names & proven.get(probe, set()) | names - promised.get(probe, set()) for probe, names in excused.items()
    }
    assert not {probe: sorted(names) for probe, names in stale.items() if names}


def test_losses_are_those_that_a_program_can_count() -> None:
    code = """
static inline void helper(struct thing *one)
{
    nc_ledger_add(NC_MAP_FULL);
}

static inline int unused(void)
{
    nc_ledger_add(NC_JOIN_MISSED);
}

int program(struct bpf_raw_tracepoint_args *ctx)
{
    helper(0);
    return 0;
}
"""
    assert losses(code, {"program"}) == {"map_full"}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('PROBE = "a"\n@pytest.mark.proves(PROBE, "counters.b")\ndef test_it():\n    b = 1\n', "literal texts"),
        ('@pytest.mark.proves("a")\ndef test_it():\n    pass\n', "literal texts"),
        ('@pytest.mark.proves("a", "counters.b")\ndef helper():\n    b = 1\n', "literal texts"),
        ('@pytest.mark.proves("a", "counters.b")\ndef test_it():\n    pass\n', "no line names b"),
    ],
)
def test_a_marker_that_says_too_much_is_refused(tmp_path: Path, source: str, complaint: str) -> None:
    (tmp_path / "test_one.py").write_text(textwrap.dedent(source))
    with pytest.raises(ProofError, match=complaint):
        proofs(tmp_path)


def test_a_marker_is_read(tmp_path: Path) -> None:
    source = '@pytest.mark.proves("a", "tables.t.{b,c}", "knobs.d")\ndef test_it():\n    b, c, d = 1, 2, 3\n'
    (tmp_path / "test_one.py").write_text(source)
    found = {name: [test.rpartition("::")[2] for test in tests] for name, tests in proofs(tmp_path)["a"].items()}
    assert found == {name: ["test_it"] for name in ("tables.t.b", "tables.t.c", "knobs.d")}
