"""Question `bridge_port`: why a port of a bridge passes nothing on.

`bridge`: its name; `is_bridge_up`; `has_stp`: whether a spanning tree runs there. `state`: of the port (disabled,
listening, learning, forwarding, blocking). `wait_s`: seconds to the next state. `is_isolated`, `is_locked`,
`has_vlans`: settings of the port, and of the bridge. `is_back`: the target is behind this very port, which sends
nothing back. `ports`: how many others the bridge has. `stopped`, `stopped_state`: the only other one, which does not
forward, and its state. `is_not_flooded`: none of the others takes frames for a MAC that is not known. Null: it is no
port.
"""

import struct
from typing import Any, Dict, Optional, Set

from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net.rtnetlink import MASTER, Interface, RouteSocket, number
from netconsole_collector.questions.within import within

_UP = 1
_INFO_DATA, _SLAVE_KIND, _SLAVE_DATA = 2, 4, 5
_STATE, _HAIRPIN, _FLOOD, _TIMER, _ISOLATED, _LOCKED = 1, 4, 9, 22, 33, 39  # IFLA_BRPORT_*
_STP, _FILTERING = 5, 7  # IFLA_BR_STP_STATE, IFLA_BR_VLAN_FILTERING
_STATES = ("disabled", "listening", "learning", "forwarding", "blocking")
_FORWARDING = "forwarding"
_TICKS_PER_S = 100  # USER_HZ
_GET_NEIGHBOUR, _AF_BRIDGE, _MAC, _ENTRY_MASTER = 30, 7, 2, 9  # NDA_LLADDR, NDA_MASTER
_ENTRY = struct.Struct("=BxxxiHBB")


def answer(arguments: Json) -> Any:
    """Of the port ``device``, and a frame for ``target_mac``, where that is known."""
    device, target = text(arguments, "device"), str(arguments.get("target_mac", ""))
    return within(arguments, lambda: _looked_up(device, target))


def _looked_up(device: str, target: str) -> Json:
    with RouteSocket() as routes:
        link = routes.link(device)
        bridge = routes.link_at(link.whole(MASTER) or 0) if link is not None else None
        if link is None or bridge is None or not is_port(link, bridge):
            return dict.fromkeys(("bridge", "state", "wait_s", "is_isolated", "has_vlans"))
        others = [one for one in routes.links() if one.number != link.number and is_port(one, bridge)]
        port, of_bridge = _port(link), dict(attributes(bridge.info.get(_INFO_DATA, b""), 0))
        is_back = not any(port.get(_HAIRPIN, b"")) and _entry(routes, bridge, target) == link.number
    timer = port.get(_TIMER, b"")
    stopped = [one for one in others if _state(one) != _FORWARDING]
    forwarding = [one for one in others if _state(one) == _FORWARDING]
    return {
        "bridge": bridge.name,
        "is_bridge_up": bool(bridge.flags & _UP),
        "has_stp": any(of_bridge.get(_STP, b"")),
        "state": _state(link),
        "wait_s": round(struct.unpack("=Q", timer)[0] / _TICKS_PER_S, 1) if len(timer) == 8 else None,
        "is_isolated": any(port.get(_ISOLATED, b"")),
        "is_locked": any(port.get(_LOCKED, b"")),
        "has_vlans": any(of_bridge.get(_FILTERING, b"")),
        "is_back": is_back,
        "ports": len(others),
        "stopped": stopped[0].name if len(stopped) == len(others) == 1 else None,
        "stopped_state": _state(stopped[0]) if len(stopped) == len(others) == 1 else None,
        "is_not_flooded": bool(forwarding) and not any(_takes_unknown(one) for one in forwarding),
    }


def _entry(routes: RouteSocket, bridge: Interface, mac: str) -> Optional[int]:
    """The port behind which a bridge knows a MAC."""
    try:
        wanted = bytes.fromhex(mac.replace(":", ""))
    except ValueError:
        return None
    found: Set[int] = set()  # there is an entry for each VLAN of the port
    for body in routes.dump(_GET_NEIGHBOUR, _ENTRY.pack(_AF_BRIDGE, 0, 0, 0, 0)):
        values = dict(attributes(body, _ENTRY.size))
        if values.get(_MAC) == wanted and number(values.get(_ENTRY_MASTER)) == bridge.number:
            found.add(_ENTRY.unpack_from(body)[1])
    return found.pop() if len(found) == 1 else None


def is_port(link: Interface, bridge: Interface) -> bool:
    """Whether a device is a port of this bridge."""
    kind = link.info.get(_SLAVE_KIND, b"").rstrip(b"\0")
    return link.whole(MASTER) == bridge.number and kind == b"bridge"


def _port(link: Interface) -> Dict[int, bytes]:
    return dict(attributes(link.info.get(_SLAVE_DATA, b""), 0))


def _state(link: Interface) -> Optional[str]:
    state = (_port(link).get(_STATE) or b"\xff")[0]
    return _STATES[state] if state < len(_STATES) else None


def _takes_unknown(link: Interface) -> bool:
    return any(_port(link).get(_FLOOD, b"\1"))
