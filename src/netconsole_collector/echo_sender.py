"""Sends ICMP echoes at a steady rate, and counts their replies. For a host, or a guest without ping.

Arguments: TARGET COUNT INTERVAL_US SIZE FIRST_SEQ DEVICE ("" for none). COUNT 0 sends until standard input ends.
Writes one JSON object per line: first {"id", "source"}, then {"sent", "answered", "refused"} four times a second, and
once more with "is_over" at the end. ``refused``: echoes that this machine itself did not send (no route, a full queue).
"""

import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

MIN_SIZE, MAX_SIZE = 16, 65000
"""Of what an echo carries: the cookie and the time are 16 bytes."""
_TELL_EVERY_S = 0.25
_LINGER_S = 1.0
"""How long replies are awaited after the last echo."""
_REQUEST, _REPLY = {4: 8, 6: 128}, {4: 0, 6: 129}
_PROTOCOL = {4: 1, 6: 58}
_ICMP_FILTER, _ICMP6_FILTER = 1, 1
"""include/uapi/linux/icmp.h; include/uapi/linux/icmpv6.h (ICMPV6_FILTER)."""
_BIND_TO_DEVICE, _SOL_RAW = 25, 255
"""SO_BINDTODEVICE; include/linux/socket.h."""
_SEQUENCES = 1 << 16

Json = Dict[str, Any]


class EchoSocket:
    """A raw ICMP socket, or a datagram one where the user may have that alone. Raises OSError."""

    def __init__(self, target: str, device: str) -> None:
        found = socket.getaddrinfo(target, None, 0, socket.SOCK_DGRAM)
        family, _, _, _, target_address = found[0]
        self.version = 6 if family == socket.AF_INET6 else 4
        protocol = _PROTOCOL[self.version]
        try:
            self.socket = socket.socket(family, socket.SOCK_RAW, protocol)
            self.is_raw = True
        except PermissionError:
            self.socket = socket.socket(family, socket.SOCK_DGRAM, protocol)
            self.is_raw = False
        if device:
            self.socket.setsockopt(socket.SOL_SOCKET, _BIND_TO_DEVICE, device.encode() + b"\0")
        if self.is_raw:
            self._only_replies()
        self.socket.connect(target_address)
        self.socket.setblocking(False)
        self.source = self.socket.getsockname()[0]
        self.id = self.socket.getsockname()[1] if not self.is_raw else struct.unpack("=H", os.urandom(2))[0]

    def _only_replies(self) -> None:
        """A raw socket gets all of ICMP. A bit that is set keeps a type out."""
        if self.version == 4:
            self.socket.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("=I", ~(1 << _REPLY[4]) & 0xFFFFFFFF))
            return
        words = [0xFFFFFFFF] * 8
        words[_REPLY[6] >> 5] &= ~(1 << (_REPLY[6] & 31))
        self.socket.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *words))

    def echo(self, seq: int, carried: bytes) -> bytes:
        """The request. Of IPv6 the kernel fills in the checksum."""
        head = struct.pack("!BBHHH", _REQUEST[self.version], 0, 0, self.id, seq)
        if self.version == 6 or not self.is_raw:
            return head + carried
        return head[:2] + struct.pack("!H", checksum(head + carried)) + head[4:] + carried

    def replies(self, cookie: bytes) -> List[int]:
        """The sequence numbers of the replies to us that have come."""
        found = []  # type: List[int]
        while True:
            try:
                packet = self.socket.recv(65536)
            except (BlockingIOError, InterruptedError):
                return found
            except OSError:  # an error of the way, such as no route: it belongs to an echo that stays without reply
                continue
            seq = self._seq_of(packet, cookie)
            if seq is not None:
                found.append(seq)

    def _seq_of(self, packet: bytes, cookie: bytes) -> Optional[int]:
        if self.version == 4 and self.is_raw:  # with its IP header
            packet = packet[(packet[0] & 15) * 4 :] if packet else b""
        if len(packet) < 8 + len(cookie) or packet[0] != _REPLY[self.version]:
            return None
        id, seq = struct.unpack("!HH", packet[4:8])
        return int(seq) if id == self.id and packet[8 : 8 + len(cookie)] == cookie else None


class Sender:
    """One run."""

    def __init__(self, echoes: EchoSocket, count: int, interval_s: float, size: int, first_seq: int) -> None:
        self._echoes, self._count, self._interval_s = echoes, count, interval_s
        self._size, self._seq = size, first_seq
        self._cookie = os.urandom(8)
        self._waiting: Dict[int, bool] = {}
        self.sent = self.answered = self.refused = 0

    def run(self, stdin: int) -> None:
        """Sends all echoes and awaits their replies, or ends with standard input."""
        began = told = time.monotonic()
        poller = select.poll()
        poller.register(stdin, select.POLLIN)
        poller.register(self._echoes.socket.fileno(), select.POLLIN)
        over_at = None  # type: Optional[float]
        while over_at is None or (time.monotonic() < over_at and self._waiting):
            now = time.monotonic()
            if over_at is None and now >= began + self.sent * self._interval_s:
                self._send()
                if self._count and self.sent >= self._count:
                    over_at = now + _LINGER_S
            due = began + self.sent * self._interval_s if over_at is None else over_at
            for fd, _ in self._wait(poller, min(due, told + _TELL_EVERY_S)):
                if fd == stdin and not os.read(stdin, 4096):
                    return
            for seq in self._echoes.replies(self._cookie):
                self.answered += self._waiting.pop(seq, False)
            if time.monotonic() >= told + _TELL_EVERY_S:
                told = time.monotonic()
                self.tell()

    def _wait(self, poller: Any, until: float) -> List[Tuple[int, int]]:
        """poll() counts in milliseconds: what is left below that is slept."""
        left = until - time.monotonic()
        if left >= 0.001:
            return poller.poll(int(left * 1000))  # type: ignore[no-any-return]
        if left > 0:
            time.sleep(left)
        return poller.poll(0)  # type: ignore[no-any-return]

    def _send(self) -> None:
        carried = (self._cookie + struct.pack("!Q", int(time.time() * 1e9))).ljust(self._size, b"\x55")
        try:
            self._echoes.socket.send(self._echoes.echo(self._seq, carried))
            self._waiting[self._seq] = True
        except OSError:
            self.refused += 1
        self.sent += 1
        self._seq = (self._seq + 1) % _SEQUENCES

    def tell(self, **more: Any) -> None:
        write(dict(more, sent=self.sent, answered=self.answered, refused=self.refused))


def checksum(data: bytes) -> int:
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!{}H".format(len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


def write(body: Json) -> None:
    """One line, at once."""
    os.write(1, json.dumps(body).encode() + b"\n")


def main(arguments: List[str]) -> int:
    """Returns the exit status: 2 for wrong arguments, 3 when no socket can be had."""
    try:
        target, device = arguments[0], arguments[5]
        count, interval_us, size, first_seq = (int(one) for one in arguments[1:5])
        if count < 0 or interval_us < 1 or not MIN_SIZE <= size <= MAX_SIZE or not 0 <= first_seq < _SEQUENCES:
            raise ValueError("out of range")
    except (IndexError, ValueError) as error:
        print("expected TARGET COUNT INTERVAL_US SIZE FIRST_SEQ DEVICE: {}".format(error), file=sys.stderr)
        return 2
    try:
        echoes = EchoSocket(target, device)
    except OSError as error:
        print("cannot send echoes to {}: {}".format(target, error.strerror or error), file=sys.stderr)
        return 3
    sender = Sender(echoes, count, interval_us / 1e6, size, first_seq)
    write({"id": echoes.id, "source": echoes.source})
    try:
        sender.run(0)
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    sender.tell(is_over=True)
    return 0
