"""A fixed time zone, no configuration of the user's, and style sheets that are parsed once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

PARSED: dict[object, list[RuleSet]] = {}
"""By all that the rules are made of: each application parses the same again, a tenth of what its start takes."""


@pytest.fixture(autouse=True)
def nowhere_in_particular(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Screens are the same wherever the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Rules are not changed once they are parsed."""
    parse = Stylesheet._parse_rules

    def parse_once(sheet: Stylesheet, css: str, read_from: Any, *options: Any, **more: Any) -> list[RuleSet]:
        key = (css, read_from, options, *sorted(more.items()), *sorted(sheet._variables.items()))
        if key not in PARSED:
            PARSED[key] = parse(sheet, css, read_from, *options, **more)
        return PARSED[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield
