"""Plugins of pytest for a run on a mutant: which tests run which lines, and only the tests that run a line."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

_Trace = Callable[[FrameType, str, Any], Any]


class Quick:
    """The first example that fails is enough: nobody reads it, so it need not be made simple."""

    def pytest_sessionstart(self) -> None:
        settings.register_profile("mutants", settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")


class Watch:
    """Notes for each line of one file which tests run it. A test is an id of pytest, "" is everything."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._test = ""
        self._found: dict[int, set[str]] = {}
        self.cpu_s = 0.0

    @property
    def tests_of(self) -> dict[int, list[str]]:
        return {line: sorted(tests) for line, tests in self._found.items()}

    def begin(self) -> None:
        """Watch from now on. What ran before is the import."""
        threading.settrace(self._of_call)
        sys.settrace(self._of_call)

    def end(self) -> None:
        sys.settrace(None)
        self.cpu_s = time.process_time()

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

    def _of_call(self, frame: FrameType, event: str, value: Any) -> _Trace | None:
        if frame.f_code.co_filename != self._path:
            return None
        self._note(frame)
        return self._of_line

    def _of_line(self, frame: FrameType, event: str, value: Any) -> _Trace:
        self._note(frame)
        return self._of_line

    def _note(self, frame: FrameType) -> None:
        self._found.setdefault(frame.f_lineno, set()).add(self._test)


class Chosen(Quick):
    """All tests, or only these (ids, or files)."""

    def __init__(self, tests: set[str] | None) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._tests is not None:
            items[:] = [one for one in items if self._tests & {one.nodeid, one.nodeid.partition("::")[0]}]
