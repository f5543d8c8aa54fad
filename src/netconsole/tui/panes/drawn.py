"""What panes draw in a way of their own, by the word that a probe's manifest names it with: blocks, and parts of pages.

A block is given the probes that name it and run, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from netconsole.tui.panes import mirror
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.panes.disk import calls
from netconsole.tui.panes.disk import pane as disk
from netconsole.tui.panes.ovs import detail as of_ovs
from netconsole.tui.panes.ovs import pane as ovs
from netconsole.tui.panes.path import pane as path
from netconsole.tui.panes.vhost import pane as vhost
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.painted import Line

Page: TypeAlias = Callable[[Scene, Subject, int], Iterator[Line]]

BLOCKS: Mapping[str, Callable[[Sequence[str]], Block]] = {
    "vhost-queues": lambda _: vhost.block(),
    "ovs-health": lambda probes: ovs.health_block(probes[0]),
    "ovs-upcalls": lambda _: ovs.ports_block(),
    "ovs-causes": lambda _: ovs.causes_block(),
    "ovs-drops": lambda _: ovs.drops_block(),
    "ovs-handlers": lambda _: ovs.handlers_block(),
    "mirror-ledger": lambda _: mirror.block(),
    "path-ways": lambda probes: path.ways_block(probes[0]),
    "path-devices": lambda probes: path.devices_block(probes[0]),
    "path-flows": lambda probes: path.flows_block(probes[0]),
    "path-slow": lambda probes: path.slow_block(probes[0]),
    "disk-ios": lambda probes: disk.block(probes[0]),
    "disk-calls": lambda probes: calls.block(probes[0]),
}
PAGES: Mapping[str, Page] = {
    "vhost-queue": vhost.detail,
    "ovs-datapath": of_ovs.of_datapath,
    "ovs-vswitchd": of_ovs.of_vswitchd,
    "ovs-port": of_ovs.of_port,
    "ovs-drop": of_ovs.of_drop,
    "disk-io": disk.detail,
    "disk-call": calls.detail,
}
"""What other tables and probes know of a row."""
WHOLE_PAGES: Mapping[str, Page] = {"direction": path.detail}
"""Rows that are none of a table: the kind of their subject."""
