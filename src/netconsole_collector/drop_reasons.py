"""Drop reasons: their names from the running kernel's own enums, and what a reason means to an operator.

enum skb_drop_reason is the core's (5.17). From 6.4 the high 16 bits are a subsystem (enum skb_drop_reason_subsys),
whose own reasons are in an enum of its module, with the subsystem in the high bits of each value.
"""

import re
from typing import Dict, Optional

from netconsole_collector import btf as b
from netconsole_collector.btf import Btf

BENIGN, SUSPICIOUS, UNKNOWN = "benign", "suspicious", "unknown"
KERNEL, INFERRED = "kernel", "inferred"

_SUBSYSTEM_SHIFT = 16
MODULES = ["openvswitch", "mac80211"]
"""Modules that bring drop reasons of their own."""
_CORE_PREFIX = re.compile(r"^SKB_DROP_REASON_")
_SUBSYSTEM_PREFIX = re.compile(r"^SKB_DROP_REASON_SUBSYS_")
_RX_PREFIX = re.compile(r"^(?:__)?RX_DROP_")
_SUBSYSTEM_ENUMS = ("ovs_drop_reason", "mac80211_drop_reason", "___mac80211_drop_reason")

_BENIGN = """
NOT_DROPPED_YET CONSUMED NO_SOCKET NETFILTER_DROP OTHERHOST SOCKET_FILTER UNHANDLED_PROTO UNICAST_IN_L2_MULTICAST
TCP_OLD_DATA TCP_OLD_ACK TCP_OLD_SEQUENCE TCP_RFC7323_PAWS TCP_RFC7323_PAWS_ACK TCP_CLOSE TCP_ABORT_ON_CLOSE TCP_RESET
TCP_FASTOPEN TCP_FLAGS TCP_OVERWINDOW TCP_OFO_DROP IGMP_QUERY NEIGH_DEAD BPF_CGROUP_EGRESS TC_EGRESS TC_INGRESS XDP
QDISC_CONGESTED TAP_FILTER TUN_FILTER IPV6DISABLED L2_DISCARD LOCAL_MAC DEV_READY QUEUE_PURGE
"""
"""Nothing is wrong with the host: no listener, connection teardown, duplicates, somebody's own filter.

Taken from the comments of include/net/dropreason-core.h. A name that is not listed here or below is unknown."""

_SUSPICIOUS = """
NOT_SPECIFIED PKT_TOO_SMALL PKT_TOO_BIG TCP_CSUM UDP_CSUM ICMP_CSUM IP_CSUM IP_INHDR IP_RPFILTER XFRM_POLICY
IP_NOPROTO PROTO_MEM SOCKET_RCVBUFF SOCKET_BACKLOG TCP_ZEROWINDOW TCP_MD5NOTFOUND TCP_MD5UNEXPECTED TCP_MD5FAILURE
TCP_AOFAILURE TCP_INVALID_SEQUENCE TCP_INVALID_SYN TCP_INVALID_ACK_SEQUENCE TCP_TOO_OLD_ACK TCP_ACK_UNSENT_DATA
TCP_MINTTL TCP_OFOMERGE IP_OUTNOROUTES IP_INNOROUTES IP_INADDRERRORS IP_LOCAL_SOURCE IP_INVALID_SOURCE IP_LOCALNET
IP_INVALID_DEST NEIGH_CREATEFAIL NEIGH_FAILED NEIGH_QUEUEFULL QDISC_DROP QDISC_OVERLIMIT QDISC_MAX_DROPPED
FQ_BAND_LIMIT FQ_HORIZON_LIMIT FQ_FLOW_LIMIT CAKE_FLOOD BLACKHOLE CPU_BACKLOG SKB_CSUM SKB_GSO_SEG SKB_UCOPY_FAULT
DEV_HDR NOMEM HDR_TRUNC FULL_RING DUP_FRAG FRAG_REASM_TIMEOUT FRAG_TOO_FAR IP_TUNNEL_ECN TUNNEL_TXINFO
VXLAN_INVALID_HDR VXLAN_VNI_NOT_FOUND VXLAN_NO_REMOTE MAC_INVALID_SOURCE VXLAN_ENTRY_EXISTS NO_TX_TARGET
ARP_PVLAN_DISABLE MAC_IEEE_MAC_CONTROL BRIDGE_INGRESS_STP_STATE TCP_LISTEN_OVERFLOW INVALID_PROTO SECURITY_HOOK
CAN_RX_INVALID_FRAME PFMEMALLOC DUALPI2_STEP_DROP PSP_INPUT PSP_OUTPUT
"""

_INFERRED: Dict[str, Optional[str]] = {
    "__udp4_lib_rcv": "NO_SOCKET",
    "__udp6_lib_rcv": "NO_SOCKET",
    "udp_queue_rcv_one_skb": "SOCKET_RCVBUFF",
    "__udp_queue_rcv_skb": "SOCKET_RCVBUFF",
    "__udp_enqueue_schedule_skb": "SOCKET_RCVBUFF",
    "sock_queue_rcv_skb": "SOCKET_RCVBUFF",
    "tcp_v4_rcv": None,
    "tcp_v6_rcv": None,
    "__dev_queue_xmit": "QDISC_DROP",
    "__dev_xmit_skb": "QDISC_DROP",
    "enqueue_to_backlog": "CPU_BACKLOG",
    "nf_hook_slow": "NETFILTER_DROP",
    "ip_rcv_core": "IP_INHDR",
    "ip_rcv_core.isra.0": "IP_INHDR",
    "ip_error": "IP_INNOROUTES",
    "unix_dgram_sendmsg": None,
    "tun_net_xmit": "FULL_RING",
}
"""Function that drops → reason, for kernels that give none (before 5.17). A guess from where it happened."""

_CLASSES = dict.fromkeys(_BENIGN.split(), BENIGN)
_CLASSES.update(dict.fromkeys(_SUSPICIOUS.split(), SUSPICIOUS))


def from_btf(btf: Btf) -> Dict[str, str]:
    """Value (as decimal text: it travels as JSON) → short name; empty on kernels that have no drop reasons.

    A subsystem's value without a name of its own is found under its high 16 bits: "subsystem:1" → "mac80211".
    """
    names: Dict[str, str] = {}
    for enum in btf.named("skb_drop_reason", (b.ENUM, b.ENUM64))[:1]:
        for name, value in btf.enumerators(enum):
            if not name.endswith(("_MAX", "_MASK")):
                names[str(value)] = _CORE_PREFIX.sub("", name)
    for enum in btf.named("skb_drop_reason_subsys", (b.ENUM, b.ENUM64))[:1]:
        for name, value in btf.enumerators(enum):
            names["subsystem:{}".format(value)] = _SUBSYSTEM_PREFIX.sub("", name).lower()
    for title in _SUBSYSTEM_ENUMS:
        for enum in btf.named(title, (b.ENUM, b.ENUM64)):
            for name, value in btf.enumerators(enum):
                if value >> _SUBSYSTEM_SHIFT and not name.endswith(("_MAX", "_LAST")):
                    names.setdefault(str(value & 0xFFFFFFFF), _RX_PREFIX.sub("", name))
    return names


def describe(names: Dict[str, str], reason: int, location: Optional[str]) -> Dict[str, str]:
    """The labels of a reason: ``reason``, ``class`` and ``provenance``.

    Without names (a kernel before 5.17) the reason is inferred from the function that dropped, else "unknown".
    """
    core_reasons = any(not key.startswith("subsystem") for key in names)
    if not core_reasons:
        inferred = _INFERRED.get(location or "")
        return {
            "reason": inferred or "unknown",
            "class": _CLASSES.get(inferred or "", UNKNOWN),
            "provenance": INFERRED,
        }
    name = names.get(str(reason))
    if name is None and reason >> _SUBSYSTEM_SHIFT:
        subsystem = names.get("subsystem:{}".format(reason >> _SUBSYSTEM_SHIFT), str(reason >> _SUBSYSTEM_SHIFT))
        name = "{} reason {}".format(subsystem, reason & 0xFFFF)
    if name is None:
        name = "reason {}".format(reason)
    return {"reason": name, "class": _class(name, reason), "provenance": KERNEL}


def _class(name: str, reason: int) -> str:
    if reason >> _SUBSYSTEM_SHIFT:  # openvswitch names its own: an explicit drop action is somebody's rule
        return BENIGN if name in ("OVS_DROP_EXPLICIT", "OVS_DROP_LAST_ACTION") else SUSPICIOUS
    return _CLASSES.get(name, UNKNOWN)
