"""Taps with vhost behind them and KVM before them, as the kernel keeps them; of vhost what probes name."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.machines import DEVICE
from tests.support.live.contexts.memory import place_of, size_of
from tests.support.live.contexts.moments import Span, at
from tests.support.live.contexts.packets import Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import NET, NET_QUEUE, POLL, QUEUE

RX, TX = 0, 1
MSI, EPOLLIN = 2, 1
"""KVM_IRQ_ROUTING_MSI, and the event of an eventfd that is signalled."""
KICK_AT = 0xFEB0_3000
USUAL = Flow()
_DEAD = 0xE << 60
"""FILE_REF_DEAD of include/linux/file_ref.h."""


class Tap:
    """One queue of a tap, vhost's two virtqueues of it, and the lines and kicks that KVM joins them with."""

    def __init__(self, host: Taps, name: str, net: int, queue: int, process: int) -> None:
        memory = host.memory
        priv = place_of("net_device", "priv")[0]
        self.device = memory.make(
            "net_device", {"name": name.encode(), "nd_net.net": net}, room=priv + size_of("tun_struct")
        )
        self.tun = self.device + priv
        self.file = memory.make("tun_file", {"tun": self.tun, "queue_index": queue})
        self.sock = self.file + place_of("tun_file", "socket")[0]
        self.ring = self.file + place_of("tun_file", "tx_ring")[0]
        self.opened = memory.make("file", {"private_data": self.file})
        memory.change("tun_file", self.file, {"socket.sk": self.file, "socket.file": self.opened})
        self.has_users(host, True)
        memory.change("tun_struct", self.tun, {"dev": self.device})
        self._word(host, self.tun + place_of("tun_struct", "tfiles")[0] + 8 * queue, self.file)
        self.net = memory.keep(bytes(NET["bytes"]))
        self.rx, self.tx = (self.net + NET["vqs"] + number * NET_QUEUE["bytes"] for number in (RX, TX))
        self.calls = [memory.make("eventfd_ctx", {}) for _ in (RX, TX)]
        self.kick = memory.make("eventfd_ctx", {})
        kick_file = memory.make("file", {"private_data": self.kick})
        for queue_at, call in zip((self.rx, self.tx), self.calls, strict=True):
            self._word(host, queue_at + QUEUE["private_data"], self.sock)
            self._word(host, queue_at + QUEUE["call_ctx"], call)
            self._word(host, queue_at + QUEUE["kick"], kick_file)
        self._word(host, self.rx + NET_QUEUE["rx_ring"], self.ring)
        kvm = memory.make("kvm", {"userspace_pid": process})
        self.vcpu = memory.make("kvm_vcpu", {"kvm": kvm, "vcpu_id": queue + 2})
        self.gsi = 24 + 2 * queue
        self.lines = [self._line(host, kvm, self.gsi + number, call, MSI) for number, call in enumerate(self.calls)]
        self.ioeventfd = memory.make("_ioeventfd", {"addr": KICK_AT + queue, "length": 2, "eventfd": self.kick})
        memory.change("_ioeventfd", self.ioeventfd, {"datamatch": 1})
        self.written = memory.keep(b"\1".ljust(8, b"\0"))

    def has_users(self, host: Taps, has: bool) -> None:
        """Whether anybody still has its file."""
        try:
            host.memory.change("file", self.opened, {"f_ref": 0 if has else _DEAD})  # since 6.13
        except KeyError:
            host.memory.change("file", self.opened, {"f_count": int(has)})

    @staticmethod
    def _word(host: Taps, address: int, value: int) -> None:
        host.memory.put(address, value.to_bytes(8, sys.byteorder))

    @staticmethod
    def _line(host: Taps, kvm: int, gsi: int, eventfd: int, kind: int) -> int:
        members = {"kvm": kvm, "gsi": gsi, "eventfd": eventfd, "irq_entry.gsi": gsi, "irq_entry.type": kind}
        return host.memory.make("kvm_kernel_irqfd", members)

    def work(self, direction: int) -> int:
        """The work item of a kick."""
        return (self.rx, self.tx)[direction] + QUEUE["poll"] + POLL["work"]


class Taps(MadeUpHost):
    """Two taps of one name, the second one in another namespace and with its second queue alone; two machines."""

    def __init__(self, probe: UnattachedProbe, name: str = "made0", processes: tuple[int, int] = (1, 2)) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.here = Tap(self, name, self.net(NETNS), 0, processes[0])
        self.there = Tap(self, name, self.net(OTHER_NETNS), 1, processes[1])

    def to_tap(self, tap: Tap, payload: int = 20, flow: Flow = USUAL) -> int:
        skb = self.frame(flow.ethertype, flow.packet(payload), tap.device)
        queue = self.memory.pointers("tun_file", tap.file, "queue_index")[0]
        self.memory.change("sk_buff", skb, {"queue_mapping": queue})
        return skb

    def message(self, control: int = 0, length: int = 0) -> int:
        return self.memory.make("msghdr", {"msg_control": control, "msg_controllen": length})

    def ran(self, program: str, *arguments: int) -> Span:
        """When a program has run."""
        return at(self.probe.prepare(program, *arguments))


def check_filters(host: Taps, passes: Callable[[Tap], object], grows: str) -> None:
    """In both modes, which of the two queues have rows that grow, by what, and how many events there are."""

    def one_each(mode: str, **knobs: str | float) -> tuple[list[int], int]:
        host.probe.read()
        before = {row["queue"]: row[grows] for row in host.probe.rows("queues")}
        host.probe.set(mode, **{"events_per_s": 1e6, "threshold_us": 0, **knobs})
        passes(host.here)
        passes(host.there)
        host.probe.read()
        after = {row["queue"]: row[grows] for row in host.probe.rows("queues")}
        return sorted(queue for queue in after if after[queue] > before.get(queue, 0)), len(host.probe.events())

    assert one_each("details") == ([0, 1], 2)
    assert one_each("summary") == ([0, 1], 0)
    assert one_each("details", netns=NETNS) == ([0], 1)
    assert one_each("details", netns=OTHER_NETNS) == ([1], 1)
    assert one_each("details", device=DEVICE) == ([0, 1], 2)
    assert one_each("details", device="made1") == ([], 0)
