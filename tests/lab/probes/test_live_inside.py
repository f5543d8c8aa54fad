"""Runs live tests of probes on the hypervisor's kernel. They are as exact as on this machine.

Those that show what depends on the kernel: each hook, each count and its ledger. The others are of what a probe does
with what it has seen; this machine's kernel proves that in each run, and the lab's in test_more_inside.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.lab.kernels.compiled import bring, kept_inside, shipped
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.pytest_inside import Run, run_pytest

pytestmark = [pytest.mark.booting, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

RUN_LIMIT_S = 900.0  # only a hang meets it
CHOSEN = {
    "kernel_drops": (
        "test_every_datagram_to_a_closed_port_is_counted_once_behind_a_wire",
        "test_rows_add_up_to_the_counter_and_the_ledger_is_empty",
        "test_what_a_full_qdisc_sheds_is_counted_at_its_device",
    ),
    "tx_queue_latency": (
        "test_a_device_without_a_queue_has_no_wait",
        "test_what_the_queue_sheds_is_told_from_what_it_sends",
        "test_what_a_purged_queue_held_is_dropped",
        "test_events_are_those_over_the_threshold",
        "test_the_wait_in_a_class_agrees_with_its_own_rate",
    ),
    "softirq_health": (
        "test_runs_lie_between_two_readings_of_the_kernels_own_count",
        "test_polled_packets_are_at_least_those_sent",
        "test_every_run_has_a_latency_or_is_in_the_ledger",
    ),
    "socket_drops": (
        "test_a_full_buffer_is_counted_exactly_at_its_socket",
        "test_retransmissions_are_counted_at_the_sending_socket",
        "test_resets_are_counted_at_both_ends",
    ),
}
"""Tests by the file that has them."""
PROBES = ("kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops")
TESTS = {f"tests/live/probes/test_{subject}.py": names for subject, names in CHOSEN.items()}
ALL_OF_THEM = [f"{file}::{name}" for file, names in TESTS.items() for name in names]


@dataclass(frozen=True)
class Inside:
    """What became of the tests, and the compiled programs that were there before and afterwards (kept_inside)."""

    run: Run
    brought: list[str]
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="module")
def inside(bare: Hypervisor) -> Inside:
    """One pytest for all of them: it takes seconds to start without hardware help."""
    brought = bring(bare, shipped(PROBES).values())
    before = kept_inside(bare)
    run = run_pytest(bare, *ALL_OF_THEM, limit_s=RUN_LIMIT_S)
    return Inside(run, brought, before, kept_inside(bare))


@pytest.mark.parametrize("file", TESTS)
def test_probe(inside: Inside, file: str) -> None:
    """All of these tests ran inside and none failed; a skip needs a reason that the kernel cannot help."""
    inside.run.has_passed(file)
    assert {outcome.name.partition("[")[0] for outcome in inside.run.of(file)} == set(TESTS[file])


def test_what_was_compiled_here_is_what_is_loaded_there(inside: Inside) -> None:
    """The collector inside found each probe's programs under the name that it asks for, and had nothing to compile."""
    assert len(inside.brought) == len(PROBES)
    assert inside.before.keys() >= set(inside.brought)
    assert inside.after == inside.before
