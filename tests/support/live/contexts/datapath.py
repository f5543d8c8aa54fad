"""A switch of Open vSwitch's kernel datapath, with a link and its own port."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.ovs_types import ACTIONS, ATTRIBUTES, DATAPATH, VPORT
from tests.support.live.contexts.packets import MTU, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

Attribute: TypeAlias = "tuple[str, bytes]"
BUCKETS = 1024
"""DP_VPORT_HASH_BUCKETS of net/openvswitch/datapath.h."""
TEXT = 256
"""Bytes of the module's code."""
CALL = 0xE8
LINK_HEADER = 14
LINK, OWN = "a-link-of-a-vm", "br0"
LINK_PORT, OTHER_PORT = 3, 3 + BUCKETS
"""Two ports of one place in the table."""


class Datapath(MadeUpHost):
    """A switch with a link and its own port, and a device that is none of its ports."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.heads = self.memory.keep(bytes(8 * BUCKETS))
        self.path = self.memory.keep(bytes(DATAPATH["bytes"]))
        self._word(self.path + DATAPATH["ports"], self.heads)
        nets = self.net(NETNS), self.net(OTHER_NETNS)
        limits = {"mtu": MTU, "hard_header_len": LINK_HEADER}
        self.link_ = self.device(LINK, nets[0], 3, limits)
        self.own = self.memory.make("net_device", {"name": OWN.encode(), "nd_net.net": nets[1], **limits}, room=64)
        self.none = self.device("eth9", nets[0], 9)
        self.ports = [self.port(LINK_PORT, self.link_), self.port(OTHER_PORT, self.own)]
        self.memory.change("net_device", self.link_, {"rx_handler_data": self.ports[0]})
        self._word(self.own + place_of("net_device", "priv")[0], self.ports[1])
        self.chain_ports(LINK_PORT, self.ports)
        self.chain_ports(0, [self.port(BUCKETS, self.none), self.port(0, self.own)])
        self.text = self.memory.keep(bytes(TEXT))
        self.probe.running._maps.write("nc_module_text", struct.pack("=2Q", self.text, self.text + TEXT))

    def _word(self, address: int, value: int) -> None:
        self.memory.put(address, value.to_bytes(8, sys.byteorder))

    def port(self, number: int, device: int) -> int:
        port = self.memory.keep(bytes(VPORT["bytes"]))
        self._word(port + VPORT["dev"], device)
        self._word(port + VPORT["dp"], self.path)
        self.memory.put(port + VPORT["port_no"], number.to_bytes(2, sys.byteorder))
        return port

    def chain_ports(self, bucket: int, ports: Sequence[int]) -> None:
        nodes = [port + VPORT["dp_hash_node"] for port in ports]
        self._word(self.heads + 8 * bucket, nodes[0])
        for node, following in zip(nodes, [*nodes[1:], 0], strict=True):
            self._word(node, following)

    def actions(self, *attributes: Attribute) -> int:
        content = b""
        for kind, value in attributes:
            content += struct.pack("=HH", 4 + len(value), ATTRIBUTES[kind]) + value.ljust(
                -(-len(value) // 4) * 4, b"\0"
            )
        actions = self.memory.keep(bytes(ACTIONS["actions"]) + content)
        self.memory.put(actions + ACTIONS["actions_len"], len(content).to_bytes(4, sys.byteorder))
        return actions

    def call_at(self, place: int, function: int) -> int:
        """The address to which a call returns that lies at this place of the code, of this function of the module."""
        location = self.text + place + 5
        distance = self.text + function - location
        self.memory.put(self.text + place, bytes([CALL]) + struct.pack("=i", distance))
        return location

    def freed(self, skb: int, location: int, why: int) -> None:
        self.probe.run("freed", skb, location, why)

    def rows(self, *labels: str) -> dict[Any, int]:
        self.probe.read()
        return {tuple(row[one] for one in labels): row["count"] for row in self.probe.rows("drops")}
