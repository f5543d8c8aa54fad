"""What the running kernel calls each fault of tests/faults: reason, function and device, and the counters that move.

`make atlas` prints it as a table in Markdown (docs/reference/atlas.md). ``ARGS`` are names of faults; without any all.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Collection
from contextlib import ExitStack, closing
from functools import partial

from netconsole.telemetry.state import State
from tests.live.console.test_faults import AT_ONCE, FOUND_AFTER, Watch
from tests.support.live.faults import Fault, all_faults

OF_QUESTIONS = ("inet_rtm_getroute", "inet6_rtm_getroute")
"""What netconsole's own questions about causes free."""
LATE = 4
"""Intervals after the last packet in which counters of many namespaces are still read."""
COUNTED = (("link_rates", "links", "device"), ("protocol_counters", "counters", "counter"))
"""Probes and tables whose counters are told, and the label that names a row."""
MOVES_ANYWAY = (
    "rx_packets",
    "rx_bytes",
    "tx_packets",
    "tx_bytes",
    "processed",
    "received_rps",
    "carrier_changes",
    "qdisc_overlimits",
)


def main(wanted: Collection[str]) -> None:
    faults = [one for one in all_faults() if not wanted or one.name in wanted]
    print(f"| fault | {platform.release()}: reason, function, device | counters that move |\n|---|---|---|")
    with closing(Watch()) as watch:
        watch.until(watch.settled)
        beside = [one for one in faults if not one.alone]
        rounds = [beside[at : at + AT_ONCE] for at in range(0, len(beside), AT_ONCE)]
        for made in [*rounds, *([one] for one in faults if one.alone)]:
            with ExitStack() as stack:
                for one in made:
                    one.prepare(stack)
                watch.until(partial(watch.has_passed, watch.intervals + FOUND_AFTER))
                can = [one for one in made if not one.cannot]
                for one in can:
                    one.begin()
                for one in can:
                    one.end()
                watch.until(partial(watch.has_passed, watch.intervals + LATE))
                with watch.view() as state:
                    for one in made:
                        print(f"| {one.about} | {_events(one, state)} | {_counters(one, state)} |", flush=True)


def _events(fault: Fault, state: State) -> str:
    """``900 of IP_RPFILTER at ip_rcv_finish_core, veth-b``, the most first."""
    if fault.cannot:
        return "–"
    rows = [
        row
        for row in state.rows("kernel_drops", "drops")
        if _is_of(fault, row.labels.get("netns")) and row.labels["location"] not in OF_QUESTIONS
    ]
    told = sorted(((row.total("count") or 0, row.labels) for row in rows), key=lambda one: -one[0])
    names = [
        f"{count}: {labels['reason']} `{str(labels['location']).partition('.')[0]}` {labels['device'] or 'no device'}"
        for count, labels in told
    ]
    return "; ".join(names) or "no event"


def _counters(fault: Fault, state: State) -> str:
    found = []
    for probe, table, name in COUNTED:
        for row in state.rows(probe, table):
            if _is_of(fault, row.labels.get("netns")):
                moved = {value: row.total(value) for value in row.counts if value not in MOVES_ANYWAY}
                found += [_told(str(row.labels[name]), value, total) for value, total in moved.items() if total]
    return ", ".join(dict.fromkeys(found)) or "none"


def _told(what: str, value: str, total: int) -> str:
    return f"{what} {total}" if value == "count" else f"{what} {value} {total}"


def _is_of(fault: Fault, netns: object) -> bool:
    return netns in [space.name for space in fault.spaces.values()]


if __name__ == "__main__":
    main(sys.argv[1:])
