"""Devices, queues, sockets and packets of a test's own, as the kernel keeps them."""

from __future__ import annotations

import socket
import struct
import sys
from dataclasses import dataclass

from tests.support.live.contexts.memory import KernelMemory, Members, place_of, size_of

HEADROOM = 64
ETHERNET = 14
MTU = 1500
IPV4, IPV6, ARP, VLAN = 0x0800, 0x86DD, 0x0806, 0x8100
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
TARGET, SENDER = "02:00:00:00:00:0b", "02:00:00:00:00:0a"
MACS = bytes.fromhex((TARGET + SENDER).replace(":", ""))
INDEX_HASH = 256
"""NETDEV_HASHENTRIES of include/linux/netdevice.h."""


@dataclass(frozen=True)
class Flow:
    """What a packet is of. A VLAN of 0 is none; ``mac`` is the sender's."""

    source: str = "192.0.2.1"
    target: str = "192.0.2.2"
    source_port: int = 1111
    target_port: int = 2222
    protocol: int = UDP
    vlan: int = 0
    mac: str = SENDER

    @property
    def ethertype(self) -> int:
        return IPV6 if ":" in self.source else IPV4

    def packet(self, payload: int = 20) -> bytes:
        """From the network header on; the transport header begins with the ports."""
        body = struct.pack(">HHHH", self.source_port, self.target_port, 8 + payload, 0) + bytes(payload)
        family = socket.AF_INET6 if self.ethertype == IPV6 else socket.AF_INET
        ends = socket.inet_pton(family, self.source) + socket.inet_pton(family, self.target)
        if self.ethertype == IPV6:
            return struct.pack(">IHBB", 6 << 28, len(body), self.protocol, 64) + ends + body
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, self.protocol, 0) + ends + body


class MadeUpHost:
    """Makes them in one memory. Whatever is not named is zero."""

    def __init__(self, memory: KernelMemory) -> None:
        self.memory = memory

    def net(self, inode: int) -> int:
        """A network namespace, with the table of its devices by index."""
        heads = self.memory.keep(bytes(8 * INDEX_HASH))
        return self.memory.make("net", {"ns.inum": inode, "dev_index_head": heads})

    def device(self, name: str, net: int, index: int = 1, members: Members | None = None) -> int:
        """A device with one queue and no queueing discipline (noqueue)."""
        device = self.memory.make(
            "net_device", {"name": name.encode(), "nd_net.net": net, "ifindex": index, **(members or {})}
        )
        queue = self.memory.make("netdev_queue", {"dev": device})
        self.memory.change("net_device", device, {"_tx": queue})
        self.discipline(device, enqueues=False)
        return device

    def link(self, name: str, net: int, index: int, kind: str = "") -> int:
        """A device of a kind as `ip -d link` shows it: tun, bridge …; without one, a NIC."""
        if not kind:
            return self.device(name, net, index, {"mtu": MTU, "dev.parent": net})
        words = self.memory.keep(kind.encode().ljust(16, b"\0"))
        ops = self.memory.make("rtnl_link_ops", {"kind": words})
        return self.device(name, net, index, {"mtu": MTU, "rtnl_link_ops": ops})

    def chain(self, net: int, devices: list[int]) -> None:
        """Devices whose indices fall into one place of the namespace's table, in this order."""
        (heads,) = self.memory.pointers("net", net, "dev_index_head")
        (index,) = self.memory.pointers("net_device", devices[0], "ifindex")
        node = place_of("net_device", "index_hlist")[0]
        nodes = [device + node for device in devices]
        self.memory.put(heads + index % INDEX_HASH * 8, nodes[0].to_bytes(8, sys.byteorder))
        for device, following in zip(devices, [*nodes[1:], 0], strict=True):
            self.memory.change("net_device", device, {"index_hlist.next": following})

    def discipline(self, device: int, enqueues: bool, of_queue: bool = True) -> None:
        """Gives it a root qdisc; of_queue: which is that of its first queue, too (else: mq)."""
        (queue,) = self.memory.pointers("net_device", device, "_tx")
        root = self.memory.make("Qdisc", {"enqueue": 0x1000 if enqueues else 0})
        first = root if of_queue else self.memory.make("Qdisc", {"enqueue": 0x1000})
        self.memory.change("net_device", device, {"qdisc": root})
        self.memory.change("netdev_queue", queue, {"qdisc": first})

    def packet(self, flow: Flow, device: int, members: Members | None = None, payload: int = 20) -> int:
        """A packet as it is sent: its data begin with the link header. ``members`` of the sk_buff go before."""
        return self.frame(
            flow.ethertype, flow.packet(payload), device, {"vlan_tci": flow.vlan, **(members or {})}, flow.mac
        )

    def frame(
        self, ethertype: int, packet: bytes, device: int, members: Members | None = None, sender: str = SENDER
    ) -> int:
        """An Ethernet frame of any kind; the address of its sk_buff."""
        macs = bytes.fromhex((TARGET + sender).replace(":", ""))
        content = macs + struct.pack(">H", ethertype) + packet
        room = (HEADROOM + len(content) + 7) // 8 * 8
        head = self.memory.keep((bytes(HEADROOM) + content).ljust(room, b"\0") + bytes(size_of("skb_shared_info")))
        return self.memory.make(
            "sk_buff",
            {
                "dev": device,
                "head": head,
                "data": head + HEADROOM,
                "mac_header": HEADROOM,
                "network_header": HEADROOM + ETHERNET,
                "tail": HEADROOM + len(content),
                "end": room,
                "len": len(content),
                "protocol": socket.htons(ethertype),
                **(members or {}),
            },
        )

    def arrived(self, skb: int) -> int:
        """The same packet as it is received: its driver has taken the link header off."""
        data, length = self.memory.pointers("sk_buff", skb, "data", "len")
        self.memory.change("sk_buff", skb, {"data": data + ETHERNET, "len": length - ETHERNET})
        return skb

    def leaving(self, skb: int, device: int) -> int:
        """One that was received, as it is queued to a device: with the link header again."""
        data, length = self.memory.pointers("sk_buff", skb, "data", "len")
        self.memory.change("sk_buff", skb, {"data": data - ETHERNET, "len": length + ETHERNET, "dev": device})
        return skb

    def merged(self, skb: int, size: int) -> int:
        """The same packet as GRO or the sender's stack left it: of segments with so many bytes of payload."""
        head, end = self.memory.pointers("sk_buff", skb, "head", "end")
        offset, length = place_of("skb_shared_info", "gso_size")
        self.memory.put(head + end + offset, size.to_bytes(length, sys.byteorder))
        return skb
