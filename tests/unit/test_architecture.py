"""The page of the architecture is true: its rooms are those that lint enforces, its walk names functions that exist."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/design/architecture.md").read_text()
STEP = re.compile(r"^\| `([\w.]+)` \| `([\w./]+)` \|", re.M)
ROOM = re.compile(r"^\| `(\w+)` \|", re.M)
WALK = STEP.findall(PAGE)
FILES_OF_THE_WALK = 28
WIDEST = 16
"""Modules in one directory."""
SINGLE_IMPORTS = {
    # A document that holds another one, a step that uses the one before.
    ("snapshot", "ping"), ("run", "calibrate"),
    # Describes this machine where no collector does.
    ("snapshot", "host"),
    # The console gets its escalations here.
    ("escalation", "budget"), ("run", "escalation"),
}  # fmt: skip
"""Arrows that rest on one import."""


def defined(path: Path) -> set[str]:
    """The functions of a file: those of a class as ``Class.method``, those of C by their names."""
    text = path.read_text()
    if path.suffix != ".py":
        return set(re.findall(r"^(?:static inline |#define )?(?:[\w ]+[ *])?(\w+)\(", text, re.M))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(text)
    names = {one.name for one in tree.body if isinstance(one, functions)}
    for owner in (one for one in tree.body if isinstance(one, ast.ClassDef)):
        names |= {f"{owner.name}.{one.name}" for one in owner.body if isinstance(one, functions)}
    return names


@pytest.mark.parametrize(("function", "file"), WALK)
def test_the_walk_names_functions_that_are_where_it_says(function: str, file: str) -> None:
    assert function in defined(ROOT / file)


def test_the_walk_goes_from_the_kernel_to_the_screen() -> None:
    assert WALK[0][1].endswith("probe.bpf.c") and WALK[-1][1].startswith("src/netconsole/")


def test_the_walk_is_not_longer_than_it_was() -> None:
    """Who makes it shorter lowers this number."""
    assert len({file for _, file in WALK}) == FILES_OF_THE_WALK


def test_the_rooms_are_those_that_are_enforced_in_their_order() -> None:
    rooms = ROOM.findall(PAGE.partition("## Rooms of the console")[2].partition("\n## ")[0])
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["netconsole"])
    assert rooms == layers[::-1]


def arrows() -> Counter[tuple[str, str]]:
    """How many imports lead from a room of the console to another one. Each may use the base."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted((ROOT / "src/netconsole").glob("*/**/*.py")):
        room = path.relative_to(ROOT / "src/netconsole").parts[0]
        for one in ast.walk(ast.parse(path.read_text())):
            if not isinstance(one, ast.ImportFrom) or one.module is None:
                continue
            of_the_console, *inside = one.module.split(".")
            used = {inside[0]} if inside else {alias.name for alias in one.names}
            found.update((room, other) for other in used - {room, "base"} if of_the_console == "netconsole")
    return found


def test_no_room_imports_another_one_for_a_single_thing() -> None:
    """Such a thing is better where both may import it. Who cuts another one takes it out of the list."""
    assert {arrow for arrow, imports in arrows().items() if imports == 1} == SINGLE_IMPORTS


def test_no_directory_is_too_wide_to_overlook() -> None:
    """Modules besides ``__init__``. Who needs one more finds out which of them belong together."""
    folders = Counter(path.parent for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py")
    assert {str(folder): count for folder, count in folders.items() if count > WIDEST} == {}
