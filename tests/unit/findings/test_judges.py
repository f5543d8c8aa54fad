"""In which state a row is, by what several probes say: each word of a full ring, and the error of lost upcalls."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.findings.matches import full_ring, lost_upcalls
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Label, Row
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream

QUEUE: dict[str, Label] = {"device": "vnet0", "vm": "web", "netns": "host", "queue": 3}
PORT: dict[str, Label] = {"datapath": "ovs", "port": "vnet0", "vm": "web", "netns": "host", "kind": "miss"}


def state(*tables: tuple[str, str, list[Row]]) -> State:
    """A state in which these tables were sent, by probe and name."""
    stream = Stream(State())
    stream.hello()
    for probe, name, rows in tables:
        stamp = {**stream.stamp(), "probe": probe}
        stream.state.apply(frames.Table(**stamp, name=name, interval_ns=SECOND, full=True, rows=rows))
    return stream.state


def queue(moved: int, **gauges: float | None) -> tuple[str, str, list[Row]]:
    rows = [Row({**QUEUE, "direction": way}, {"packets": Count(n, n)}, g) for way, n, g in (
        ("rx", moved, gauges), ("tx", 7, {}))]  # fmt: skip
    return "vhost_queues", "queues", rows


def machine(vm: str, **gauges: float | None) -> tuple[str, str, list[Row]]:
    return "vm_states", "machines", [Row({"vm": vm, "process": "qemu"}, {}, gauges)]


@pytest.mark.parametrize(
    ("tables", "word"),
    [
        ((), "ring full"),
        ((queue(5, starving=1),), "ring full"),
        ((queue(0),), "stuck: worker"),
        ((queue(0, starving=1),), "stuck: guest"),
        ((queue(0, starving=1, unsignalled_buffers=4),), "stuck: no poll"),
        ((queue(0, starving=1, unsignalled_buffers=4, unanswered=1),), "stuck: guest"),
        ((queue(0, detached=1, starving=1),), "stuck: detached"),
        ((queue(5, detached=1),), "stuck: detached"),
        ((queue(0, detached=1), machine("web", paused=1)), "stuck: VM paused"),
        ((machine("web", paused=1, stopped=1),), "stuck: VM stopped"),
        ((queue(0, detached=1), machine("web")), "stuck: detached"),
        ((queue(0), machine("db", paused=1)), "stuck: worker"),
        ((queue(5), machine("web", paused=1)), "ring full"),
    ],
)
def test_why_a_ring_is_full(tables: Any, word: str) -> None:
    found, means = full_ring(state(*tables), QUEUE)
    assert found == word and means


def test_a_tap_without_a_machine_is_no_machine_that_does_not_run() -> None:
    unknown = {**QUEUE, "vm": None}
    assert (
        full_ring(state(("vm_states", "machines", [Row({"vm": None}, {}, {"paused": 1})])), unknown)[0] == "ring full"
    )


def test_lost_upcalls_are_told_by_the_most_frequent_error_of_their_port() -> None:
    def failed(error: str, count: int, **other: Label) -> Row:
        return Row({**PORT, "error": error, **other}, {"count": Count(count, count)})

    rows = [
        failed("ENOMEM", 2),
        failed("\x1b[2J", 5),
        failed("EPERM", 9, port="vnet1"),
        failed("EAGAIN", 0),
        failed("x" * 40, 1),
    ]
    assert lost_upcalls(state(("ovs_upcalls", "failures", rows)), PORT) == ("lost: \\x1b[2J", "")
    assert lost_upcalls(state(("ovs_upcalls", "failures", rows[4:])), PORT)[0] == "lost: " + "x" * 32 + "…"
    for tables in ((), (("ovs_upcalls", "failures", rows[2:4]),)):
        word, means = lost_upcalls(state(*tables), PORT)
        assert word == "loses upcalls" and means
