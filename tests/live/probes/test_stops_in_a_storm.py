"""Whoever stops amid a storm gets rows and a counter that belong together."""

from __future__ import annotations

from pathlib import Path

from netconsole.probes.catalogue import shipped
from netconsole.telemetry import frames
from tests.support.live.collector_driver import PYTHON, Driver
from tests.support.live.network import Namespace
from tests.support.live.storm import OF_802_2, TO_CLOSED_PORT, Storm

PROBE = "kernel_drops"
PER_S, STOPS = 100_000, 5


def last(seen: list[frames.AnyFrame]) -> tuple[int, int]:
    """The counter, and the sum of all rows and of what the ledger says is in none."""
    counted = beside = 0
    rows: dict[tuple[tuple[str, frames.Label], ...], int] = {}
    for frame in seen:
        if frame.probe != PROBE:
            continue
        if isinstance(frame, frames.Counters):
            counted = frame.values["drops"].total
        elif isinstance(frame, frames.Table) and frame.name == "drops":
            rows.update({tuple(sorted(row.labels.items())): row.counts["count"].total for row in frame.rows})
        elif isinstance(frame, frames.Cost):
            beside = sum(frame.ledger[name].total for name in ("map_full", "unlisted", "evicted"))
    return counted, sum(rows.values()) + beside


def test_a_stop_amid_a_storm_leaves_rows_and_counter_equal(tmp_path: Path) -> None:
    manifest, namespace = shipped(PROBE), Namespace()
    command = {"command": "load", "probe": PROBE, "spec": dict(manifest.raw), "source": manifest.code(), "knobs": {}}
    try:
        with (
            Driver(PYTHON, "--keep-compiled", str(tmp_path)) as driver,
            Storm(namespace, PER_S, (TO_CLOSED_PORT, OF_802_2)),
        ):
            driver.ask(command="interval", ms=100)
            for _ in range(STOPS):
                begun = len(driver.seen)
                assert driver.ask(**command, mode="summary").ok
                for _ in range(3):
                    driver.interval()
                assert driver.ask(command="unload", probe=PROBE).ok
                counted, listed = last(driver.seen[begun:])
                assert counted == listed > 0
    finally:
        namespace.remove()
