"""A guest's side of vhost-net without a guest, for the load of a calibration: a tap, two rings, and KVM's lines.

Everything is this process's own: the tap, vhost's worker and the machine of KVM end with its descriptors. The tap is in
the network namespace of the process. Both rings are virtqueues (virtio 1.1, 2.6) in memory of the process, and every
descriptor is one whole buffer. Where there is KVM, a virtual CPU that never runs accepts the interrupts.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import threading
import time

from netconsole_collector.kernel.modules import is_loaded

SIZE = 1024
"""Of both rings: the largest that virtio_net offers."""
BUFFER_BYTES = 2048
HEADER_BYTES = 12
"""struct virtio_net_hdr_mrg_rxbuf"""
TAP = "nc-guest"
REFILL_S = 0.0005
SEND_LIMIT_S = 20.0
_BASE, _RING_BYTES = 0x100000, 0x10000
_RX, _TX = 0, 1
_WRITE_ONLY = 2
"""VRING_DESC_F_WRITE"""
_MRG_RXBUF, _VERSION_1 = 1 << 15, 1 << 32
FRAME = bytes.fromhex("ffffffffffff02000000000388b5") + bytes(50)
"""What the guest sends: to everybody, of a protocol that nobody receives (a local experimental ethertype)."""

# include/uapi/linux/vhost.h, if_tun.h, kvm.h
_SET_FEATURES, _SET_OWNER, _SET_MEM_TABLE = 0x4008AF00, 0xAF01, 0x4008AF03
_SET_VRING_NUM, _SET_VRING_ADDR, _SET_VRING_BASE = 0x4008AF10, 0x4028AF11, 0x4008AF12
_SET_VRING_KICK, _SET_VRING_CALL, _SET_BACKEND = 0x4008AF20, 0x4008AF21, 0x4008AF30
_TUNSETIFF, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D8
_TAP_FLAGS = 2 | 0x1000 | 0x4000
"""IFF_TAP, IFF_NO_PI, IFF_VNET_HDR"""
_CREATE_VM, _CREATE_VCPU, _CREATE_IRQCHIP, _SET_GSI_ROUTING, _IRQFD = 0xAE01, 0xAE41, 0xAE60, 0x4008AE6A, 0x4020AE76
_GET_LAPIC, _SET_LAPIC, _LAPIC_BYTES = 0x8400AE8E, 0x4400AE8F, 1024
_ROUTING_MSI, _FIRST_GSI, _FIRST_VECTOR, _MSI_ADDRESS = 2, 24, 0x41, 0xFEE00000


class _Ring:
    def __init__(self, memory: mmap.mmap, address: int, offset: int, flags: int, length: int, is_shared: bool) -> None:
        self._memory = memory
        self._avail, self._used = offset + 16 * SIZE, offset + 24 * SIZE
        self.addresses = (address + offset, address + self._used, address + self._avail)
        self.offered = 0
        self.kick, self.call = _eventfd(), _eventfd()
        buffers = offset + _RING_BYTES
        for number in range(SIZE):
            buffer = _BASE + buffers + (0 if is_shared else number * BUFFER_BYTES)
            struct.pack_into("=QIHH", memory, offset + 16 * number, buffer, length, flags, 0)
            struct.pack_into("=H", memory, self._avail + 4 + 2 * number, number)
        memory[buffers + HEADER_BYTES : buffers + HEADER_BYTES + len(FRAME)] = FRAME

    def offer(self, count: int) -> None:
        """Descriptors are used in order, so that the next ones are free again."""
        self.offered += count
        struct.pack_into("=H", self._memory, self._avail + 2, self.offered & 0xFFFF)
        os.write(self.kick, struct.pack("=Q", 1))

    def pending(self) -> int:
        """Buffers that are offered and not used."""
        (used,) = struct.unpack_from("=H", self._memory, self._used + 2)
        return (self.offered - int(used)) & 0xFFFF

    def used(self) -> int:
        """Buffers that vhost has given back so far."""
        return self.offered - self.pending()


class LoadGuest:
    """Takes all packets that come to its tap, and sends when it is told. Raises OSError, RuntimeError."""

    def __init__(self) -> None:
        for module in ("vhost_net", "tun"):
            if not is_loaded(module):
                raise RuntimeError("the kernel module {} is not loaded".format(module))
        self._tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(self._tap, _TUNSETIFF, struct.pack("=16sH22x", TAP.encode(), _TAP_FLAGS))
        fcntl.ioctl(self._tap, _TUNSETVNETHDRSZ, struct.pack("=i", HEADER_BYTES))
        self._vhost = os.open("/dev/vhost-net", os.O_RDWR)
        self._memory = mmap.mmap(-1, 3 * _RING_BYTES + (SIZE + 1) * BUFFER_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        tx = _Ring(self._memory, address, 0, 0, HEADER_BYTES + len(FRAME), is_shared=True)
        rx = _Ring(self._memory, address, _RING_BYTES + BUFFER_BYTES, _WRITE_ONLY, BUFFER_BYTES, is_shared=False)
        self._rings = {_RX: rx, _TX: tx}
        self._lock = threading.Lock()
        self._set(_SET_OWNER)
        self._set(_SET_FEATURES, "=Q", _MRG_RXBUF | _VERSION_1)
        self._set(_SET_MEM_TABLE, "=IIQQQQ", 1, 0, _BASE, len(self._memory), address, 0)
        for index, ring in self._rings.items():
            self._set(_SET_VRING_NUM, "=II", index, SIZE)
            self._set(_SET_VRING_BASE, "=II", index, 0)
            self._set(_SET_VRING_ADDR, "=IIQQQQ", index, 0, *ring.addresses, 0)
            self._set(_SET_VRING_KICK, "=Ii", index, ring.kick)
            self._set(_SET_VRING_CALL, "=Ii", index, ring.call)
        with contextlib.suppress(OSError):  # without KVM, or not on x86: nobody hears the interrupts
            self._deliver_interrupts()
        for index in self._rings:
            self._set(_SET_BACKEND, "=Ii", index, self._tap)
        threading.Thread(target=self._refill, daemon=True).start()

    def received(self) -> int:
        """Packets that have come so far."""
        with self._lock:
            return self._rings[_RX].used()

    def send(self, seconds: float) -> int:
        """Send as fast as vhost takes it, and return how many packets it has taken."""
        ring, until = self._rings[_TX], time.monotonic() + seconds
        before = ring.used()
        while time.monotonic() < until:
            free = SIZE - ring.pending()
            if free >= SIZE // 4:
                ring.offer(free)
        limit = time.monotonic() + SEND_LIMIT_S
        while ring.pending() and time.monotonic() < limit:
            pass
        return ring.used() - before

    def _refill(self) -> None:
        """Keeps all buffers offered."""
        ring = self._rings[_RX]
        while True:
            with self._lock:
                missing = SIZE - ring.pending()
                if missing:
                    ring.offer(missing)
            time.sleep(REFILL_S)

    def _set(self, request: int, form: str = "", *values: int) -> None:
        fcntl.ioctl(self._vhost, request, struct.pack(form, *values) if form else 0)

    def _deliver_interrupts(self) -> None:
        """By a line for each ring."""
        if not is_loaded("kvm"):
            return
        machine = fcntl.ioctl(os.open("/dev/kvm", os.O_RDWR), _CREATE_VM, 0)
        fcntl.ioctl(machine, _CREATE_IRQCHIP, 0)
        cpu = fcntl.ioctl(machine, _CREATE_VCPU, 0)
        lapic = bytearray(_LAPIC_BYTES)  # as it is, but only what was set once is in KVM's map of targets
        fcntl.ioctl(cpu, _GET_LAPIC, lapic)
        fcntl.ioctl(cpu, _SET_LAPIC, lapic)
        routes = b"".join(
            struct.pack("=IIIIIII20x", _FIRST_GSI + index, _ROUTING_MSI, 0, 0, _MSI_ADDRESS, 0, _FIRST_VECTOR + index)
            for index in self._rings
        )
        fcntl.ioctl(machine, _SET_GSI_ROUTING, struct.pack("=II", len(self._rings), 0) + routes)
        for index, ring in self._rings.items():
            fcntl.ioctl(machine, _IRQFD, struct.pack("=IIII16x", ring.call, _FIRST_GSI + index, 0, 0))


def _eventfd() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = int(libc.eventfd(0, 0))
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return number
