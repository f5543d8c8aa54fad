"""A fixed time zone, and no configuration of the user's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nowhere_in_particular(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Screens are the same wherever the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
