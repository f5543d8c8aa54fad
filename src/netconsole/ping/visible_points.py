"""Which points of an echo's way are watched here, from the attach points that the probe has got."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.ping.capture import Role
from netconsole.ping.echo_log import Watched
from netconsole.ping.vantage import VANTAGE_POINTS

_QUEUED, _READY = "raw_tracepoint:net_dev_queue", "raw_tracepoint:sk_data_ready"
_MADE = {4: "__ip_local_out", 6: "__ip6_local_out"}
_ICMP = {4: "icmp_rcv", 6: "icmpv6_rcv"}
_NOTES = {
    _QUEUED: "this kernel has no kprobes: {what} begins when it is queued to its device, not when IP gets it",
    _READY: "this kernel has no kprobes: the reply ends when its socket has it, not when ICMP gets it",
}
_BLIND = "this kernel has no kprobes: when ICMP gets a request is not known, and so neither request nor between"


def watched(role: Role, attach: Sequence[str], version: int) -> Watched:
    """Of echoes of this version of IP."""
    point = VANTAGE_POINTS[role]
    if point.has_inside:
        return Watched()
    functions = {one.partition(":")[2] for one in attach if one.startswith(("fentry:", "kprobe:"))}
    made = _MADE[version] in functions or _QUEUED in attach
    icmp = _ICMP[version] in functions or (_READY in attach and not point.receiver)
    if point.receiver:
        return Watched((True, icmp, made, True), answers_itself=True)
    return Watched((made, True, True, icmp))


def notes(role: Role, attach: Sequence[str]) -> list[str]:
    """What the attach points make of the times, where they are not the usual ones."""
    point = VANTAGE_POINTS[role]
    if point.has_inside:
        return []
    found = []
    if _QUEUED in attach:
        found.append(_NOTES[_QUEUED].format(what="the reply" if point.receiver else "the request"))
    if _READY in attach:
        found.append(_BLIND if point.receiver else _NOTES[_READY])
    return found
