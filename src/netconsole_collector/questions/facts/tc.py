"""Messages of traffic control for facts: queueing disciplines with their classes and filters, as the kernel wrote them.

The console decodes them (src/netconsole/sources/facts.py). Statistics are left out.
"""

import base64
import socket
import struct
import sys
from typing import Any, Dict, List, Tuple

from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.facts.links import devices
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.sources.net.netlink_messages import attribute
from netconsole_collector.sources.net.qdiscs import RTM_GETQDISC, RTM_GETTCLASS, TCA_KIND, TCA_OPTIONS

MAX_BYTES = 1 << 20
"""Of all messages."""
GET_FILTER = 46
"""RTM_GETTFILTER. The message that answers a request has a number that is smaller by two."""
MAX_FILTERS = 64
_TCMSG = struct.Struct("=BxxxiIII")
# include/uapi/linux/pkt_sched.h, TC_H_*
_INGRESS, _EGRESS, _OF_INGRESS = 0xFFFFFFF2, 0xFFFFFFF3, 0xFFFF0000
_HOOKS: Dict[str, Tuple[int, ...]] = {"clsact": (_INGRESS, _EGRESS), "ingress": (_OF_INGRESS,), "noqueue": (), "mq": ()}
"""The parents of a queueing discipline's filters, where that is not the discipline itself."""
_CLASSFUL = ("htb", "hfsc", "drr", "qfq", "cbq")
_SOURCE = "rtnetlink (RTM_GETQDISC)"


def collect(facts: Facts) -> None:
    """Adds them to ``facts.messages``. Raises OSError."""
    names = {one.number: one.name for one in devices(facts.host)}
    route = facts.host.netlink(socket.NETLINK_ROUTE)
    room = _Room()
    try:
        qdiscs = room.taken(route, RTM_GETQDISC)
        filters: List[Any] = []
        classes: Dict[int, Any] = {}
        for index, handle, kind, _ in qdiscs:
            if kind in _CLASSFUL and index not in classes:
                classes[index] = None
            for parent in _HOOKS.get(kind, (handle,)) if index in names else ():
                try:
                    found = room.taken(route, GET_FILTER, index, parent)
                except OSError:
                    continue  # a discipline that takes no filters
                filters.append([index, parent, [one for _, _, _, one in found[: MAX_FILTERS + 1]]])
        for index in classes:
            classes[index] = [one for _, _, _, one in room.taken(route, RTM_GETTCLASS, index)]
    finally:
        route.close()
    if room.is_full:
        facts.unknown("tc", _SOURCE, "more than {} MB of queueing disciplines and filters".format(MAX_BYTES >> 20))
        return
    facts.messages = {
        "byteorder": sys.byteorder,
        "names": sorted(names.items()),
        "qdiscs": [message for _, _, _, message in qdiscs],
        "filters": filters,
        "classes": sorted(classes.items()),
    }


class _Room:
    """What is left of MAX_BYTES."""

    def __init__(self) -> None:
        self._left = MAX_BYTES

    @property
    def is_full(self) -> bool:
        return self._left < 0

    def taken(self, route: Netlink, kind: int, index: int = 0, parent: int = 0) -> List[Tuple[int, int, str, str]]:
        """Device, handle, kind and message of each that is there. Raises OSError."""
        found = []
        for body in route.dump(kind, _TCMSG.pack(socket.AF_UNSPEC, index, 0, parent, 0)):
            if self.is_full:
                continue
            values = dict(attributes(body, _TCMSG.size))
            kept = b"".join(attribute(one, bytes(values[one])) for one in (TCA_KIND, TCA_OPTIONS) if one in values)
            message = base64.b64encode(bytes(body[: _TCMSG.size]) + kept).decode("ascii")
            self._left -= len(message)
            _, number, handle, _, _ = _TCMSG.unpack_from(body)
            name = bytes(values.get(TCA_KIND, b"")).rstrip(b"\0").decode("ascii", "replace")
            found.append((number, handle, name, message))
        return found
