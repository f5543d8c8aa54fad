"""Drop reasons: their names from the running kernel's own enums, and what a reason means to an operator.

enum skb_drop_reason (5.17) has the reasons of the core. Since 6.4 the high 16 bits of a reason are a subsystem (enum
skb_drop_reason_subsys). Its reasons are in an enum of its module, with the subsystem in the high bits of each value.
"""

import re
from typing import Dict, Optional

from netconsole_collector.names.implied_labels import BROUGHT
from netconsole_collector.types import btf as b
from netconsole_collector.types.btf import Btf

BENIGN, SUSPICIOUS, UNKNOWN = "benign", "suspicious", "unknown"
KERNEL, INFERRED = "kernel", "inferred"

_SUBSYSTEM_SHIFT = 16
MODULES = ["openvswitch", "mac80211"]
"""Modules that bring drop reasons of their own."""
_CORE_PREFIX = re.compile(r"^SKB_DROP_REASON_")
_SUBSYSTEM_PREFIX = re.compile(r"^SKB_DROP_REASON_SUBSYS_")
_RX_PREFIX = re.compile(r"^_*RX_DROP_")
_CORE_ENUMS = ("skb_drop_reason", "skb_drop_reason_subsys")
_SUBSYSTEM_ENUMS = ("ovs_drop_reason", "mac80211_drop_reason", "___mac80211_drop_reason", "qdisc_drop_reason")
"""The last one (7.3) is told by a tracepoint of its own, qdisc_drop. kfree_skb has QDISC_DROP in its place, where the
packets of a queue are freed (__tcf_kfree_skb_list). Should one come by kfree_skb, it has its name."""

ENUMS = {*_CORE_ENUMS, *_SUBSYSTEM_ENUMS}
"""All that :func:`from_btf` looks for."""

_BENIGN = """
BPF_CGROUP_EGRESS IPV6DISABLED LOCAL_MAC NEIGH_DEAD NETFILTER_DROP NO_SOCKET OTHERHOST QUEUE_PURGE SKB_CONSUMED
SKB_NOT_DROPPED_YET SOCKET_CLOSE SOCKET_FILTER TAP_FILTER TAP_TXFILTER TCP_ABORT_ON_DATA TCP_CLOSE TCP_FASTOPEN
TCP_FLAGS TCP_OFO_DROP TCP_OLD_ACK TCP_OLD_DATA TCP_OLD_SEQUENCE TCP_RESET TCP_RFC7323_PAWS TCP_RFC7323_PAWS_ACK
TCP_RFC7323_TW_PAWS TC_EGRESS TC_INGRESS UNHANDLED_PROTO UNICAST_IN_L2_MULTICAST UNIX_DISCONNECT UNIX_SKIP_OOB XDP

OVS_DROP_EXPLICIT OVS_DROP_LAST_ACTION

MONITOR U_AP_RX_GROUPCAST U_CTRL_FRAME U_DUP U_MESH_NOT_FORWARDING U_MESH_RMC U_NULL_DATA U_UNHANDLED_DEAUTH
U_UNHANDLED_DISASSOC U_UNHANDLED_MGMT U_UNHANDLED_MGMT_STYPE U_UNHANDLED_PREQ U_UNKNOWN_MCAST_ACTION
"""
"""Nothing is wrong with the host: no listener, connection teardown, duplicates, somebody's own filter or drop rule. Of
a radio (mac80211) also what every network in reach sends, and frames that carry no data.

Taken from the comments of include/net/dropreason-core.h and dropreason-qdisc.h, and from where net/openvswitch and
net/mac80211 (rx.c) give a reason. A name that is listed neither here nor below is unknown: test_drop_reasons_of_kernels
tells those that the lab's kernels have."""

_SUSPICIOUS = """
ARP_PVLAN_DISABLE BRIDGE_INGRESS_STP_STATE CAKE_FLOOD CANFD_RX_INVALID_FRAME CANXL_RX_INVALID_FRAME
CAN_RX_INVALID_FRAME CPU_BACKLOG DEV_HDR DEV_READY DUALPI2_STEP_DROP DUP_FRAG FQ_BAND_LIMIT FQ_FLOW_LIMIT
FQ_HORIZON_LIMIT FRAG_REASM_TIMEOUT FRAG_TOO_FAR FULL_RING HDR_TRUNC ICMP_CSUM INVALID_PROTO IPV6_BAD_EXTHDR
IPV6_NDISC_BAD_CODE IPV6_NDISC_BAD_OPTIONS IPV6_NDISC_FRAG IPV6_NDISC_HOP_LIMIT IPV6_NDISC_NS_OTHERHOST IP_CSUM
IP_INADDRERRORS IP_INHDR IP_INNOROUTES IP_INVALID_DEST IP_INVALID_SOURCE IP_LOCALNET IP_LOCAL_SOURCE IP_NOPROTO
IP_OUTNOROUTES IP_RPFILTER IP_TUNNEL_ECN MAC_IEEE_MAC_CONTROL MAC_INVALID_SOURCE NEIGH_CREATEFAIL NEIGH_FAILED
NEIGH_HH_FILLFAIL NEIGH_QUEUEFULL NOMEM NOT_SPECIFIED NO_TX_TARGET PACKET_SOCK_ERROR PFMEMALLOC PKT_TOO_BIG
PKT_TOO_SMALL PROTO_MEM PSP_INPUT PSP_OUTPUT QDISC_CONGESTED QDISC_DROP QDISC_OVERLIMIT RECURSION_LIMIT SECURITY_HOOK
SKB_CSUM SKB_GSO_SEG SKB_UCOPY_FAULT SOCKET_BACKLOG SOCKET_RCVBUFF TCP_ACK_UNSENT_DATA TCP_AOFAILURE TCP_AOKEYNOTFOUND
TCP_AONOTFOUND TCP_AOUNEXPECTED TCP_AUTH_HDR TCP_CSUM TCP_INVALID_ACK_SEQUENCE TCP_INVALID_END_SEQUENCE
TCP_INVALID_SEQUENCE TCP_INVALID_SYN TCP_LISTEN_OVERFLOW TCP_MD5FAILURE TCP_MD5NOTFOUND TCP_MD5UNEXPECTED TCP_MINTTL
TCP_OFOMERGE TCP_OFO_QUEUE_PRUNE TCP_OVERWINDOW TCP_RFC7323_TSECR TCP_TOO_OLD_ACK TCP_ZEROWINDOW TC_CHAIN_NOTFOUND
TC_COOKIE_ERROR TC_RECLASSIFY_LOOP TUNNEL_TXINFO UDP_CSUM VXLAN_ENTRY_EXISTS VXLAN_INVALID_HDR VXLAN_VNI_NOT_FOUND
XFRM_POLICY

IPV6_TOO_MANY_EXTHDRS IPVLAN_MULTICAST_BACKLOG MACVLAN_BROADCAST_BACKLOG QDISC_BURST_DROP SKB_BAD_GSO

OVS_ACTION_FAILED OVS_DROP_ACTION_ERROR OVS_DROP_CONNTRACK OVS_DROP_DEFERRED_LIMIT OVS_DROP_EXPLICIT_WITH_ERROR
OVS_DROP_FRAG_INVALID_PROTO OVS_DROP_FRAG_L2_TOO_LONG OVS_DROP_IP_TTL OVS_DROP_METER OVS_DROP_RECURSION_LIMIT
OVS_FRAGMENT OVS_MALFORMED OVS_NO_PORT OVS_TOO_LARGE OVS_UPCALL_FAILED

QDISC_DROP_BAND_LIMIT QDISC_DROP_CONGESTED QDISC_DROP_FLOOD_PROTECTION QDISC_DROP_FLOW_LIMIT QDISC_DROP_GENERIC
QDISC_DROP_HORIZON_LIMIT QDISC_DROP_L4S_STEP_NON_ECN QDISC_DROP_MAXFLOWS QDISC_DROP_OVERLIMIT

M_BAD_BCN_KEYIDX M_BAD_MGMT_KEYIDX M_UNEXPECTED_4ADDR_FRAME UNUSABLE U_ACTION_UNKNOWN_SRC U_AMSDU_WITHOUT_DATA
U_BAD_4ADDR U_BAD_AMSDU U_BAD_AMSDU_CIPHER U_BAD_BCN_KEYIDX U_BAD_CIPHER U_BAD_KEY_COLOR U_BAD_MGMT_KEYIDX U_BAD_MMIE
U_BAR_OUTSIDE_SESSION U_DECRYPT_FAIL U_DEFRAG_MISMATCH U_DEFRAG_OVERFLOW U_EXPECTED_MGMT U_EXPECT_DEFRAG_PROT
U_INVALID_8023 U_KEY_TAINTED U_MALFORMED_ACTION U_MCAST_DEAUTH U_MCAST_DISASSOC U_MCAST_FRAGMENT U_MESH_A3_MISMATCH
U_MESH_A4_MISMATCH U_MESH_BAD_AE U_MESH_DS_BITS U_MESH_NO_A4 U_MESH_NO_TTL U_MESH_TTL_EXPIRED U_MESH_UNEXP_DATA
U_MESH_UNEXP_MGMT U_MESH_WRONG_ACTION U_MIC_FAIL U_MMIC_FAIL U_NONBCAST_BEACON U_NONSEQ_PN U_NOT_PORT_CONTROL U_NO_ICV
U_NO_IV U_NO_KEY_ID U_NO_LINK U_OOM U_PORT_CONTROL U_REJECTED_ACTION_RESPONSE U_REPLAY U_RUNT_ACTION U_RUNT_BAR
U_RUNT_DATA U_RUNT_MESH_DATA U_RUNT_MGMT U_SHORT_CCMP U_SHORT_CCMP_MIC U_SHORT_CMAC U_SHORT_CMAC256 U_SHORT_GCMP
U_SHORT_GCMP_MIC U_SHORT_GMAC U_SHORT_MMIC U_SHORT_TKIP U_SPURIOUS U_SPURIOUS_NOTIF U_TKIP_FAIL U_UNEXPECTED_4ADDR
U_UNEXPECTED_4ADDR_FRAME U_UNEXPECTED_EXT_FRAME U_UNEXPECTED_STA_4ADDR U_UNEXPECTED_VLAN_4ADDR U_UNEXPECTED_VLAN_MCAST
U_UNKNOWN_ACTION_REJECTED U_UNKNOWN_STA U_UNPROTECTED U_UNPROT_ACTION U_UNPROT_BEACON U_UNPROT_DUAL
U_UNPROT_MCAST_MGMT U_UNPROT_ROBUST_ACTION U_UNPROT_UCAST_MGMT U_UNPROT_UNICAST_PUB_ACTION U_WEP_DEC_FAIL
"""

_INFERRED: Dict[str, Optional[str]] = {
    "__udp4_lib_rcv": "NO_SOCKET",
    "__udp6_lib_rcv": "NO_SOCKET",
    "udp_queue_rcv_one_skb": "SOCKET_RCVBUFF",
    "__udp_queue_rcv_skb": "SOCKET_RCVBUFF",
    "__udp_enqueue_schedule_skb": "SOCKET_RCVBUFF",
    "sock_queue_rcv_skb": "SOCKET_RCVBUFF",
    "raw_rcv": "SOCKET_RCVBUFF",
    "raw_rcv_skb": "SOCKET_RCVBUFF",
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
    "tap_handle_frame": "FULL_RING",
}
"""Function that drops → reason, for kernels that give none (before 5.17). A guess from where it happened."""

_NO_REASON = "NOT_SPECIFIED"
_OVS_OWN = {0x7FFF0001: "OVS_DROP_LAST_ACTION", 0x7FFF0002: "OVS_DROP_METER", 0x7FFF0003: "OVS_TOO_LARGE"}
"""Reasons that the probe ovs_drops finds out itself before 6.7, by the names that the kernel has for them since."""
_OVS_INFERRED = {
    "ovs_vport_send": "OVS_TOO_LARGE",
    "ovs_fragment": "OVS_FRAGMENT",
    "do_output": "OVS_NO_PORT",
    "do_execute_actions": "OVS_ACTION_FAILED",
    "ovs_ct_execute": "OVS_DROP_CONNTRACK",
    "clone_execute": "OVS_DROP_DEFERRED_LIMIT",
    "ovs_execute_actions": "OVS_DROP_RECURSION_LIMIT",
    "ovs_dp_process_packet": "OVS_UPCALL_FAILED",
    "ovs_vport_receive": "OVS_MALFORMED",
}
"""Function of net/openvswitch → reason, where the kernel names none."""
_OVS_SENDS = ("do_output", "do_execute_actions")
"""Since 6.7 these functions say why they drop. A drop there without a reason was made by ovs_vport_send, which they
call: it ends with a jump into the function that frees, so the location is that of its caller."""

_OF_NO_NETWORK = re.compile(
    r"_*(?:unix_|vsock_|virtio_transport_|vhost_transport_|vmci_transport_|hvs_|ovs_(?:dp|vport|flow|meter|ct_limit)_cmd_)"
)
"""Functions of net/unix, and of net/vmw_vsock with its transports. The latter free every message that only controls a
connection, such as an update of credit, as if it were dropped (virtio_transport_recv_connected). And those by which
Open vSwitch answers its daemon: they free the answer that they have begun about a port or a flow that is not there."""
_FREED_WITH = (
    "skb_release_data",
    "udp_destruct_common",
    "udp_destruct_sock",
    "udpv6_destruct_sock",
    "inet_sock_destruct",
)
"""The first frees a packet's list of fragments (net/core/skbuff.c): what became of the packet is told by whoever freed
it. The others free what waited in a socket that is closed (net/ipv4/udp.c, af_inet.c)."""

_UNWANTED = (
    "ip6_mc_input",
    "ip_rcv_finish_core",
    "__udp4_lib_rcv",
    "__udp6_lib_rcv",
    "udp_rcv",
    "udpv6_rcv",
    "igmp_rcv",
    "icmpv6_rcv",
    "stp_pdu_rcv",
    "snap_rcv",
    "llc_rcv",
    "sk_stream_kill_queues",
    "skb_queue_purge",
    "tun_queue_purge",
    "inet_rtm_getroute",
    "inet6_rtm_getroute",
)
"""They free, without a reason, what nobody here wants, and what a healthy network is full of: multicasts to groups that
this host has not joined (the first two; in the second also martians, before 6.13), broadcasts and multicasts to a port
where nobody listens (since 7.3 in udp_rcv), frames of a protocol of bridges or of LLC, the last segment of each TCP
connection (6.1), what waits for a program that closes its tun device, and what stands for a packet while somebody asks
for its route (ip route get)."""

_CLASSES = dict.fromkeys(_BENIGN.split(), BENIGN)
_CLASSES.update(dict.fromkeys(_SUSPICIOUS.split(), SUSPICIOUS))
REASONS = tuple(_CLASSES)
"""All that this version knows, of any kernel."""


def from_btf(btf: Btf) -> Dict[str, str]:
    """Value (as decimal text, because it travels as JSON) → short name. Empty on kernels without drop reasons.

    Subsystems have names too: "subsystem:1" → "mac80211". They serve for values that have no name of their own.
    """
    names: Dict[str, str] = {}
    for enum in btf.named("skb_drop_reason", (b.ENUM, b.ENUM64))[:1]:
        for name, value in btf.enumerators(enum):
            if not name.endswith(("_MAX", "_MASK")):
                names[str(value)] = _CORE_PREFIX.sub("", name)
    for enum in btf.named("skb_drop_reason_subsys", (b.ENUM, b.ENUM64))[:1]:
        for name, value in btf.enumerators(enum):
            if name.endswith("_NUM"):
                continue
            names["subsystem:{}".format(value)] = _SUBSYSTEM_PREFIX.sub("", name).lower()
    for title in _SUBSYSTEM_ENUMS:
        for enum in btf.named(title, (b.ENUM, b.ENUM64)):
            for name, value in btf.enumerators(enum):
                short = _RX_PREFIX.sub("", name)
                is_mark = short.endswith(("_MAX", "_LAST")) or short.startswith("__")  # no reason of its own
                if value >> _SUBSYSTEM_SHIFT and not is_mark:
                    names.setdefault(str(value & 0xFFFFFFFF), short)
    return names


def class_of(name: str) -> str:
    """What a reason means to an operator."""
    return _CLASSES.get(name, UNKNOWN)


def values_of(names: Dict[str, str]) -> Dict[str, int]:
    """Name of a reason → value, of what :func:`from_btf` has found."""
    return {name: int(value) for value, name in names.items() if value.isdecimal()}


class DropReasons:
    """The drop reasons of one kernel, by the names that :func:`from_btf` has found there."""

    def __init__(self, names: Dict[str, str]) -> None:
        self._names = names
        self._has_core_reasons = any(not key.startswith("subsystem") for key in names)
        self._has_action_error = "OVS_DROP_ACTION_ERROR" in names.values()

    def labels(self, reason: int, location: Optional[str]) -> Dict[str, str]:
        """The reason of a drop, as ``reason``, and the labels that it brings.

        On a kernel without names (before 5.17) the reason is inferred from the function that dropped. What AF_UNIX
        and AF_VSOCK drop is benign: a message between processes of this host, or between it and a guest, is no packet,
        and who sent it is told. So are the fragments that a packet was put together from: they are freed with it, also
        when it was received well. And what a socket had not read when it was closed, and what a network sends to all.
        """
        found = self._labels(reason, location)
        # The compiler adds to some names: ip_rcv_finish_core.isra.0.
        is_unwanted = (location or "").partition(".")[0] in _UNWANTED and found["reason"] in (_NO_REASON, UNKNOWN)
        if location is not None and (is_unwanted or location in _FREED_WITH or _OF_NO_NETWORK.match(location)):
            found["class"] = BENIGN
        return found

    def _labels(self, reason: int, location: Optional[str]) -> Dict[str, str]:
        inferred = _OVS_OWN.get(reason) or self._inferred_for_ovs(reason, location)
        if inferred:
            return _described(inferred, class_of(inferred), INFERRED)
        if not self._has_core_reasons and not reason:
            inferred = _INFERRED.get(location or "")
            return _described(inferred or UNKNOWN, class_of(inferred or ""), INFERRED)
        name = self._name(reason)
        return _described(name, class_of(name), KERNEL)

    def _inferred_for_ovs(self, reason: int, location: Optional[str]) -> Optional[str]:
        """What a drop of Open vSwitch means where the kernel gives no reason of its own."""
        if reason >> _SUBSYSTEM_SHIFT or self._names.get(str(reason), _NO_REASON) != _NO_REASON:
            return None
        if location in _OVS_SENDS and self._has_action_error:
            return "OVS_TOO_LARGE"
        return _OVS_INFERRED.get(location or "")

    def _name(self, reason: int) -> str:
        name = self._names.get(str(reason))
        subsystem = reason >> _SUBSYSTEM_SHIFT
        if name is None and subsystem:
            title = self._names.get("subsystem:{}".format(subsystem), str(subsystem))
            return "{} reason {}".format(title, reason & 0xFFFF)
        return name if name is not None else "reason {}".format(reason)


def _described(reason: str, drop_class: str, provenance: str) -> Dict[str, str]:
    return dict(zip(("reason",) + BROUGHT["drop_reason"], (reason, drop_class, provenance)))
