"""Macros of the kernel: BTF does not have them, because a #define is not a type. Only those that are used are written.

Values are those of include/uapi/linux and include/linux. They are ABI: the same on every kernel and architecture.
"""

from typing import Dict, Iterable

MACROS = """
ETH_ALEN 6
ETH_HLEN 14
VLAN_HLEN 4
VLAN_VID_MASK 0x0fff
VLAN_PRIO_SHIFT 13
ETH_P_IP 0x0800
ETH_P_ARP 0x0806
ETH_P_RARP 0x8035
ETH_P_8021Q 0x8100
ETH_P_8021AD 0x88A8
ETH_P_IPV6 0x86DD
ETH_P_MPLS_UC 0x8847
ETH_P_MPLS_MC 0x8848
ETH_P_PPP_SES 0x8864
ETH_P_PAUSE 0x8808
ETH_P_SLOW 0x8809
ETH_P_LLDP 0x88CC
ETH_P_TEB 0x6558
ETH_P_1588 0x88F7
ETH_P_ALL 0x0003
ETH_P_802_3_MIN 0x0600
IP_CE 0x8000
IP_DF 0x4000
IP_MF 0x2000
IP_OFFSET 0x1FFF
ICMP_ECHOREPLY 0
ICMP_DEST_UNREACH 3
ICMP_PORT_UNREACH 3
ICMP_FRAG_NEEDED 4
ICMP_REDIRECT 5
ICMP_ECHO 8
ICMP_TIME_EXCEEDED 11
ICMP_PARAMETERPROB 12
ICMPV6_DEST_UNREACH 1
ICMPV6_PKT_TOOBIG 2
ICMPV6_TIME_EXCEED 3
ICMPV6_ECHO_REQUEST 128
ICMPV6_ECHO_REPLY 129
NDISC_ROUTER_SOLICITATION 133
NDISC_ROUTER_ADVERTISEMENT 134
NDISC_NEIGHBOUR_SOLICITATION 135
NDISC_NEIGHBOUR_ADVERTISEMENT 136
IPPROTO_HOPOPTS 0
IPPROTO_ROUTING 43
IPPROTO_FRAGMENT 44
IPPROTO_ICMPV6 58
IPPROTO_NONE 59
IPPROTO_DSTOPTS 60
NEXTHDR_HOP 0
NEXTHDR_TCP 6
NEXTHDR_UDP 17
NEXTHDR_ROUTING 43
NEXTHDR_FRAGMENT 44
NEXTHDR_AUTH 51
NEXTHDR_ICMP 58
NEXTHDR_NONE 59
NEXTHDR_DEST 60
AF_UNSPEC 0
AF_UNIX 1
AF_INET 2
AF_INET6 10
AF_NETLINK 16
AF_PACKET 17
AF_VSOCK 40
PF_INET 2
PF_INET6 10
IFNAMSIZ 16
TASK_COMM_LEN 16
PACKET_HOST 0
PACKET_BROADCAST 1
PACKET_MULTICAST 2
PACKET_OTHERHOST 3
PACKET_OUTGOING 4
PACKET_LOOPBACK 5
CHECKSUM_NONE 0
CHECKSUM_UNNECESSARY 1
CHECKSUM_COMPLETE 2
CHECKSUM_PARTIAL 3
ARPHRD_ETHER 1
ARPHRD_LOOPBACK 772
ARPHRD_NONE 0xFFFE
ARPOP_REQUEST 1
ARPOP_REPLY 2
TC_H_MAJ_MASK 0xFFFF0000U
TC_H_MIN_MASK 0x0000FFFFU
TC_H_MAJ(h) ((h)&TC_H_MAJ_MASK)
TC_H_MIN(h) ((h)&TC_H_MIN_MASK)
TC_H_MAKE(maj,min) (((maj)&TC_H_MAJ_MASK)|((min)&TC_H_MIN_MASK))
TC_H_ROOT 0xFFFFFFFFU
TC_H_INGRESS 0xFFFFFFF1U
TC_H_CLSACT 0xFFFFFFF1U
TC_ACT_UNSPEC (-1)
TC_ACT_OK 0
TC_ACT_SHOT 2
TC_ACT_STOLEN 4
TC_ACT_REDIRECT 7
NET_XMIT_SUCCESS 0x00
NET_XMIT_DROP 0x01
NET_XMIT_CN 0x02
NET_XMIT_MASK 0x0f
NET_RX_SUCCESS 0
NET_RX_DROP 1
NF_DROP 0
NF_ACCEPT 1
NF_STOLEN 2
NF_QUEUE 3
NF_REPEAT 4
IFF_UP 1
IFF_LOOPBACK 8
IFF_PROMISC 0x100
IFF_TUN 0x0001
IFF_TAP 0x0002
TUN_MSG_PTR 2
EPOLLIN 1
NUD_INCOMPLETE 0x01
NUD_REACHABLE 0x02
NUD_STALE 0x04
NUD_DELAY 0x08
NUD_PROBE 0x10
NUD_FAILED 0x20
EPERM 1
ENOENT 2
EINTR 4
EIO 5
EAGAIN 11
ENOMEM 12
EFAULT 14
EBUSY 16
EEXIST 17
ENODEV 19
EINVAL 22
ENOSPC 28
EPIPE 32
EMSGSIZE 90
EAFNOSUPPORT 97
EADDRINUSE 98
ENETDOWN 100
ENETUNREACH 101
ECONNABORTED 103
ECONNRESET 104
ENOBUFS 105
ETIMEDOUT 110
ECONNREFUSED 111
EHOSTUNREACH 113
EINPROGRESS 115
NSEC_PER_SEC 1000000000L
NSEC_PER_MSEC 1000000L
NSEC_PER_USEC 1000L
likely(x) __builtin_expect(!!(x), 1)
unlikely(x) __builtin_expect(!!(x), 0)
ARRAY_SIZE(x) (sizeof(x) / sizeof((x)[0]))
min(a,b) ((a) < (b) ? (a) : (b))
max(a,b) ((a) > (b) ? (a) : (b))
offsetof(t,m) __builtin_offsetof(t, m)
container_of(p,t,m) ((t *)((char *)(p) - __builtin_offsetof(t, m)))
BIT(n) (1UL << (n))
READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
WRITE_ONCE(x,v) (*(volatile typeof(x) *)&(x) = (v))
ntohs bpf_ntohs
htons bpf_htons
ntohl bpf_ntohl
htonl bpf_htonl
be16_to_cpu bpf_ntohs
be32_to_cpu bpf_ntohl
be64_to_cpu bpf_ntohll
cpu_to_be16 bpf_htons
cpu_to_be32 bpf_htonl
"""
"""The byte order helpers take no parameters on purpose. In the argument of a macro with parameters BCC does not rewrite
the read of a member, and the verifier refuses the direct load. For the same reason a probe has no likely(skb->x)."""

ENUMERATORS = """
IPPROTO_IP 0
IPPROTO_ICMP 1
IPPROTO_IGMP 2
IPPROTO_IPIP 4
IPPROTO_TCP 6
IPPROTO_UDP 17
IPPROTO_IPV6 41
IPPROTO_GRE 47
IPPROTO_ESP 50
IPPROTO_AH 51
IPPROTO_SCTP 132
IPPROTO_UDPLITE 136
IPPROTO_RAW 255
TCP_ESTABLISHED 1
TCP_SYN_SENT 2
TCP_SYN_RECV 3
TCP_FIN_WAIT1 4
TCP_FIN_WAIT2 5
TCP_TIME_WAIT 6
TCP_CLOSE 7
TCP_CLOSE_WAIT 8
TCP_LAST_ACK 9
TCP_LISTEN 10
TCP_CLOSING 11
TCP_NEW_SYN_RECV 12
HI_SOFTIRQ 0
TIMER_SOFTIRQ 1
NET_TX_SOFTIRQ 2
NET_RX_SOFTIRQ 3
NETDEV_TX_OK 0x00
NETDEV_TX_BUSY 0x10
"""
"""Enumerators of anonymous enums that the BTF of a kernel may lack. A value from BTF comes first."""


def _table(text: str) -> Dict[str, str]:
    """Name (without parameters) → the text after #define."""
    lines = [line for line in text.splitlines() if line]
    return {line.replace("(", " ").split(" ", 1)[0]: line for line in lines}


_MACROS = _table(MACROS)
_ENUMERATORS = _table(ENUMERATORS)


def define(names: Iterable[str]) -> str:
    """#define lines of these names, and of the macros that they use. Unknown names are left out."""
    wanted, pending = set(), set(names)
    while pending:
        name = pending.pop()
        if name in _MACROS and name not in wanted:
            wanted.add(name)
            pending.update(word for word in _MACROS if word in _MACROS[name] and word != name)
    return "".join("#ifndef {0}\n#define {1}\n#endif\n".format(name, _MACROS[name]) for name in sorted(wanted))


def define_missing_enumerators(names: Iterable[str]) -> str:
    """#define lines of those of these enumerators that have a value here."""
    return "".join("#define {}\n".format(_ENUMERATORS[name]) for name in sorted(set(names) & set(_ENUMERATORS)))
