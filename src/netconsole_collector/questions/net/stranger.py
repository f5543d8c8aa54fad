"""Question `stranger`: whose a frame is that came in with a MAC that is not this device's, or for a VLAN.

`own_mac`: of the device. `mac_matches`: whether the frame has it. `is_senders`: it has that of its sender. `is_own`,
`own_device`: whether its target is an address of this namespace, and of which device; `is_of_device`: of this one.
`has_vlan`: whether a device takes its VLAN; null without a VLAN.
"""

import struct
from typing import Any

from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import BadQuestion, Json, text
from netconsole_collector.questions.net.rtnetlink import Interface, RouteSocket, family_of, mac_text
from netconsole_collector.questions.within import within

_ADDRESS, _LINK, _INFO, _INFO_KIND, _INFO_DATA, _VLAN_ID = 1, 5, 18, 1, 2, 1


def answer(arguments: Json) -> Any:
    """Of a frame to ``target`` with ``target_mac`` and ``vlan`` (0: none) that came in by ``device``."""
    device, target, mac = (text(arguments, name) for name in ("device", "target", "target_mac"))
    vlan = arguments.get("vlan", 0)
    if not isinstance(vlan, int):
        raise BadQuestion("vlan: expected a whole number")
    found = within(arguments, lambda: _looked_up(device, target, mac, vlan))
    found["is_senders"] = bool(mac) and mac == arguments.get("source_mac")
    return found


def _looked_up(device: str, target: str, mac: str, vlan: int) -> Json:
    with RouteSocket() as routes:
        link = routes.link(device)
        own_mac = mac_text(link.values.get(_ADDRESS, b"")) if link is not None else None
        index = routes.own_addresses(family_of(target)).get(target)
        of = routes.link_at(index) if index is not None else None
        has_vlan = any(_is_vlan(one, link, vlan) for one in routes.links()) if vlan and link is not None else None
    return {
        "own_mac": own_mac,
        "mac_matches": own_mac == mac if own_mac and mac else None,
        "is_own": index is not None,
        "is_of_device": index is not None and link is not None and index == link.number,
        "own_device": of.name if of is not None else None,
        "has_vlan": has_vlan,
    }


def _is_vlan(one: Interface, below: Interface, vlan: int) -> bool:
    """Whether a device takes a VLAN off another one (drivers/net: rtnl_link_ops of kind "vlan")."""
    info = dict(attributes(one.values.get(_INFO, b""), 0))
    data = dict(attributes(info.get(_INFO_DATA, b""), 0))
    is_tag = data.get(_VLAN_ID) == struct.pack("=H", vlan)
    return info.get(_INFO_KIND, b"").rstrip(b"\0") == b"vlan" and is_tag and one.whole(_LINK) == below.number
