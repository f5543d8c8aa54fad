"""Question `queue`: which queueing discipline is at a device, and what bounds it.

`kind`: of the root, or of a netem inside it that drops. `classes`: how many the root has. `inner`: another one inside
the root that drops meanwhile, or has dropped all that the root has. `shaper`: a root that shapes, with its rate, as
`tbf of 5 Mbit/s`. `burst`: bytes that a tbf takes at once; `is_too_long`: less than the MTU, and nothing waits there.
`limit`, `loss_pct`: of a netem. `is_by_model`: it loses by a model with states, whose mean is not read.
`ports`, `ports_up`: of a bond, team or bridge, how many it has, and how many of them have a carrier. `carrier`, `mtu`,
`is_up`: of the device. `xdp`: the name of its XDP program. `peer`, `peer_mtu`, `peer_is_up`: of the other end of a
pair, wherever that is.
"""

import os
import struct
import time
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from netconsole_collector.primitives.inside import make_inside
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net import programs
from netconsole_collector.questions.net.rtnetlink import MASTER, Interface, RouteSocket
from netconsole_collector.questions.within import paths, within
from netconsole_collector.sources.net.qdiscs import TC_H_INGRESS, TC_H_ROOT, Qdisc, handle_text, htb_rate, parse

_GET_QDISC, _GET_CLASS, _QDISC = 38, 42, struct.Struct("=BxxxiIII")
_READINGS, _PAUSE_S = 4, 0.25
_MTU, _PEER, _PEER_NAMESPACE = 4, 5, 37
_UP = 1
_OPTIONS, _TBF = 2, 1  # TCA_OPTIONS, TCA_TBF_PARMS
_TBF_PARAMETERS = struct.Struct("=8xI16xI4x")
"""Of struct tc_tbf_qopt the rate in bytes/s, and its buffer: the time that filling it takes, in 64 ns."""
_NETEM_PARAMETERS = struct.Struct("=4xII")
"""Of struct tc_netem_qopt its limit in packets, and how many of 2^32 it loses. It stands before its attributes."""
_NETEM_BYTES, _NETEM_LOSS = 24, 5
"""Size of struct tc_netem_qopt; TCA_NETEM_LOSS, which only a model has (dump_loss_model of net/sched/sch_netem.c)."""
_NONE = "noqueue"
_OF_PORTS = ("bond", "team", "bridge")


def answer(arguments: Json) -> Any:
    """Of ``device``."""
    device = text(arguments, "device")
    namespaces = list(paths())
    found, end = within(arguments, lambda: _looked_up(device, namespaces))
    looked = make_inside([(os.fsencode(end.path), end.inode)], end.look) if isinstance(end, Elsewhere) else [end]
    peer = looked[0] if isinstance(looked[0], Interface) else None
    found.update(peer=peer.name if peer is not None else None, peer_mtu=peer.whole(_MTU) if peer is not None else None)
    found["peer_is_up"] = bool(peer.flags & _UP) if peer is not None else None
    return found


class Elsewhere(NamedTuple):
    """An interface of another namespace."""

    path: str
    inode: int
    number: int

    def look(self) -> Optional[Interface]:
        """In that namespace."""
        with RouteSocket() as routes:
            return routes.link_at(self.number)


def _looked_up(device: str, namespaces: List[Tuple[str, int]]) -> Tuple[Json, Union[Interface, Elsewhere, None]]:
    with RouteSocket() as routes:
        link = routes.link(device)
        found: Json = _root(routes, link) if link is not None else {"kind": None, "classes": 0}
        index = link.whole(_PEER) if link is not None else None
        of = link.whole(_PEER_NAMESPACE) if link is not None else None
        peer: Union[Interface, Elsewhere, None] = None
        if index and of is None:
            peer = routes.link_at(index)
        elif index:
            where = next(((path, inode) for path, inode in namespaces if routes.number_of(path) == of), None)
            peer = Elsewhere(where[0], where[1], index) if where is not None else None
        if link is not None and link.kind in _OF_PORTS:
            ports = [one.has_carrier for one in routes.links() if one.whole(MASTER) == link.number]
            found.update(ports=len(ports), ports_up=sum(ports))
    found["is_up"] = bool(link.flags & _UP) if link is not None else None
    found["xdp"] = programs.at_device(link)[0] if link is not None else None
    found["mtu"] = link.whole(_MTU) if link is not None else None
    found["carrier"] = link.has_carrier if link is not None else None
    return found, peer


def _root(routes: RouteSocket, link: Interface) -> Json:
    qdiscs = _qdiscs(routes, link)
    root = next((one for one in qdiscs if one.parent == TC_H_ROOT), None)
    if root is None or root.kind == _NONE:  # what dropped is gone by now: this one drops nothing
        return {"kind": None, "classes": 0, "inner": None}
    classes = sum(1 for _ in routes.dump(_GET_CLASS, _QDISC.pack(0, link.number, 0, 0, 0)))
    inner = (_dropping(routes, link, qdiscs) if len(qdiscs) > 1 else None) or only_one(root, qdiscs)
    found: Json = {"kind": root.kind, "classes": classes, "inner": _named(inner) if inner is not None else None}
    burst = _burst(_options(routes, link, root)) if root.kind == "tbf" else None
    culprit = inner or root
    options = _options(routes, link, culprit) if culprit.kind == "netem" else b""
    if len(options) >= _NETEM_PARAMETERS.size:
        limit, loss = _NETEM_PARAMETERS.unpack_from(options)
        found.update(kind="netem", inner=None, limit=limit, loss_pct=float(f"{100 * loss / 2**32:.3g}") or None)
        found["is_by_model"] = _NETEM_LOSS in dict(attributes(options, _NETEM_BYTES))
    is_too_long = burst is not None and burst < (link.whole(_MTU) or 0) and not root.backlog_packets
    found.update(burst=burst, is_too_long=is_too_long, shaper=_shaper(routes, link, root))
    return found


def _shaper(routes: RouteSocket, link: Interface, root: Qdisc) -> Optional[str]:
    return (root._replace(rate_bits=htb_rate(routes, link.number)) if root.kind == "htb" else root).shaper


def _options(routes: RouteSocket, link: Interface, of: Qdisc) -> bytes:
    """Of one of its queues, as its kind writes them."""
    for body in routes.dump(_GET_QDISC, _QDISC.pack(0, link.number, 0, 0, 0)):
        _, index, handle, parent, _ = _QDISC.unpack_from(body)
        if (index, handle, parent) == (link.number, of.handle, of.parent):
            return bytes(dict(attributes(body, _QDISC.size)).get(_OPTIONS, b""))
    return b""


def _burst(options: bytes) -> Optional[int]:
    values = dict(attributes(options, 0))
    if len(values.get(_TBF, b"")) < _TBF_PARAMETERS.size:
        return None
    rate, buffer = _TBF_PARAMETERS.unpack_from(values[_TBF])
    return int(round(rate * buffer * 64 / 1e9))


def _qdiscs(routes: RouteSocket, link: Interface) -> List[Qdisc]:
    known = (parse(memoryview(body)) for body in routes.dump(_GET_QDISC, _QDISC.pack(0, link.number, 0, 0, 0)))
    return [one for one in known if one is not None and one.ifindex == link.number and one.parent != TC_H_INGRESS]


def _dropping(routes: RouteSocket, link: Interface, before: List[Qdisc]) -> Optional[Qdisc]:
    """Of those inside the root the only one that dropped meanwhile: what contains it counts the same packets."""
    dropped = {one.key: one.drops for one in before}
    for _ in range(_READINGS):
        time.sleep(_PAUSE_S)  # for the next packets: nothing tells when a counter moves
        now = _qdiscs(routes, link)
        moved = [one for one in now if one.parent != TC_H_ROOT and one.drops > dropped.get(one.key, one.drops)]
        leaves = _leaves(moved)
        if leaves:
            return None if len(leaves) > 1 else leaves[0]
    return None


def only_one(root: Qdisc, qdiscs: List[Qdisc]) -> Optional[Qdisc]:
    """The one inside the root that has dropped all that the root ever has: for when it drops nothing any more."""
    leaves = _leaves([one for one in qdiscs if one.parent != TC_H_ROOT and one.drops])
    return leaves[0] if len(leaves) == 1 and leaves[0].drops == root.drops else None


def _leaves(qdiscs: List[Qdisc]) -> List[Qdisc]:
    return [one for one in qdiscs if all(other.parent >> 16 != one.handle >> 16 for other in qdiscs)]


def _named(one: Qdisc) -> str:
    return " ".join((one.kind, *([handle_text(one.handle)] * bool(one.handle))))
