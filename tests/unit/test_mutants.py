"""The faults that `make mutants` puts in: each is one change, and nothing else of the module is touched."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants import cores
from tools.mutants.changes import mutants

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LIMIT = 500", ["LIMIT = 1000"]),
        ("SHARE = 0.5; FEW = 3; ON = True", ["SHARE = 1.0", "FEW = 4", "ON = False"]),
        ("x = a < b", ["x = a <= b"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = a + b * c", ["x = a - b * c", "x = a + b / c"]),
        ("x = a and not b", ["x = a or not b", "x = a and (not not b)"]),
        ("a.b += c", ["left out", "a.b -= c"]),
        ("if a == b:\n    x.y = c", ["if a != b:", "left out"]),
        ("if a > b:\n    pass", ["if not a > b:", "if a >= b:"]),
        ("x = [a for a in b if a]", ["x = [a for a in b if not a]"]),
        ("x = a[:-1]", ["x = a[:+1]", "x = a[:-2]"]),
        ('"""Words."""\nimport a\nassert a\nx: int | None = a', []),
    ],
)
def test_each_fault_is_one_change(text: str, found: list[str]) -> None:
    assert [one.after for one in mutants(text)] == found


def test_a_mutant_differs_in_its_own_place_alone() -> None:
    text = "def f(a):\n    if a > 1:\n        return a + 1\n    return 0"
    plain = ast.unparse(ast.parse(text)).splitlines()
    for one in mutants(text):
        changed = ast.unparse(one.tree).splitlines()
        different = [number for number, lines in enumerate(zip(plain, changed, strict=True), 1) if lines[0] != lines[1]]
        assert different == [one.lines.start] and one.is_inside and one.where == "f"


def test_every_core_is_there_and_has_tests() -> None:
    for file in cores.CORES:
        assert (ROOT / file).is_file(), file
        assert all((ROOT / tests).exists() for some in cores.tests_of(file) for tests in some), file


def test_what_is_said_to_change_nothing_has_a_reason() -> None:
    """`make mutants` fails for one that its file does not have."""
    for file, reasons in cores.SAME.items():
        assert file in cores.CORES and all(reasons.values()), file


def test_the_tool_imports_nothing_that_it_changes() -> None:
    """What is imported once is not imported as a mutant."""
    code = "import sys, tools.mutants.__main__; print([name for name in sys.modules if name.startswith('netconsole')])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
