"""A probe with rules for STANDS OUT, and a stream of its frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.state import State
from tests.unit.probes.test_manifest_reader import GOOD, make
from tests.unit.telemetry.test_state import Stream

RULES = """
[histograms.wait]
unit = "ns"
key = [{ name = "device", type = "char[16]", as = "text" }]

[[findings]]
histogram = "wait"
percentile = 99
level = "!!"
over = 1_000_000.0
say = "{device}: p99 {value} at {rate}/s"
next = "Look at the queue."
"""


@pytest.fixture
def manifests(tmp_path: Path) -> dict[str, Manifest]:
    return {"p": catalogue.load(make(tmp_path, GOOD + RULES))}


@pytest.fixture
def stream() -> Stream:
    one = Stream(State())
    one.hello()
    one.status()
    return one
