"""The taps of 200 VMs with 8 queues each: every queue has its row, and an interval has only the rows that changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netconsole.telemetry import frames
from tests.lab.collector import InsideMeasurement
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.machine import Process
from tests.lab.network.testbed import Testbed

TAPS, QUEUES = 200, 8
FLOWS = 100  # of each tap: so many miss one of its queues once in 70 000 times
BUSY, MORE = 3, 50
COMMAND_LIMIT_S = 120.0

# Opens the queues, and then, for each line "TAPS FLOWS PACKETS", sends UDP frames of so many flows to the first taps,
# which take them out of their rings now and then.
PROGRAM = """
import fcntl, os, resource, socket, struct, subprocess, sys
taps, queues = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (2 * taps * queues,) * 2)
names = [f"many{number}" for number in range(taps)]
open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w").write("1")
rings = {name: [os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK) for queue in range(queues)] for name in names}
for name in names:
    for ring in rings[name]:
        fcntl.ioctl(ring, 0x400454CA, struct.pack("=16sH22x", name.encode(), 0x1102))  # TUNSETIFF: tap, multi-queue
def empty(ring):
    try:
        while os.read(ring, 2048):
            pass
    except BlockingIOError:
        pass
up = "".join(f"link set {name} up\\n" for name in names)
subprocess.run(["ip", "-batch", "-"], input=up.encode(), check=True)
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
print("ready", flush=True)
for line in sys.stdin:
    taps, flows, packets = map(int, line.split())
    for name in names[:taps]:
        for flow in range(flows):
            ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, bytes(4), bytes(4))
            udp = struct.pack("!HHHH18x", 1024 + flow, 9, 26, 0)
            for packet in range(packets):
                sender.sendto(bytes(12) + b"\\x08\\x00" + ip + udp, (name, 0x0800))
            if flow % 4 == 3:
                for ring in rings[name]:
                    empty(ring)
    print("sent", flush=True)
"""


class Listener(InsideMeasurement):
    """Also keeps how many rows each frame of the queues had that was not a full one, and what intervals take."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self.sent: list[int] = []
        self.taken_ms: list[float] = []
        super().__init__(hypervisor)

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Table) and frame.name == "queues" and not frame.full:
            self.sent.append(len(frame.rows))
        if isinstance(frame, frames.Cost) and frame.probe is None and frame.usage and frame.usage.cpu_ns is not None:
            self.taken_ms.append(frame.usage.cpu_ns / 1e6)

    def forget(self) -> None:
        """From here on."""
        self.begin()
        self.sent.clear()
        self.taken_ms.clear()

    def tell(self, what: str) -> None:
        """Prints what depends on the machine: an emulated one, where all takes 20 to 50 times as long."""
        rows, took_ms = max(self.sent, default=0), max(self.taken_ms)
        print(f"{what}: at most {rows} rows sent and {took_ms:.0f} ms of CPU taken in an interval")


@pytest.fixture
def listener(testbed: Testbed) -> Iterator[Listener]:
    one = Listener(testbed.hypervisor)
    one.load("tun_queues")
    yield one
    one.close()


def send(taps: Process, count: int, flows: int, packets: int) -> None:
    taps.write(f"{count} {flows} {packets}\n".encode())
    taps.wait_for(b"sent\n", COMMAND_LIMIT_S)


def test_what_stands_still_is_not_sent_again(testbed: Testbed, listener: Listener) -> None:
    with testbed.hypervisor.start("python3", "-c", PROGRAM, str(TAPS), str(QUEUES)) as taps:
        taps.wait_for(b"ready\n", COMMAND_LIMIT_S)
        listener.forget()
        send(taps, TAPS, FLOWS, 1)
        listener.settle()
        listener.tell(f"{TAPS * QUEUES} queues move")
        rows = [row for row in listener.rows("tun_queues", "queues") if str(row.labels["device"]).startswith("many")]
        assert len(rows) == TAPS * QUEUES
        assert sum(row.counts["packets"] for row in rows) == TAPS * FLOWS
        assert sum(row.counts["ring_full"] + row.counts["taken"] for row in rows) == 0

        listener.forget()
        send(taps, BUSY, 1, MORE)
        listener.settle()
        listener.tell(f"{BUSY} of them move")
        rows = [row for row in listener.rows("tun_queues", "queues") if str(row.labels["device"]).startswith("many")]
        assert [row.counts["packets"] for row in rows] == [MORE] * BUSY
        assert max(listener.sent, default=0) <= BUSY
    listener.assert_whole("tun_queues")
