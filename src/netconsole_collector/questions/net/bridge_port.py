"""Question `bridge_port`: whether a port of a bridge forwards, and when it will.

`bridge`: its name. `state`: of the spanning tree (disabled, listening, learning, forwarding, blocking). `wait_s`:
seconds to the next state. `is_isolated`, `has_vlans`: settings of the port, and of the bridge. Null: it is no port.
"""

import struct
from typing import Any, Dict

from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net.rtnetlink import Interface, RouteSocket
from netconsole_collector.questions.within import within

_MASTER, _INFO, _INFO_DATA, _SLAVE_KIND, _SLAVE_DATA = 10, 18, 2, 4, 5
_STATE, _TIMER, _ISOLATED = 1, 22, 33  # IFLA_BRPORT_STATE, _FORWARD_DELAY_TIMER, _ISOLATED
_FILTERING = 7  # IFLA_BR_VLAN_FILTERING
_STATES = ("disabled", "listening", "learning", "forwarding", "blocking")
_TICKS_PER_S = 100  # USER_HZ


def answer(arguments: Json) -> Any:
    """Of the port ``device``."""
    device = text(arguments, "device")
    return within(arguments, lambda: _looked_up(device))


def _looked_up(device: str) -> Json:
    with RouteSocket() as routes:
        link = routes.link(device)
        master = link.whole(_MASTER) if link is not None else None
        bridge = routes.link_at(master) if master else None
    if link is None or bridge is None or _info(link).get(_SLAVE_KIND, b"").rstrip(b"\0") != b"bridge":
        return {"bridge": None, "state": None, "wait_s": None, "is_isolated": None, "has_vlans": None}
    port = dict(attributes(_info(link).get(_SLAVE_DATA, b""), 0))
    of_bridge = dict(attributes(_info(bridge).get(_INFO_DATA, b""), 0))
    state = (port.get(_STATE) or b"\xff")[0]
    timer = port.get(_TIMER, b"")
    return {
        "bridge": bridge.name,
        "state": _STATES[state] if state < len(_STATES) else None,
        "wait_s": round(struct.unpack("=Q", timer)[0] / _TICKS_PER_S, 1) if len(timer) == 8 else None,
        "is_isolated": bool(any(port.get(_ISOLATED, b""))),
        "has_vlans": bool(any(of_bridge.get(_FILTERING, b""))),
    }


def _info(link: Interface) -> Dict[int, bytes]:
    return dict(attributes(link.values.get(_INFO, b""), 0))
