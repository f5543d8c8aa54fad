"""Plugins of pytest for a run on a mutant: which tests run which lines, and only the tests that run a line."""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings

REACHED = "__reached__"


class Quick:
    """The first example that fails is enough: nobody reads it, so it need not be made simple."""

    def pytest_sessionstart(self) -> None:
        settings.register_profile("mutants", settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")


class Watch:
    """Notes for each line of one file which tests run it. A test is an id of pytest, "" is everything."""

    def __init__(self) -> None:
        self._test = ""
        self._found: dict[int, set[str]] = {}
        self.took_s: dict[str, float] = {}
        """CPU time of each test."""

    @property
    def tests_of(self) -> dict[int, list[str]]:
        return {line: sorted(tests) for line, tests in self._found.items()}

    def reach(self, line: int) -> None:
        """The test that runs now has reached this line. Called by the watched module."""
        self._found.setdefault(line, set()).add(self._test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        result = yield
        self._test = ""
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """What other tests of the file use too is run by all of them."""
        test = self._test
        if fixturedef.scope != "function":
            self._test = test.partition("::")[0]
        result = yield
        self._test = test
        return result


def watched(text: str) -> ast.Module:
    """A module that says REACHED(line) before each statement of its functions. It costs less than a trace."""
    tree = ast.parse(text)
    functions = [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for block in {
        id(block): block for one in functions for inner in ast.walk(one) for block in _blocks(inner)
    }.values():
        block[:] = [one for statement in block for one in (_call(statement), statement)]
    return ast.fix_missing_locations(tree)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and not isinstance(node, ast.ClassDef):
            yield block


def _call(statement: ast.stmt) -> ast.stmt:
    call = ast.Call(ast.Name(REACHED, ast.Load()), [ast.Constant(statement.lineno)], [])
    return ast.copy_location(ast.Expr(call), statement)


class Chosen(Quick):
    """All tests, or only these (ids, or files)."""

    def __init__(self, tests: set[str] | None) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._tests is not None:
            items[:] = [one for one in items if self._tests & {one.nodeid, one.nodeid.partition("::")[0]}]
