"""Drives vhost-net without a guest: a tap, two rings, and interrupts that KVM delivers to a CPU that never runs.

Runs inside the lab's machine. It can do exactly what no guest can be made to do: offer a given number of buffers,
disable interrupts, send a given number of packets. Arguments: the tap's name, and any of
  event-index      the guest says behind which buffer it wants an interrupt (VIRTIO_RING_F_EVENT_IDX), not by a flag
  legacy-lines     interrupts of the kind before MSI: through the IO-APIC, by a kernel worker
Commands on standard input, one a line, each answered by one line:
  offer N · send N · interrupts 0|1 · event N · attach 0|1 · refill 0|1 · segment 0|1 · used
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import sys
import threading
import time

SIZE = 1024  # of both rings: the largest that virtio_net offers
BUFFER_BYTES = 2048
HEADER_BYTES = 12  # struct virtio_net_hdr_mrg_rxbuf
GUEST_BASE = 0x100000
RING_BYTES = 0x10000
RX, TX = 0, 1
WRITE_ONLY = 2  # VRING_DESC_F_WRITE
NO_INTERRUPT = 1  # VRING_AVAIL_F_NO_INTERRUPT
MRG_RXBUF, EVENT_INDEX, VERSION_1 = 1 << 15, 1 << 29, 1 << 32
REFILL_S = 0.0005
SENDING_LIMIT_S = 20.0

# include/uapi/linux/vhost.h, if_tun.h, kvm.h
SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 0x4008AF00, 0xAF01, 0x4008AF03
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE = 0x4008AF10, 0x4028AF11, 0x4008AF12
SET_VRING_KICK, SET_VRING_CALL, SET_BACKEND = 0x4008AF20, 0x4008AF21, 0x4008AF30
TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
TUN_F_CSUM, TUN_F_TSO4 = 1, 2
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 2, 0x1000, 0x4000
CREATE_VM, CREATE_VCPU, CREATE_IRQCHIP, SET_GSI_ROUTING, IRQFD = 0xAE01, 0xAE41, 0xAE60, 0x4008AE6A, 0x4020AE76
GET_LAPIC, SET_LAPIC, LAPIC_BYTES = 0x8400AE8E, 0x4400AE8F, 1024
GET_IRQCHIP, SET_IRQCHIP, IRQCHIP_IOAPIC = 0xC208AE62, 0x8208AE63, 2
IRQCHIP_BYTES, IOAPIC_ENTRIES = 520, 32  # struct kvm_irqchip, and where the redirection table is in it
ROUTING_MSI = 2
FIRST_GSI, FIRST_VECTOR, MSI_ADDRESS = 24, 0x41, 0xFEE00000
FIRST_LEGACY_GSI = 10  # of those that lead to the IO-APIC and the older controller from the beginning

# To everybody, of a protocol that nobody receives (local experimental ethertype 1).
FRAME = bytes.fromhex("ffffffffffff 025254000001 88b5") + bytes(50)


class Ring:
    """One virtqueue (virtio 1.1, 2.6) whose every descriptor is one whole buffer."""

    def __init__(self, memory: mmap.mmap, address: int, offset: int, flags: int, length: int, shared: bool) -> None:
        self.memory = memory
        self.desc, self.avail, self.used = offset, offset + 16 * SIZE, offset + 24 * SIZE
        self.addresses = (address + self.desc, address + self.used, address + self.avail)
        self.offered = 0
        self.kick, self.call = os.eventfd(0), os.eventfd(0)
        buffers = offset + RING_BYTES
        for number in range(SIZE):
            buffer = GUEST_BASE + buffers + (0 if shared else number * BUFFER_BYTES)
            struct.pack_into("=QIHH", memory, self.desc + 16 * number, buffer, length, flags, 0)
            struct.pack_into("=H", memory, self.avail + 4 + 2 * number, number)
        memory[buffers + HEADER_BYTES : buffers + HEADER_BYTES + len(FRAME)] = FRAME

    def offer(self, count: int) -> None:
        """Descriptors are used in order, so that the next ones are free again."""
        self.offered += count
        struct.pack_into("=H", self.memory, self.avail + 2, self.offered & 0xFFFF)
        os.eventfd_write(self.kick, 1)

    def pending(self) -> int:
        """Buffers that are offered and not used."""
        (used,) = struct.unpack_from("=H", self.memory, self.used + 2)
        return (self.offered - int(used)) & 0xFFFF

    def want_interrupts(self, wanted: bool) -> None:
        struct.pack_into("=H", self.memory, self.avail, 0 if wanted else NO_INTERRUPT)

    def want_event(self, buffers: int) -> None:
        """An interrupt once so many more buffers than now have been used, and none before (used_event, virtio 1.1)."""
        event = self.offered - self.pending() + buffers - 1
        struct.pack_into("=H", self.memory, self.avail + 4 + 2 * SIZE, event & 0xFFFF)


class Peer:
    def __init__(self, device: str, event_index: bool, legacy_lines: bool) -> None:
        self.tap = os.open("/dev/net/tun", os.O_RDWR)
        flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
        fcntl.ioctl(self.tap, TUNSETIFF, struct.pack("=16sH22x", device.encode(), flags))
        fcntl.ioctl(self.tap, TUNSETVNETHDRSZ, struct.pack("=i", HEADER_BYTES))
        self.vhost = os.open("/dev/vhost-net", os.O_RDWR)
        memory = mmap.mmap(-1, 3 * RING_BYTES + (SIZE + 1) * BUFFER_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        tx = Ring(memory, address, 0, 0, HEADER_BYTES + len(FRAME), shared=True)
        rx = Ring(memory, address, RING_BYTES + BUFFER_BYTES, WRITE_ONLY, BUFFER_BYTES, shared=False)
        self.rings = {RX: rx, TX: tx}
        self.refilling = threading.Event()
        self._set(SET_OWNER)
        self._set(SET_FEATURES, "=Q", MRG_RXBUF | VERSION_1 | (EVENT_INDEX if event_index else 0))
        self._set(SET_MEM_TABLE, "=IIQQQQ", 1, 0, GUEST_BASE, len(memory), address, 0)
        for index, ring in self.rings.items():
            self._set(SET_VRING_NUM, "=II", index, SIZE)
            self._set(SET_VRING_BASE, "=II", index, 0)
            self._set(SET_VRING_ADDR, "=IIQQQQ", index, 0, *ring.addresses, 0)
            self._set(SET_VRING_KICK, "=Ii", index, ring.kick)
            self._set(SET_VRING_CALL, "=Ii", index, ring.call)
        self._deliver_interrupts(legacy_lines)
        self.attach(True)
        threading.Thread(target=self._refill, daemon=True).start()

    def _set(self, request: int, form: str = "", *values: int) -> None:
        fcntl.ioctl(self.vhost, request, struct.pack(form, *values) if form else 0)

    def _deliver_interrupts(self, legacy: bool) -> None:
        """Through KVM, as for a guest: a line for each ring, a virtual CPU that accepts what it never handles."""
        kvm = os.open("/dev/kvm", os.O_RDWR)
        self.machine = fcntl.ioctl(kvm, CREATE_VM, 0)
        fcntl.ioctl(self.machine, CREATE_IRQCHIP, 0)
        self.cpu = fcntl.ioctl(self.machine, CREATE_VCPU, 0)
        lapic = bytearray(LAPIC_BYTES)  # as it is, but only what was set once is in KVM's map of targets
        fcntl.ioctl(self.cpu, GET_LAPIC, lapic)
        fcntl.ioctl(self.cpu, SET_LAPIC, lapic)
        first_gsi = FIRST_LEGACY_GSI if legacy else FIRST_GSI
        if legacy:
            self._open_io_apic()
        else:
            self._route_messages()
        for index, ring in self.rings.items():
            fcntl.ioctl(self.machine, IRQFD, struct.pack("=IIII16x", ring.call, first_gsi + index, 0, 0))

    def _route_messages(self) -> None:
        routes = b"".join(
            struct.pack("=IIIIIII20x", FIRST_GSI + index, ROUTING_MSI, 0, 0, MSI_ADDRESS, 0, FIRST_VECTOR + index)
            for index in self.rings
        )
        fcntl.ioctl(self.machine, SET_GSI_ROUTING, struct.pack("=II", len(self.rings), 0) + routes)

    def _open_io_apic(self) -> None:
        """Its entries for the lines: a vector for CPU 0, by edge, not masked."""
        chip = bytearray(struct.pack("=II", IRQCHIP_IOAPIC, 0).ljust(IRQCHIP_BYTES, b"\0"))
        fcntl.ioctl(self.machine, GET_IRQCHIP, chip)
        for index in self.rings:
            struct.pack_into("=Q", chip, IOAPIC_ENTRIES + 8 * (FIRST_LEGACY_GSI + index), FIRST_VECTOR + index)
        fcntl.ioctl(self.machine, SET_IRQCHIP, bytes(chip))

    def attach(self, attached: bool) -> None:
        """What QEMU does when the machine goes on, or stops."""
        for index in self.rings:
            self._set(SET_BACKEND, "=Ii", index, self.tap if attached else -1)

    def _refill(self) -> None:
        """While it is wanted, keeps all buffers offered."""
        ring = self.rings[RX]
        while True:
            self.refilling.wait()
            missing = SIZE - ring.pending()
            if missing:
                ring.offer(missing)
            time.sleep(REFILL_S)

    def send(self, count: int) -> None:
        """Sends packets, at most a ring full at once, and waits until vhost has taken them all."""
        ring = self.rings[TX]
        deadline = time.monotonic() + SENDING_LIMIT_S
        while count or ring.pending():
            part = min(count, SIZE - ring.pending())
            if part:
                ring.offer(part)
                count -= part
            if time.monotonic() > deadline:
                raise SystemExit(f"{ring.pending()} packets were not taken in {SENDING_LIMIT_S:g} s")

    def obey(self, command: str, argument: int) -> str:
        if command == "offer":
            self.rings[RX].offer(argument)
        elif command == "send":
            start = time.monotonic_ns()
            self.send(argument)
            return str(time.monotonic_ns() - start)
        elif command == "interrupts":
            for ring in self.rings.values():
                ring.want_interrupts(bool(argument))
        elif command == "event":
            self.rings[RX].want_event(argument)
        elif command == "attach":
            self.attach(bool(argument))
        elif command == "segment":
            fcntl.ioctl(self.tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 if argument else 0)
        elif command == "refill":
            self.refilling.set() if argument else self.refilling.clear()
        elif command == "used":
            return str(self.rings[RX].offered - self.rings[RX].pending())
        else:
            raise SystemExit(f"unknown command {command}")
        return "done"


def main() -> None:
    peer = Peer(sys.argv[1], "event-index" in sys.argv, "legacy-lines" in sys.argv)
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, argument = line.partition(" ")
        print(peer.obey(command.strip(), int(argument or 0)), flush=True)


if __name__ == "__main__":
    main()
