"""Sources in the collector's stream: in each interval, before its end, and without any harm when one hangs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from netconsole.probes.catalogue import shipped
from netconsole.telemetry import frames
from tests.support.live import collector_driver
from tests.support.live.collector_driver import LIMIT_S, PYTHON, Driver, of

pytestmark = pytest.mark.starting

HANGS = """
import threading
from netconsole_collector.sources import known
class Hanging(known.KernelSource):
    def read(self, reading):
        threading.Event().wait()
known.KNOWN["hanging"] = Hanging
"""


def load(driver: Driver, name: str, spec: Any) -> frames.Reply:
    return driver.ask(command="load", probe=name, spec=spec, source="", mode="summary")


def test_a_source_is_read_in_every_interval_and_ends_when_it_is_unloaded() -> None:
    with Driver(PYTHON, "--compiled-elsewhere") as driver:
        driver.ask(command="interval", ms=100)
        spec = dict(shipped("softnet").raw)
        assert load(driver, "softnet", spec).ok
        (status,) = of(frames.Status, driver.seen, "softnet")
        assert (status.state, status.mode, status.why) == ("attached", "summary", None)
        for _ in range(3):
            *others, end = driver.interval()
            (table,) = of(frames.Table, others, "softnet")
            assert isinstance(end, frames.Cost) and end.mono_ns <= table.mono_ns < end.mono_ns + end.interval_ns
            assert table.source == "collector" and table.interval_ns > 0
        assert "loaded already" in str(load(driver, "softnet", spec).error)
        assert "mode" in str(driver.ask(command="set", probe="softnet", mode="details").error)
        assert "no knobs" in str(driver.ask(command="set", probe="softnet", knobs={"netns": 1}).error)
        read = driver.ask(command="read_whole")
        assert read.ok and isinstance(driver.seen[-2], frames.Cost), "answered when the interval has ended"
        assert "mode" in str(driver.ask(command="load", probe="x", spec=spec, source="", mode="everything").error)
        assert driver.ask(command="unload", probe="softnet", why="enough").ok
        off = of(frames.Status, driver.seen, "softnet")[-1]
        assert (off.state, off.why) == ("off", "enough")
        assert not of(frames.Table, driver.interval(), "softnet")
        assert load(driver, "softnet", spec).ok, "it may be started again"


def test_who_reads_everything_at_once_waits_for_no_interval() -> None:
    with Driver(PYTHON, "--compiled-elsewhere") as driver:
        driver.ask(command="interval", ms=60_000)
        assert load(driver, "softnet", dict(shipped("softnet").raw)).ok
        assert driver.ask(command="read_whole", at_once=True).ok
        end = driver.seen[-2]
        assert isinstance(end, frames.Cost) and end.interval_ns < 60e9
        assert of(frames.Table, driver.seen, "softnet")


def test_one_that_hangs_delays_no_interval_and_the_end_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = f"exec({HANGS!r}); from netconsole_collector.__main__"
    start = collector_driver.START.replace("from netconsole_collector.__main__", before)
    monkeypatch.setattr(collector_driver, "START", start)
    with Driver(PYTHON, "--compiled-elsewhere") as driver:
        driver.ask(command="interval", ms=200)
        assert load(driver, "hanging", {"probe": {"source": "hanging"}}).ok
        ends = []
        for _ in range(5):
            ends += of_interval(driver)
        assert [one.interval_ns for one in ends] == pytest.approx([200e6] * 5, rel=0.5)
        began = time.monotonic()
        assert driver.process.stdin is not None
        driver.process.stdin.close()
        assert isinstance(driver.rest()[-1], frames.Bye)
        assert driver.process.wait(LIMIT_S) == 0 and time.monotonic() - began < LIMIT_S / 2


def of_interval(driver: Driver) -> list[frames.Cost]:
    """The frame that ends the next interval."""
    return [driver.until(frames.Cost, lambda cost: cost.probe is None)]
