"""A netlink socket for dumps, single answers and notifications of the kernel, parsed with `struct` alone.

pyroute2 could do it too. But its import takes 23 MB and 0.1 s, and its dump of 1000 interfaces 0.2 s of CPU: more than
the whole console may use. The layouts are fixed in the kernel's user API (include/uapi/linux/netlink.h).
"""

import errno
import os
import socket
import struct
from typing import Callable, Iterator, Optional, Tuple, TypeVar

NLM_F_REQUEST = 0x001
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR = 2
NLMSG_DONE = 3
RECEIVE_BYTES = 256 * 1024
_TIMEOUT_S = 2

_HEADER = struct.Struct("=IHHII")
_CODE = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTE_TYPE = 0x3FFF
_TIMEVAL = struct.Struct("@ll")

Body = TypeVar("Body", bytes, memoryview)

Unasked = Callable[[int, memoryview], None]
"""Takes the type and the body of a message that answers nothing. The body is good until it returns."""


def attributes(body: Body, offset: int) -> Iterator[Tuple[int, Body]]:
    """Type (without its flags) and value of every attribute from ``offset`` on; what is cut off ends it."""
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size or offset + length > len(body):
            return
        yield kind & _ATTRIBUTE_TYPE, body[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3


class Netlink:
    """One netlink socket, for one thread at a time. It stays in the network namespace in which it was made."""

    def __init__(
        self,
        protocol: int,
        groups: int = 0,
        unasked: Optional[Unasked] = None,
        room: Optional[memoryview] = None,
    ) -> None:
        """``protocol`` as in socket.NETLINK_ROUTE. Raises OSError.

        What the multicast ``groups`` tell goes to ``unasked``, in the order in which it came. Sockets of one thread
        may share the ``room`` that they receive in (RECEIVE_BYTES).
        """
        self.unasked = unasked
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.bind((0, groups))
        # Not settimeout: with that, Python waits for a message even where MSG_DONTWAIT asks it not to.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(_TIMEOUT_S, 0))
        self._port = self._socket.getsockname()[0]
        self._number = 0
        # Allocated once: many large ones would fragment the heap.
        self._room = memoryview(bytearray(RECEIVE_BYTES)) if room is None else room

    def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
        """The bodies of the answers; each is valid until the next one. Raises OSError, also when refused."""
        self._send(kind, NLM_F_REQUEST_DUMP, request)
        while True:
            for answered, body in self._answers():
                if answered in (NLMSG_DONE, NLMSG_ERROR):  # both end the dump, with 0 or an error number
                    _check(body)
                    return
                yield body

    def ask(self, kind: int, request: bytes) -> memoryview:
        """The body of the one message that answers, good until the next request. Raises OSError."""
        self._send(kind, NLM_F_REQUEST, request)
        while True:
            for answered, body in self._answers():
                if answered == NLMSG_ERROR:
                    _check(body)
                return body

    def listen(self) -> bool:
        """Take notifications. Returns whether there were any. Raises OSError: ENOBUFS when some were lost."""
        any_came = False
        while True:
            try:
                received = self._socket.recv_into(self._room, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return any_came
            any_came = True
            for kind, _, port, body in _messages(self._room[:received]):
                self._told(kind, port, body)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, kind: int, flags: int, request: bytes) -> None:
        self._number += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(request), kind, flags, self._number, 0) + request)

    def _answers(self) -> Iterator[Tuple[int, memoryview]]:
        """What one reading of the socket has of the answers to the last request."""
        try:
            received = self._socket.recv_into(self._room)
        except BlockingIOError:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        for kind, number, port, body in _messages(self._room[:received]):
            if number == self._number and port in (self._port, 0):
                yield kind, body
            else:
                self._told(kind, port, body)

    def _told(self, kind: int, port: int, body: memoryview) -> None:
        # An answer carries our own port: this one was awaited by nobody any more. What is told carries another's.
        if self.unasked is not None and port != self._port:
            self.unasked(kind, body)


def _check(code: memoryview) -> None:
    number = -_CODE.unpack_from(code)[0] if len(code) >= _CODE.size else 0
    if number > 0:
        raise OSError(number, os.strerror(number))


def _messages(chunk: memoryview) -> Iterator[Tuple[int, int, int, memoryview]]:
    offset = 0
    while offset + _HEADER.size <= len(chunk):
        length, kind, _, number, port = _HEADER.unpack_from(chunk, offset)
        if length < _HEADER.size or offset + length > len(chunk):
            return
        yield kind, number, port, chunk[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3
