"""A running probe without a kernel, for the tests that ask for one."""

from __future__ import annotations

import pytest

from netconsole_collector.probe import running
from tests.support.running_probe import Events, Made, Maps, Program


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running probes are made of what stands in place of the kernel's."""
    monkeypatch.setattr(running, "ProbeMaps", Maps)
    monkeypatch.setattr(running, "AttachedProgram", Program)
    monkeypatch.setattr(running, "EventReader", Events)
    monkeypatch.setattr(running, "mono_ns", lambda: 4711)


@pytest.fixture
def made(no_kernel: None) -> Made:
    return Made()
