"""How often hooks run, from what a moment's counting told: rates by CPU, the time of a run, packets a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.budget import forecaster
from netconsole.budget.forecast import Hook
from netconsole.far.host import THIS_HOST
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.probes.catalogue import shipped

SECOND = 1_000_000_000
BUSY, IDLE = "raw_tracepoint:kfree_skb", "raw_tracepoint:net_dev_queue"


class Tool:
    """In place of a collector that counts for two seconds."""

    def __init__(self, host: object) -> None:
        pass

    def __enter__(self) -> Tool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def attach(self, request: object) -> None:
        pass

    @contextmanager
    def run_times(self) -> Iterator[Any]:
        programs = {
            ("hooks", "hook_0"): SimpleNamespace(attach=BUSY, run_count=40, run_time_ns=6000),
            ("hooks", "hook_1"): SimpleNamespace(attach=IDLE, run_count=0, run_time_ns=0),
        }
        counts = {(0, 0): 30, (0, 1): 10, (7, 0): 99}
        rows = {("hooks", "hook_runs", (("hook", hook), ("cpu", cpu))): n for (hook, cpu), n in counts.items()}
        yield SimpleNamespace(elapsed_ns={"hooks": 2 * SECOND}, programs=programs, rows=rows)


def test_rates_and_times_are_of_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, packets, slept = iter((100.0, 104.0)), iter((1000, 3000)), list[float]()
    monkeypatch.setattr(forecaster, "Tool", Tool)
    monkeypatch.setattr(forecaster, "_packets", lambda _: next(packets))
    monkeypatch.setattr(forecaster, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=slept.append))
    found = forecaster.measure_hooks([], 0.5)
    assert found.hooks == {BUSY: Hook({0: 15.0, 1: 5.0}, 150.0), IDLE: Hook({}, None)}
    assert found.packets_per_s == 500.0 and slept == [0.5]


@pytest.mark.parametrize(("before", "after", "per_s"), [(None, 9, None), (9, None, None), (9, 7, 0.0)])
def test_packets_that_were_not_counted_at_both_ends_are_not_known(
    monkeypatch: pytest.MonkeyPatch, before: int | None, after: int | None, per_s: float | None
) -> None:
    clock, packets = iter((100.0, 104.0)), iter((before, after))
    monkeypatch.setattr(forecaster, "Tool", Tool)
    monkeypatch.setattr(forecaster, "_packets", lambda _: next(packets))
    monkeypatch.setattr(forecaster, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    assert forecaster.measure_hooks([]).packets_per_s == per_s


def test_packets_of_a_host_that_does_not_answer_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*_: object) -> None:
        raise Unanswered(110, "the host does not answer")

    packets = forecaster._packets(THIS_HOST)
    assert packets is not None and packets > 0
    monkeypatch.setattr(door, "ask", unanswered)
    assert forecaster._packets(THIS_HOST) is None


def test_a_hook_that_is_not_there_stops_no_other_and_each_has_rows_for_128_cpus() -> None:
    manifest = shipped("kernel_drops")
    spec = forecaster.request([manifest, manifest]).spec
    programs, tables = cast(Any, spec["programs"]), cast(Any, spec["tables"])
    points = {program.attach[0].point for program in manifest.programs}
    assert [program["name"] for program in programs] == [f"hook_{number}" for number in range(len(points))]
    assert not any(program["required"] for program in programs)
    assert tables["hook_runs"]["max_rows"] == 128 * len(points)


def test_programs_with_other_alternatives_are_counted_each_where_this_kernel_has_them() -> None:
    """Before Linux 5.18 the first alternative of a program of tun_queues, the hook of ovs_drops, is not its own."""
    request = forecaster.request([shipped("ovs_drops"), shipped("tun_queues")])
    programs = cast(Any, request.spec["programs"])
    first = [[one["point"] for one in program["attach"]] for program in programs]
    assert first.count(["raw_tracepoint:kfree_skb"]) == 1
    assert ["raw_tracepoint:kfree_skb", "return:tun_net_xmit"] in first
    needed = {one["attach"][0]["point"]: one["unless"] for one in programs if "unless" in one}
    assert needed == {
        "entry:ovs_execute_actions": "HAVE_OVS_DROP_LAST_ACTION",
        "entry:ovs_meter_execute": "HAVE_OVS_DROP_METER",
        "return:ovs_meter_execute": "HAVE_OVS_DROP_METER",
    }, "as in the probe: a kernel that does without them has no such hook"


def test_an_xdp_program_is_never_attached_to_count() -> None:
    """It would drop all packets of the device: what counts returns 0, which is XDP_ABORTED."""
    (program,) = cast(Any, forecaster.request([shipped("mirror_xdp")]).spec["programs"])
    assert {one["point"] for one in program["attach"]} == {"raw_tracepoint:netif_receive_skb"}
