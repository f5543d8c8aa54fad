"""One word, one thing: no two types of one name, in the console or the collector, unless they are the same."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
SAME_IN_BOTH_PROCESSES = {"Json", "Label"}
"""Aliases of the collector, which imports nothing, and so says again what they are."""


def types_of(path: Path) -> Iterator[str]:
    """Names of the classes and type aliases of a module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if ast.unparse(node.annotation) == "TypeAlias":
                yield node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id  # an alias that is not said to be one
            if name.lstrip("_")[:1].isupper() and not name.isupper() and not name.startswith("_"):
                yield name


def test_no_two_types_have_one_name() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in types_of(path):
            places[name].append(str(path.relative_to(SOURCE)))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in SAME_IN_BOTH_PROCESSES}
    assert not twice
