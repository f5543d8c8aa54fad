"""Runs the tests of a file on each of its mutants, and tells which of them nobody notices.

A mutant exists only in the memory of a fork, so nothing in the checkout changes. Most are in the body of a function:
one process imports and collects all tests, and each fork of it changes the code of that function and runs the tests
that reach its lines. What runs when the module is imported (constants, defaults) needs a fork that imports it anew.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import grimp
import pytest

from tools.mutants.changes import Mutant
from tools.mutants.forked import forked
from tools.mutants.watch import REACHED, Chosen, Quick, Watch, watched

CONSOLE = ("netconsole", "netconsole_collector")
PATIENCE_S = 10.0
"""CPU time beyond five times what the sound module takes. What takes longer does not end: that is noticed."""
_BASELINE_S = 600.0
_NOT_HERE = 99
"""How a fork ends that cannot change the code of a function: it reads another variable of the function around it."""
_NEVER_AHEAD = ("__main__", "conftest", "tests", "tools")


@dataclass
class _Known:
    """What the process with the collected tests found."""

    tests_of: dict[str, list[str]]
    """By line: the tests that run it; "" is the import."""
    cpu_s: float
    survivors: list[int]
    left: list[int]
    """Mutants that need another import."""
    modules: list[str]


class Trial:
    """One file, and the tests that prove it (paths from the root of the checkout).

    Raises SystemExit if another checkout is installed: its tests would notice nothing.
    """

    def __init__(self, file: Path, tests: Sequence[str]) -> None:
        self._path = file.resolve()
        self._module = ".".join(file.with_suffix("").parts[1:])
        package = file.parts[1]  # to look for the module itself would import the packages around it, unchanged
        imported = importlib.util.find_spec(package)
        if imported is None or imported.origin != str(Path(*file.parts[:2], "__init__.py").resolve()):
            raise SystemExit(f"{self._path}: the tests would import {imported and imported.origin}")
        # Those named after the file come first: they notice most.
        found = sorted({str(path) for one in tests for path in _test_files(Path(one))})
        self._tests = sorted(found, key=lambda path: file.stem not in path)

    def survivors(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Those that no test notices. Raises SystemExit when a test fails without a fault."""
        with tempfile.NamedTemporaryFile("r") as kept:
            code = forked(
                lambda: _pytest(self._tests, _Collected(self._path, self._module, mutants, Path(kept.name))), 3600
            )
            text = kept.read()
        if code or not text:
            raise SystemExit(f"{self._path}: its tests fail without a fault (pytest ended with {code})")
        known = _Known(**json.loads(text))
        self._import_ahead(known.modules)
        numbers = [*known.survivors, *(number for number in known.left if self._survives(mutants[number], known))]
        return [mutants[number] for number in sorted(numbers)]

    def _survives(self, mutant: Mutant, known: _Known) -> bool:
        def run() -> int:
            sys.meta_path.insert(0, _Finder(self._module, self._path, mutant))
            return _pytest(self._tests, Chosen(None), "-x")

        return forked(run, 5 * known.cpu_s + PATIENCE_S) == 0

    def _import_ahead(self, modules: Iterable[str]) -> None:
        """Everything that the tests import and that does not import the module, nor does a package around it."""
        graph = grimp.build_graph(*CONSOLE, cache_dir=None)
        changed = {self._module, *graph.find_downstream_modules(self._module)}
        for name in modules:
            words = name.split(".")
            around = {".".join(words[:count]) for count in range(1, len(words) + 1)}
            if not around & changed and not name.startswith(_NEVER_AHEAD) and "test" not in name:
                try:
                    importlib.import_module(name)
                except ImportError:
                    continue


class _Collected(Quick):
    """Plugin of pytest: in place of running the collected tests, runs those that reach a mutant, in a fork for each."""

    def __init__(self, path: Path, module: str, mutants: Sequence[Mutant], kept: Path) -> None:
        self._path, self._module, self._mutants, self._kept = path, module, mutants, kept
        self._failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        watch = Watch()
        session.config.pluginmanager.register(watch)
        with tempfile.NamedTemporaryFile("r") as noted:

            def run() -> int:
                vars(sys.modules[self._module])[REACHED] = watch.reach
                change(self._path, watched(self._path.read_text()))
                began_s = time.process_time()
                code = self._run(session.items, watch.took_s)
                Path(noted.name).write_text(json.dumps([time.process_time() - began_s, watch.tests_of, watch.took_s]))
                return code

            if forked(run, _BASELINE_S):
                raise pytest.UsageError("a test fails without a fault")
            cpu_s, tests_of, took_s = json.loads(noted.read())
        session.items.sort(key=lambda one: took_s[one.nodeid])  # what is quick and notices saves the others
        session.config.pluginmanager.unregister(watch)
        known = _Known(tests_of, cpu_s, [], [], [])
        for number, mutant in enumerate(self._mutants):
            tests = {test for line in mutant.lines for test in tests_of.get(str(line), ())}
            if not mutant.is_inside or "" in tests:
                known.left.append(number)
                continue
            items = [one for one in session.items if tests & {one.nodeid, one.nodeid.partition("::")[0]}]
            code = self._tried(mutant, items, 5 * cpu_s + PATIENCE_S) if items else 0
            if code == _NOT_HERE:
                known.left.append(number)
            elif code == 0:
                known.survivors.append(number)
        known.modules = list(sys.modules)
        self._kept.write_text(json.dumps(vars(known)))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def _tried(self, mutant: Mutant, items: Sequence[pytest.Item], cpu_s: float) -> int:
        def run() -> int:
            return self._run(items) if change(self._path, mutant.tree) else _NOT_HERE

        return forked(run, cpu_s)

    def _run(self, items: Sequence[pytest.Item], took_s: dict[str, float] | None = None) -> int:
        """0 when all of them pass; ends with the first that does not. ``took_s`` gets the CPU time of each."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            began_s = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if took_s is not None:
                took_s[item.nodeid] = time.process_time() - began_s
            if self._failed:
                return 1
        return 0


def change(path: Path, tree: ast.Module) -> bool:
    """Gives the functions of an imported module the code of another tree. False when one cannot take it."""
    found = {(one.co_name, one.co_firstlineno): one for one in _codes(compile(tree, str(path), "exec"))}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(path):
            code = found[function.__code__.co_name, function.__code__.co_firstlineno]
            if code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = code
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the mutant in place of the module."""

    def __init__(self, module: str, path: Path, mutant: Mutant) -> None:
        self._module, self._path, self._mutant = module, path, mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        loader = _Loader(name, str(self._path))
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> Any:
        return compile(self.mutant.tree, self.path, "exec", dont_inherit=True)


def _test_files(path: Path) -> Iterable[Path]:
    return [path] if path.is_file() else path.rglob("test_*.py")


def _pytest(tests: Sequence[str], plugin: object, *options: str) -> int:
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        usual = ("-q", "--tb=no", "-p", "no:cacheprovider", "-m", "computing", f"--basetemp={scratch}/pytest")
        return int(pytest.main([*usual, *options, *tests], plugins=[plugin]))
