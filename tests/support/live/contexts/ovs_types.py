"""Open vSwitch's datapath, as far as ovs_drops names it, in a layout of our own (net/openvswitch, of Linux 6.7)."""

from __future__ import annotations

import functools
import socket
import struct

from tests.support.live.contexts.hooks import ModuleTypes
from tests.support.live.contexts.memory import enumerator
from tests.support.live.contexts.packets import IPV6, TARGET, VLAN, Flow

VPORT = {"dev": 8, "dp": 16, "dp_hash_node": 32, "port_no": 48, "bytes": 56}
DATAPATH = {"ports": 24, "bytes": 32}
ACTIONS = {"actions_len": 12, "actions": 16}
ATTRIBUTES = {"OUTPUT": 1, "USERSPACE": 2, "SET": 3, "SAMPLE": 6, "RECIRC": 7, "CT": 12, "METER": 19, "CLONE": 20}
ATTRIBUTES |= {"CHECK_PKT_LEN": 21}
"""OVS_ACTION_ATTR_… of include/uapi/linux/openvswitch.h."""
KEY = {"phy": 8, "eth": 76, "recirc_id": 100, "ip": 104, "tp": 108, "ipv4": 116, "ipv6": 124}
KEY_BYTES = 160
FLOW = {"id": 16, "key": 32}
"""Where sw_flow_key and sw_flow have their members here."""
MISS, FOR_USER_SPACE = 1, 2
COMMAND_AT = 24
"""OVS_PACKET_CMD_…, and where dp_upcall_info has it."""
LATER = 2
"""OVS_FRAG_TYPE_LATER."""
REASONS = ("LAST_ACTION", "ACTION_ERROR", "EXPLICIT", "EXPLICIT_WITH_ERROR", "METER")
"""OVS_DROP_… of net/openvswitch/drop.h, the first one with the number 1."""


@functools.cache
def reasons() -> dict[str, int]:
    """With the number of the subsystem that this kernel gives to Open vSwitch."""
    subsystem = enumerator("skb_drop_reason_subsys", "SKB_DROP_REASON_SUBSYS_OPENVSWITCH") << 16
    return {name: subsystem | number for number, name in enumerate(REASONS, 1)}


def datapath(types: ModuleTypes) -> None:
    pointer, byte = types.pointer(0), types.integer("unsigned char", 1)
    short, number = types.integer("unsigned short", 2), types.integer("unsigned int", 4)
    types.enum("ovs_action_attr", [(f"OVS_ACTION_ATTR_{name}", value) for name, value in ATTRIBUTES.items()])
    types.enum("ovs_drop_reason", [(f"OVS_DROP_{name}", value) for name, value in reasons().items()])
    types.enum("ovs_frag_type", [("OVS_FRAG_TYPE_NONE", 0), ("OVS_FRAG_TYPE_FIRST", 1), ("OVS_FRAG_TYPE_LATER", 2)])
    head, node = types.pointer(types.kernels("hlist_head")), types.kernels("hlist_node")
    device = types.pointer(types.kernels("net_device"))
    path = types.pointer(types.record("datapath", DATAPATH["bytes"], [("ports", head, DATAPATH["ports"] * 8)]))
    kinds = {"dev": device, "dp": path, "dp_hash_node": node, "port_no": short}
    port = types.record("vport", VPORT["bytes"], [(name, kinds[name], VPORT[name] * 8) for name in kinds])
    types.record("internal_dev", 8, [("vport", types.pointer(port), 0)])
    types.record("ovs_skb_cb", 8, [("input_vport", types.pointer(port), 0)])
    list_of = types.array(types.kernels("nlattr"), 0)
    members = [("actions_len", number, ACTIONS["actions_len"] * 8), ("actions", list_of, ACTIONS["actions"] * 8)]
    types.record("sw_flow_actions", ACTIONS["actions"], [("rcu", pointer, 0), *members])
    key = _flow_key(types, byte, short, number)
    flow_id = types.record("sw_flow_id", FLOW["key"] - FLOW["id"], [("ufid_len", number, 0)])
    types.record("sw_flow", FLOW["key"] + KEY_BYTES, [("id", flow_id, FLOW["id"] * 8), ("key", key, FLOW["key"] * 8)])
    types.enum("ovs_packet_cmd", [("OVS_PACKET_CMD_MISS", MISS), ("OVS_PACKET_CMD_ACTION", FOR_USER_SPACE)])
    types.record("dp_upcall_info", COMMAND_AT + 8, [("actions", pointer, 64), ("cmd", byte, COMMAND_AT * 8)])


def _flow_key(types: ModuleTypes, byte: int, short: int, number: int) -> int:
    mac, address6 = types.array(byte, 6), types.kernels("in6_addr")
    tag = types.record("vlan_head", 4, [("tpid", short, 0), ("tci", short, 16)])
    phy = types.record("", 12, [("priority", number, 0), ("skb_mark", number, 32), ("in_port", short, 64)])
    members = [("src", mac, 0), ("dst", mac, 48), ("vlan", tag, 96), ("cvlan", tag, 128), ("type", short, 160)]
    eth = types.record("", 22, members)
    ip = types.record("", 4, [("proto", byte, 0), ("tos", byte, 8), ("ttl", byte, 16), ("frag", byte, 24)])
    tp = types.record("", 6, [("src", short, 0), ("dst", short, 16), ("flags", short, 32)])
    ends = types.record("", 8, [("src", number, 0), ("dst", number, 32)])
    ends6 = types.record("", 32, [("src", address6, 0), ("dst", address6, 128)])
    v4, v6 = types.record("", 8, [("addr", ends, 0)]), types.record("", 32, [("addr", ends6, 0)])
    kinds = {"phy": phy, "eth": eth, "recirc_id": number, "ip": ip, "tp": tp, "ipv4": v4, "ipv6": v6}
    return types.record("sw_flow_key", KEY_BYTES, [(name, kind, KEY[name] * 8) for name, kind in kinds.items()])


def flow_key(flow: Flow, in_port: int = 3, recirculation: int = 0, fragment: int = 0, protocol: int = -1) -> bytes:
    """What the datapath's parser makes of a packet. Without a protocol it could not read the headers."""
    macs = bytes.fromhex((flow.mac + TARGET).replace(":", ""))
    vlan = struct.pack(">HH", VLAN, flow.vlan | 0x1000) if flow.vlan else bytes(4)
    family = socket.AF_INET6 if flow.ethertype == IPV6 else socket.AF_INET
    ends = socket.inet_pton(family, flow.source) + socket.inet_pton(family, flow.target)
    number = flow.protocol if protocol < 0 else protocol
    parts = {
        "phy": struct.pack("=IIH", 0, 0, in_port),
        "eth": macs + vlan + bytes(4) + struct.pack(">H", flow.ethertype),
        "recirc_id": struct.pack("=I", recirculation),
        "ip": bytes([number, 0, 64, fragment]),
        "tp": struct.pack(">HH", flow.source_port, flow.target_port),
        "ipv6" if flow.ethertype == IPV6 else "ipv4": ends if number else bytes(len(ends)),
    }
    key = bytearray(KEY_BYTES)
    for name, value in parts.items():
        key[KEY[name] : KEY[name] + len(value)] = value
    return bytes(key)
