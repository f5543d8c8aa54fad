"""What caps a virtual machine: each thing that may hold it back, and the figure that proves or excludes it.

All of it is judged from a snapshot, so that the console, ``netconsole vm`` and a saved file say the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.base import figure
from netconsole.snapshot.document import IncidentData, number
from netconsole.snapshot.machine_figures import WORKER, MachineFigures, SnapshotRow, bits_per_s, role
from netconsole_collector.names.fact_keys import key as fact_key

CapState: TypeAlias = Literal["caps", "free", "unknown"]

FULL_PCT = 90.0
"""A thread, or a limit, that is used so far has nothing left: figures are means of the whole measurement."""
BUSY_PCT = 95.0
ONE_QUEUE_PCT = 90.0
WINDOW_PCT = 50.0
"""Of the time in which a connection has something to send. Less, and something else holds it back most of the time."""
WAITS_PCT = 5.0
"""Of the time, as of the finding of thread_waits. A shorter wait is an incident for a moment, and caps nothing."""
SOME_LOST_PER_S = 1.0
MANY_PER_S = 1000.0
"""Packets. With fewer nobody can say how they spread over queues."""
FROM_DISK_PER_S = 100.0
"""Page faults, as of the finding of vm_states: with 100 us for each a virtual CPU waits for 1 % of the time."""
SMALL_BYTES, FAST_BYTES_PER_S = 1600.0, 10e6
"""A mean packet up to so long is no merged one; below this rate it costs little that it is not."""
_OFF = ("off", "False", "false", "0")
_TOLD = ("cpu-wait", "tap-ring-full", "io-limit", "ovs-meter", "vm-memory")
"""Causes of incidents that a check of their own tells."""
_LIMIT = re.compile(r"([0-9]{1,18}) ([1-9][0-9]{0,17})")
"""Microseconds of CPU time, and in how many of them, as in cpu.max."""
_POLICE = re.compile(r"(\w{1,32}) protocol=\S+.* actions=(?:\w+,)*police(?:,\w+)*(?: rate=([0-9]{1,18}))?")
"""A filter of tc as facts have it: kind, and the rate in bytes per second."""
_WINDOWS = {"receiver_window_pct": "the receiver's window", "send_buffer_pct": "the sender's buffer"}
_QEMU_LIMIT = re.compile(r"\b((?:iops|bps)(?:-total|-read|-write)?)=([1-9][0-9]{0,17})(?=,|$)")
"""Of what facts have of QEMU's throttling; bursts (iops-total-max) are none of them."""
_READS, _WRITES = ("read",), ("write",)
"""What QEMU counts against its limits (block/throttle-groups.c); not what asks to write a cache out, or discards."""
_QEMU_COUNTS = {
    f"{kind}{way}": (column, does)
    for kind, column in (("iops", "ios"), ("bps", "bytes"))
    for way, does in (("", _READS + _WRITES), ("-total", _READS + _WRITES), ("-read", _READS), ("-write", _WRITES))
}
_OF_ALL = ("matchall", "basic")
"""Filters that take every packet, as they are used for policing."""
_NO_TAP = "it has no tap on this host"
_BEYOND = "look at who sends the load (one thread for many connections?), at its peer, and beyond this host"


@dataclass(frozen=True, slots=True)
class Cap:
    """One thing that may cap a machine: ``text`` says what holds it back, what excludes it, or what is not known."""

    state: CapState
    name: str
    text: str


def caps(one: MachineFigures) -> list[Cap]:
    """All that may cap it, in the order in which it is believed.

    A limit that is used up comes before what a machine lacks besides: nothing else kept it from reaching its limit.
    Then comes what explains the others: a worker that waits for its CPU also lets the ring of its tap fill.
    """
    found = [check(one) for check in _CHECKS]
    if one.is_configured:
        return found
    why = "nobody has read which devices and limits it has"
    return [
        Cap("unknown", cap.name, f"{cap.name}: {why}") if cap.state == "free" and check in _CONFIGURED else cap
        for check, cap in zip(_CHECKS, found, strict=True)
    ]


def verdict(found: Sequence[Cap]) -> Cap:
    """The first sentence: what caps it, or that nothing does that was measured."""
    first = next((one for one in found if one.state == "caps"), None)
    if first is not None:
        return first
    unknown = [one.name for one in found if one.state == "unknown"]
    if not unknown:
        return Cap("free", "", f"nothing here caps it: {_BEYOND}")
    return Cap("unknown", "", f"nothing that was measured caps it; not known: {', '.join(unknown)}")


def _runs(one: MachineFigures) -> Cap:
    name = "whether it runs"
    rows = one.processes()
    if not rows:
        is_known = one.has("vm_states")
        return Cap("unknown", name, "no QEMU process of this name was seen" if is_known else _lacks(one, "vm_states"))
    for state, why in (("stopped", "its QEMU process gets no CPU (SIGSTOP)"), ("paused", "QEMU runs none of its CPUs")):
        if any(row.get(state) for row in rows):
            return Cap("caps", name, f"it is {state}: {why}")
    used = sum(one.per_s("vm_states", row, "cpu_ns") for row in rows) / 1e7
    if any("paused" in row and row["paused"] is None for row in rows):
        return Cap("unknown", name, f"it uses {figure.percent(used)} of a core; whether it is paused is not known")
    return Cap("free", name, f"it runs: QEMU and its guest use {figure.percent(used)} of a core")


def _waits(one: MachineFigures) -> Cap:
    name = "waits for a CPU"
    told, threads = _incident(one, "cpu-wait"), one.threads()
    if told is not None and not threads:
        return Cap("caps", name, told.what)
    if not threads:
        return Cap("unknown", name, _lacks(one, "thread_waits"))
    most = max(threads, key=lambda row: number(row.get("waited_ns")) or 0.0)
    share = one.per_s("thread_waits", most, "waited_ns") / 1e7
    waits = f"{figure.percent(share)} of the time"
    if share >= WAITS_PCT and told is not None:
        return Cap("caps", name, told.what)
    if share >= WAITS_PCT and one.snapshot.incidents is None:
        return Cap("caps", name, f"its {role(most)} waits for a CPU: {waits}")
    return Cap("free", name, f"no thread of it waits long for a CPU: {role(most)} most, {waits}")


def _limit(one: MachineFigures) -> Cap:
    name = "its limit of CPU time"
    limit = one.fact(fact_key("vm", one.name, "cpu_max"))
    if limit == "max":
        return Cap("free", name, "its control groups have no limit of CPU time")
    written = _LIMIT.fullmatch(str(limit))
    if written is None:
        return Cap("unknown", name, "the limit of its control groups could not be read")
    processes = one.processes()
    if len(processes) != 1:
        why = f"{len(processes)} QEMU processes have this name" if processes else _lacks(one, "vm_states")
        return Cap("unknown", name, f"what it uses of its limit is not known: {why}")
    allowed = 100.0 * int(written[1]) / int(written[2])
    used = one.per_s("vm_states", processes[0], "cpu_ns")
    text = f"its control group may use {figure.percent(allowed)} of a core, and uses {figure.percent(used / 1e7)}"
    return Cap("caps" if used / 1e7 >= FULL_PCT / 100 * allowed else "free", name, text)


def _memory(one: MachineFigures) -> Cap:
    name, rows = "its memory", one.memory()
    if not rows:
        return Cap("unknown", name, _lacks(one, "vm_states"))
    per_s = sum(one.per_s("vm_states", row, "faults") for row in rows)
    used, limit = (number(rows[0].get(column)) for column in ("used", "limit"))
    faults, room = f"{figure.number(per_s)} page faults/s", ""
    if used is not None and limit:
        room = f"; its control group uses {figure.percent(100.0 * used / limit)} of the memory that it may have"
    if per_s >= FROM_DISK_PER_S:
        return Cap("caps", name, f"its memory comes back from disk: {faults}{room}")
    return Cap("free", name, f"hardly any of its memory comes back from disk: {faults}{room}")


def _worker(one: MachineFigures) -> Cap:
    name, full = "the vhost worker", "it can move no more packets"
    if one.moves_packets_itself():
        found = _busiest(one, "main thread", name, FULL_PCT, full)
        return Cap(found.state, name, f"QEMU moves its packets itself, without vhost: {found.text}")
    return _busiest(one, WORKER, name, FULL_PCT, full)


def _vcpus(one: MachineFigures) -> Cap:
    more = "the guest has no CPU time left, unless it polls (DPDK inside does, always)"
    return _busiest(one, "vCPU", "the virtual CPUs", BUSY_PCT, more)


def _busiest(one: MachineFigures, kind: str, name: str, limit: float, meaning: str) -> Cap:
    threads = [row for row in one.threads() if role(row).startswith(kind)]
    if not threads and one.threads() and not one.taps and kind != "vCPU":
        return Cap("free", name, f"it has no {kind}")
    if not threads:
        return Cap("unknown", name, f"no thread of it is known as {kind}")
    share = one.per_s("thread_waits", threads[0], "ran_ns") / 1e7
    said = f"its {role(threads[0])} uses {figure.percent(share)} of a core"
    if share >= limit:
        return Cap("caps", name, f"{said}: {meaning}")
    return Cap("free", name, f"{said}, the most of them" if len(threads) > 1 else said)


def _pmd(one: MachineFigures) -> Cap:
    name = "the PMD thread of its port"
    mine = [row for row in one.rows("ovs_pmd", "rxqs") if row.get("port") in one.ports]
    if not mine and one.ports and not _is_settled(one, "ovs_pmd"):
        return Cap("unknown", name, _lacks(one, "ovs_pmd"))
    if not mine:
        return Cap("free", name, "no PMD thread of Open vSwitch polls a port of it")
    cores = {row.get("core") for row in mine}
    threads = [row for row in one.rows("ovs_pmd", "threads") if row.get("core") in cores]
    busy = [(number(row.get("busy_pct")) or 0.0, row.get("core")) for row in threads]
    if not busy:
        return Cap("unknown", name, "the load of the PMD thread of its port is not known")
    most, core = max(busy, key=lambda pair: pair[0])
    said = f"the PMD thread on core {core}, which polls its port, is busy {figure.percent(most)} of its time"
    return Cap("caps" if most >= BUSY_PCT else "free", name, said)


def _shaper(one: MachineFigures) -> Cap:
    name = "a shaper or queue of its tap"
    links = one.links()
    if not one.taps:
        return Cap("free", name, f"{name}: {_NO_TAP}")
    if not links:
        return Cap("unknown", name, _lacks(one, "link_rates"))
    for row in links:
        lost = one.per_s("link_rates", row, "qdisc_drops")
        limit = number(row.get("qdisc_rate")) or 0.0
        used = 8 * one.per_s("link_rates", row, "tx_bytes")
        words = row.get("shaper") or row.get("qdisc")
        if lost >= SOME_LOST_PER_S or (limit and used >= FULL_PCT / 100 * limit):
            much = f"{bits_per_s(used)} of {bits_per_s(limit)}" if limit else bits_per_s(used)
            shed = f", {figure.rate(lost, 'packets')} are shed" if lost >= SOME_LOST_PER_S else ""
            return Cap("caps", name, f"{words} at {row.get('device')} lets no more through: {much}{shed}")
    few = _things(links, "qdisc_drops")
    return Cap("free", name, f"the queueing disciplines of its taps shed {few}")


def _policer(one: MachineFigures) -> Cap:
    name = "a policer of Open vSwitch"
    for row in one.polled():
        for column, does in (("rx_policed", "sends"), ("tx_policed", "receives")):
            if (lost := one.per_s("ovs_pmd", row, column)) >= SOME_LOST_PER_S:
                said = f"Open vSwitch polices what {row.get('port')} {does}"
                return Cap("caps", name, f"{said}: {figure.rate(lost, 'packets')} are over its rate")
    found = [
        (port, float(rate))
        for port in one.ports
        if (rate := number(one.fact(fact_key("ovs", "interface", port, "ingress_policing_rate")))) is not None
        and rate > 0
    ]
    if not found:
        return Cap("free", name, "Open vSwitch polices no port of it")
    links = {port: f"Open vSwitch polices {port} to {bits_per_s(1000 * rate)}" for port, rate in found}
    return _worst([_policed(one, name, port, 1000 * rate, links[port], "rx") for port, rate in found])


def _policed(one: MachineFigures, name: str, port: str, limit: float, said: str, to: str) -> Cap:
    """``to``: rx for what it sends, tx for what it receives, as the host counts."""
    links = [row for row in one.links() if row.get("device") == port]
    does = "sends" if to == "rx" else "receives"
    if not links and any(row.get("port") == port and number(row.get("rx_policed")) == 0 for row in one.polled()):
        return Cap("free", name, f"{said}; nothing that it sends is over that")
    if not links:
        return Cap("unknown", name, f"{said}; what it {does} is not known")
    moved = sum(8 * one.per_s("link_rates", row, f"{to}_bytes") for row in links)
    return Cap("caps" if moved >= 0.8 * limit else "free", name, f"{said}; it {does} {bits_per_s(moved)}")


def _worst(judged: Sequence[Cap]) -> Cap:
    return min(judged, key=lambda cap: ("caps", "unknown", "free").index(cap.state))


def _tc_policer(one: MachineFigures) -> Cap:
    name = "a policer of tc"
    if not one.taps:
        return Cap("free", name, f"{name}: {_NO_TAP}")
    unread = [tap for tap in one.taps if not one.of_tc(tap, "qdisc")]
    if unread:
        return Cap("unknown", name, f"the filters of {unread[0]} could not be read")
    judged = []
    for tap in one.taps:
        by_ovs = number(one.fact(fact_key("ovs", "interface", tap, "ingress_policing_rate")))
        for way, to in (("ingress", "rx"), ("egress", "tx")):
            for text in one.of_tc(tap, "filter", way) if way == "egress" or not by_ovs else ():
                if (police := _POLICE.fullmatch(text)) is not None:
                    judged.append(_tc_policed(one, name, tap, to, police))
    return _worst(judged) if judged else Cap("free", name, "tc polices no tap of it")


def _tc_policed(one: MachineFigures, name: str, tap: str, to: str, police: re.Match[str]) -> Cap:
    what = f"tc polices what {tap} {'sends' if to == 'rx' else 'receives'}"
    if police[2] is None:
        return Cap("unknown", name, f"{what}; to which rate is not known")
    limit = 8.0 * int(police[2])
    told = _policed(one, name, tap, limit, f"{what} to {bits_per_s(limit)}", to)
    if told.state == "caps" and police[1] not in _OF_ALL:
        return Cap("unknown", name, f"{told.text}; how much of that passes the policer's filter is not known")
    return told


def _meter(one: MachineFigures) -> Cap:
    name = "a meter of Open vSwitch"
    dropped = [row for row in one.rows("ovs_drops", "drops") if row.get("reason") == "OVS_DROP_METER"]
    lost = {
        port: sum(one.per_s("ovs_drops", row, "count") for row in dropped if row.get("port") == port)
        for port in one.ports
    }
    port = max(lost, key=lambda one: lost[one], default="")
    if lost.get(port, 0.0) >= SOME_LOST_PER_S:
        return Cap("caps", name, f"a meter of Open vSwitch sheds {figure.rate(lost[port], 'packets')} that {port} sent")
    by_pmd = sum(
        one.per_s("ovs_pmd", row, "count")
        for row in one.rows("ovs_pmd", "trouble")
        if row.get("counter") == "datapath_drop_meter"
    )
    if (told := _incident(one, "ovs-meter")) is not None:
        return Cap("caps", name, told.what)
    if by_pmd >= SOME_LOST_PER_S and one.ports:
        text = f"meters of Open vSwitch shed {figure.rate(by_pmd, 'packets')}; of which ports is not known"
        return Cap("unknown", name, text)
    if one.ports and not (_is_settled(one, "ovs_drops") or one.has("ovs_pmd")):
        return Cap("unknown", name, _lacks(one, "ovs_drops"))
    return Cap("free", name, "no meter of Open vSwitch sheds what it sends")


def _ring(one: MachineFigures) -> Cap:
    name = "the rings of its taps"
    if (told := _incident(one, "tap-ring-full")) is not None:
        return Cap("caps", name, told.what)
    for row in one.polled():
        if (lost := one.per_s("ovs_pmd", row, "tx_full")) >= SOME_LOST_PER_S:
            said = f"the queue of {row.get('port')} is full (the guest does not keep up)"
            return Cap("caps", name, f"{said}: {figure.rate(lost, 'packets')} are lost")
    rows = one.queues("tun_queues")
    if rows:
        return Cap("free", name, f"its guest takes what comes: {_things(rows, 'ring_full')} found a full ring")
    links = one.links()
    if not one.taps and one.polled():
        return Cap("free", name, f"its guest takes what comes: {_things(one.polled(), 'tx_full')} found a full queue")
    if not one.taps:
        return Cap("free", name, f"{name}: {_NO_TAP}")
    if not links:
        return Cap("unknown", name, _lacks(one, "tun_queues"))
    worst = max(links, key=lambda row: number(row.get("tx_drops")) or 0.0)
    lost = one.per_s("link_rates", worst, "tx_drops")
    if lost >= SOME_LOST_PER_S:
        return Cap("caps", name, f"{worst.get('device')} loses {figure.rate(lost, 'packets')} on the way to the guest")
    return Cap("free", name, f"its taps lose {_things(links, 'tx_drops')} on the way to the guest")


def _one_queue(one: MachineFigures) -> Cap:
    name = "how packets spread over its queues"
    best: tuple[float, str] | None = None
    for probe, direction in (("tun_queues", None), ("vhost_queues", "tx"), ("vhost_queues", "rx")):
        for tap in one.taps:
            rows = [row for row in one.queues(probe) if row.get("device") == tap and row.get("direction") == direction]
            moved = [(one.per_s(probe, row, "packets"), row.get("queue")) for row in rows]
            whole = sum(rate for rate, _ in moved)
            count = max(len(rows), one.queues_of(tap))  # one that nothing passes has no row
            if count < 2 or whole < MANY_PER_S:
                continue
            rate, queue = max(moved, key=lambda pair: pair[0])
            share = 100.0 * rate / whole
            if best is None or share > best[0]:
                carries = f"carries {figure.percent(share)} of {figure.rate(whole, 'packets')}"
                best = share, f"queue {queue} of {count} of {tap} {carries}"
    if best is None and one.has_single_queues():
        return Cap("free", name, "each of its taps has one queue")
    if best is None and one.taps and not (one.has("tun_queues") or one.has("vhost_queues")):
        return Cap("unknown", name, _lacks(one, "tun_queues"))
    if best is None:
        return Cap("free", name, "it has one queue, or too few packets to tell")
    if best[0] >= ONE_QUEUE_PCT:
        return Cap("caps", name, f"{best[1]}: one flow, or a guest that does not spread them (RSS)")
    return Cap("free", name, best[1])


def _offload(one: MachineFigures) -> Cap:
    name = "segmentation offload"
    known = [(tap, one.fact(fact_key("nic", tap, "offload", "tx-tcp-segmentation"))) for tap in one.taps]
    if not known:
        return Cap("free", name, f"{name}: {_NO_TAP}")
    if all(value is None for _, value in known):
        return Cap("unknown", name, "the offloads of its taps could not be read")
    for tap, value in known:
        rows = [row for row in one.links() if row.get("device") == tap]
        for to in ("tx", "rx"):
            packets = sum(one.per_s("link_rates", row, f"{to}_packets") for row in rows)
            size = sum(one.per_s("link_rates", row, f"{to}_bytes") for row in rows)
            if str(value) in _OFF and size >= FAST_BYTES_PER_S and size <= SMALL_BYTES * packets:
                much = f"{figure.rate(packets, 'packets')} of {figure.quantity(size / packets, 'bytes')}"
                return Cap("caps", name, f"segmentation offload is off at {tap}: {much}")
    is_off = [tap for tap, value in known if str(value) in _OFF]
    if is_off and not one.links():
        return Cap("unknown", name, f"segmentation offload is off; {_lacks(one, 'link_rates')}")
    return Cap("free", name, f"segmentation offload is {'off, and little moves' if is_off else 'on'}")


def _io_limit(one: MachineFigures) -> Cap:
    name = "the I/O limit of its disks"
    found = [row for row in one.rows("io_limits", "limits") if row.get("vm") == one.name]
    if not found and not _is_settled(one, "io_limits"):
        return Cap("unknown", name, _lacks(one, "io_limits"))
    shares = [
        (100.0 * one.per_s("io_limits", row, "passed") / limit, row)
        for row in found
        if (limit := number(row.get("limit_per_s")) or 0.0) > 0
    ]
    worst = max(shares, key=lambda pair: pair[0], default=None)
    if worst is not None:
        share, row = worst
        passed = figure.number(one.per_s("io_limits", row, "passed"))
        much = f"{passed} of {figure.number(number(row.get('limit_per_s')))} {row.get('what')} per second"
        said = f"its control group limits its I/O on {row.get('device')} (io.max): {much}"
        if share >= FULL_PCT:
            return Cap("caps", name, said)
    disks = _disks(one)
    by_qemu = [_by_qemu(one, name, disk, disks) for disk in disks if disk.get("limits")]
    if by_qemu:
        return _worst(by_qemu)
    return Cap("free", name, said if worst is not None else "no control group of it limits its I/O, nor does QEMU")


def _window(one: MachineFigures) -> Cap:
    name = "a TCP window of what this host sends to it"
    worst: tuple[float, str] = 0.0, ""
    for connection, known in one.facts_of("tcp").items():
        rtt_us = number(known.get("rtt_us"))
        trip = f" (a round trip takes {figure.duration(rtt_us / 1e6, 's')})" if rtt_us else ""
        for prop, what in _WINDOWS.items():
            share = number(known.get(prop)) or 0.0
            said = f"{what} of {figure.safe(connection, 60)} is full {figure.percent(share)} of the time that it sends"
            worst = max(worst, (share, said + trip))
    if worst[0] >= WINDOW_PCT:
        return Cap("caps", name, f"{worst[1]}: make that buffer larger, or let the program read faster")
    if worst[1]:
        return Cap("free", name, worst[1])
    return Cap("free", name, "this host sends nothing to it over TCP")


def _disks(one: MachineFigures) -> list[dict[str, str]]:
    """What is known of each of its disks: values by property."""
    return [{name: str(value) for name, value in disk.items()} for disk in one.facts_of("disk").values()]


def _by_qemu(one: MachineFigures, name: str, disk: dict[str, str], disks: Sequence[dict[str, str]]) -> Cap:
    """A limit that QEMU keeps (throttling) of one of its disks. What it lets through is seen at the device below."""
    device, said = disk.get("on"), f"QEMU itself limits a disk of it ({disk['limits']})"
    rows = [row for row in one.rows("block_path", "ios") if row.get("vm") == one.name and row.get("device") == device]
    if not rows:
        lacks = _lacks(one, "block_path") if device is not None else "the device below it is not known"
        return Cap("unknown", name, f"{said}; how much of that it uses is not known: {lacks}")
    if sum(other.get("on") == device for other in disks) > 1:
        return Cap("unknown", name, f"{said}; how much of that it uses is not known: other disks of it lie on {device}")
    shares = []
    for what, limit in _QEMU_LIMIT.findall(disk["limits"]):
        column, does = _QEMU_COUNTS[what]
        passed = sum(one.per_s("block_path", row, column) for row in rows if row.get("operation") in does)
        shares.append((100.0 * passed / int(limit), what))
    if not shares:
        return Cap("unknown", name, f"{said}; how much of that it uses is not known")
    share, what = max(shares)
    much = f"{said}; it uses {figure.percent(share)} of {what} at {device}"
    if share >= FULL_PCT:
        return Cap("caps", name, much)
    if disk.get("cache_direct") != "on":
        return Cap("unknown", name, f"{much}; what the page cache answers is not known")
    return Cap("free", name, much)


def _else(one: MachineFigures) -> Cap:
    name = "anything else that stands out"
    if one.snapshot.incidents is None:
        return Cap("unknown", name, "nobody looked for incidents in this snapshot")
    now = (found for found in one.incidents() if found.level in ("!!", "!") and found.ended is None)
    told = next((found for found in now if found.cause not in _TOLD), None)
    if told is not None:
        return Cap("caps", name, told.what)
    return Cap("free", name, "nothing else stands out at its devices")


_CHECKS: Sequence[Callable[[MachineFigures], Cap]] = (
    _runs, _shaper, _policer, _tc_policer, _meter, _io_limit,
    _memory, _waits, _limit, _pmd, _worker, _vcpus, _ring, _one_queue, _offload, _window, _else,
)  # fmt: skip
_CONFIGURED = (
    _shaper, _policer, _tc_policer, _meter, _io_limit, _pmd, _worker, _ring, _one_queue, _offload, _window, _else,
)  # fmt: skip
"""Those that exclude nothing where its devices are not known."""


def _incident(one: MachineFigures, cause: str) -> IncidentData | None:
    return next((found for found in one.incidents() if found.cause == cause and found.ended is None), None)


def _lacks(one: MachineFigures, probe: str) -> str:
    data = one.snapshot.probes.get(probe)
    if one.has(probe):
        return f"{probe} has no row of it"
    return f"{probe} has not measured{f': {data.why}' if data is not None and data.why else ''}"


def _things(rows: Sequence[SnapshotRow], column: str) -> str:
    """How many packets that is; unknown where no row has the column."""
    known = [count for row in rows if (count := number(row.get(column))) is not None]
    whole = sum(known)
    return figure.things(int(whole), "packets") if known and math.isfinite(whole) else f"{figure.UNKNOWN} packets"


def _is_settled(one: MachineFigures, probe: str) -> bool:
    """Whether a probe has measured, or there is nothing here that it could measure."""
    data = one.snapshot.probes.get(probe)
    return one.has(probe) or (data is not None and data.status == "unsupported")
