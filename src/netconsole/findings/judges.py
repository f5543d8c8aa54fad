"""Verdicts that join several probes: in which state a row is of which a rule speaks (``judge`` in probe.toml)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from netconsole.base import figure
from netconsole.telemetry.frames import Label
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key

Judge: TypeAlias = Callable[[State, Mapping[str, Label]], tuple[str, str]]
"""Of the state and the labels of a row: a word, and what that means, in a sentence that fits beside it."""


def full_ring(state: State, labels: Mapping[str, Label]) -> tuple[str, str]:
    """Why the ring of a tap's queue is full: who does not take packets, and what it waits for."""
    queue = state.row("vhost_queues", "queues", row_key({**labels, "direction": "rx"}))
    gauges = queue.gauges if queue is not None else {}
    moves = queue is not None and queue.per_s("packets")
    if not moves and (why := _why_not_run(state, labels.get("vm"))):
        return why
    if gauges.get("detached"):
        return (
            "stuck: detached",
            "the ring is full; QEMU took the queue from vhost: the VM is paused, or its driver was reset",
        )
    if queue is None or moves:
        return "ring full", "the guest takes packets, but fewer than arrive"
    if not gauges.get("starving"):
        return "stuck: worker", "the ring is full and the vhost worker does not run, although the guest has buffers"
    if gauges.get("unsignalled_buffers") and not gauges.get("unanswered"):
        return (
            "stuck: no poll",
            "the ring is full; the guest wants no interrupt and takes nothing: it hangs, or does not poll",
        )
    return "stuck: guest", "the ring is full; the guest got an interrupt and did not react: it hangs, or lost it"


def lost_upcalls(state: State, labels: Mapping[str, Label]) -> tuple[str, str]:
    """By which error most upcalls of a port are lost."""
    table = state.table("ovs_upcalls", "failures")
    rows = [row for row in table.moving() if labels.items() <= row.labels.items()] if table is not None else []
    most = max(rows, key=lambda row: row.per_s("count") or 0.0, default=None)
    if most is None:
        return "loses upcalls", "upcalls do not reach ovs-vswitchd and are lost"
    return f"lost: {figure.safe(most.labels.get('error'), 32)}", ""


JUDGES: Mapping[str, Judge] = MappingProxyType({"vhost-queue": full_ring, "ovs-port": lost_upcalls})
"""By the name in manifests."""


def _why_not_run(state: State, vm: Label) -> tuple[str, str] | None:
    """Of a machine that does not run; None of one that does, and when nobody looks."""
    for row in state.rows("vm_states", "machines") if vm else ():
        if row.labels.get("vm") == vm and row.gauges.get("stopped"):
            return "stuck: VM stopped", "the ring is full; the VM's QEMU process gets no CPU (SIGSTOP, or a debugger)"
        if row.labels.get("vm") == vm and row.gauges.get("paused"):
            return (
                "stuck: VM paused",
                "the ring is full; QEMU runs none of the VM's virtual CPUs (virsh domstate --reason)",
            )
    return None
