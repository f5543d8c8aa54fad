"""Which tests prove what: the markers ``@pytest.mark.proves("softirq_health", "tables.cpus.{rx_runs,rx_ns}")``.

They are read from the source, so that nothing has to run for it. A proof is held against a measure that does not come
from the probe: what the test sent, the kernel's own books, a delay that the test made.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
_BRACES = re.compile(r"\{([^{}]*)\}")


class ProofError(ValueError):
    """A marker that cannot be read, or that says more than its test. The message names the file and the test."""


def proofs(root: Path = TESTS) -> dict[str, dict[str, list[str]]]:
    """By probe and promise: the tests that prove it, as pytest names them. Raises ProofError."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(root.rglob("test_*.py")):
        text = path.read_text()
        if "mark.proves(" not in text:
            continue
        tree = ast.parse(text)
        words = set(re.findall(r"\w+", _without_markers(text, tree) + _brought(tree)))
        for test, probe, name in _marked(path, tree):
            last = name.rpartition(".")[2]
            if not name.startswith(("findings.", "modes.")) and last not in words:
                raise ProofError(f"{path.name}: {test} says that it proves {probe} {name}, and no line names {last}")
            found.setdefault(probe, {}).setdefault(name, []).append(f"{path.relative_to(root.parent)}::{test}")
    return found


def _marked(path: Path, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(test, probe, promise) of every marker."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for call in _markers(node):
            texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if not node.name.startswith("test_") or len(texts) != len(call.args) or len(texts) < 2 or call.keywords:
                raise ProofError(f"{path.name}: {node.name}: proves(probe, promise, ...), all of them literal texts")
            for name in texts[1:]:
                yield from ((node.name, texts[0], one) for one in expanded(name))


def _markers(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call]:
    return [
        one
        for one in node.decorator_list
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "proves"
    ]


def _brought(tree: ast.Module) -> str:
    """The text of what a test takes from tests/support: data and steps that several share."""
    names = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    paths = [TESTS.parent / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.support.")]
    return "\n".join(path.read_text() for path in paths if path.exists())


def _without_markers(text: str, tree: ast.Module) -> str:
    lines = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for call in _markers(node):
                for number in range(call.lineno - 1, call.end_lineno or call.lineno):
                    lines[number] = ""
    return "\n".join(lines)


def expanded(name: str) -> list[str]:
    """``a.{b,c}`` is a.b and a.c."""
    braces = _BRACES.search(name)
    if not braces:
        return [name]
    parts = (name[: braces.start()] + part.strip() + name[braces.end() :] for part in braces[1].split(","))
    return [one for part in parts for one in expanded(part)]
