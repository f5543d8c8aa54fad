"""Programs on functions count the same by fentry and fexit as by kprobes, which are forced here beside them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.lab.collector import InsideMeasurement, stages_of
from tests.lab.kernels.page import references
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import ping

PROBES = ("vhost_queues", "tun_queues", "tx_kick_path", "irq_path", "kvm_irqs")
PINGS = 40
OF_INTERRUPTS = ("tx_kick_path", "irq_path", "kvm_irqs")
"""Amid such a run an interrupt has its own run skipped, and the ledger has it (InsideMeasurement.assert_counted)."""
NUMBER = 90  # of their names, which other modules have not had in this collector
EXACT = {  # of rows that both must have; times and gauges of the last run are left out
    "vhost_queues": ("packets", "buffers", "bytes", "kicks", "arrivals", "runs", "batches", "signals"),
    "tun_queues": ("packets", "bytes", "taken"),
    "tx_kick_path": ("packets", "kicks", "runs", "batches"),
    "irq_path": ("packets", "interrupts"),
}
LISTED = "/sys/kernel/debug/kprobes/list"


@pytest.fixture(scope="module")
def by_kprobes(vm_path: InsideMeasurement) -> Iterator[dict[str, str]]:
    """The names of the same probes with kprobes."""
    if vm_path.kprobes:
        pytest.skip("all have kprobes here")
    with ThreadPoolExecutor() as pool:
        names = list(pool.map(lambda one: vm_path.load_altered(one, number=NUMBER, kprobes=True), PROBES))
    found = dict(zip(PROBES, names, strict=True))
    yield found
    for name in found.values():
        vm_path.command(command="unload", probe=name)


@pytest.mark.parametrize("probe", PROBES)
def test_each_function_has_the_reviewed_kind_unless_kprobes_are_asked_for(
    testbed: Testbed, vm_path: InsideMeasurement, by_kprobes: dict[str, str], probe: str
) -> None:
    """The cheapest that this kernel can have."""
    reviewed = references()[testbed.hypervisor.tree.kernel.name]["probes"][probe]["attach"]
    taken, plain = (vm_path.statuses[name] for name in (probe, by_kprobes[probe]))
    assert taken.state == plain.state == "attached", (taken.missing, plain.missing)
    assert set(taken.attach) == set(reviewed.values())
    of_functions = [point for point in plain.attach if not point.startswith("raw_tracepoint:")]
    assert {point.partition(":")[0] for point in of_functions} <= {"kprobe", "kretprobe"}
    functions = [sorted(point.partition(":")[2] for point in status.attach) for status in (taken, plain)]
    assert functions[0] == functions[1]


def test_both_kinds_count_the_same_of_the_same_packets(
    testbed: Testbed, vm_path: InsideMeasurement, by_kprobes: dict[str, str]
) -> None:
    vm_path.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    vm_path.settle()
    for probe, plain_name in by_kprobes.items():
        vm_path.assert_whole(probe, plain_name, but="missed" if probe in OF_INTERRUPTS else "")
    for probe, columns in EXACT.items():
        typed, plain = (counts(vm_path, name, columns) for name in (probe, by_kprobes[probe]))
        missed = vm_path.ledger(probe, "missed") + vm_path.ledger(by_kprobes[probe], "missed")
        assert typed.keys() == plain.keys()
        for row, counted in typed.items():
            assert all(abs(counted[one] - plain[row][one]) <= missed for one in columns), (probe, counted, plain[row])
        assert any(sum(row.values()) for row in typed.values()), probe
    signals = vm_path.total("vhost_queues", "queues", "signals", device="vnet0")
    assert signals > 0
    for name in ("kvm_irqs", by_kprobes["kvm_irqs"]):
        vm_path.assert_counted(name, vm_path.total(name, "lines", "wakeups", vm=testbed.guests[0].name), signals)


def counts(vm_path: InsideMeasurement, name: str, columns: tuple[str, ...]) -> dict[Any, dict[str, int]]:
    rows = vm_path.rows(name, "queues", device="vnet0")
    return {str(sorted(row.labels.items())): {one: row.counts[one] for one in columns} for row in rows}


def test_no_kprobe_needs_a_breakpoint(testbed: Testbed, by_kprobes: dict[str, str]) -> None:
    """All are at the entries of functions, where ftrace calls them: no int3, no instruction is stepped over."""
    listed = testbed.hypervisor.read_file(LISTED).decode().splitlines()
    assert any("handle_tx_kick" in line for line in listed)
    assert [line for line in listed if "[FTRACE]" not in line] == []


def test_the_stages_of_an_interrupt_add_up_in_both(vm_path: InsideMeasurement, by_kprobes: dict[str, str]) -> None:
    for name in ("irq_path", by_kprobes["irq_path"]):
        taken = stages_of(vm_path, name)
        total = taken.pop("total")
        assert sum(stage.sum for stage in taken.values()) == total.sum
        assert {stage.count for stage in taken.values()} == {total.count}
