"""Sends one JSON text to a Unix socket, and reads the one that answers, as Open vSwitch's control sockets do."""

import errno
import json
import os
import socket
import time

MAX_REPLY_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16


class Exchange:
    """A connection to a Unix socket. Not thread-safe. After an OSError it is of no more use."""

    def __init__(self, path: bytes, timeout_s: float) -> None:
        """Raises OSError."""
        self.took_s = 0.0
        """How long the last answer took."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def ask(self, request: bytes, timeout_s: float) -> bytes:
        """The whole JSON text that answers. Raises TimeoutError, ConnectionResetError and other kinds of OSError.

        A text that ends is whole; EMSGSIZE says that it was longer than MAX_REPLY_BYTES.
        """
        began = time.monotonic()
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(request)
            reply = self._reply(began + timeout_s)
            self.took_s = time.monotonic() - began
            return reply
        except socket.timeout:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None

    def close(self) -> None:
        """Close the connection. The other side then forgets the request."""
        self._socket.close()

    def _reply(self, deadline: float) -> bytes:
        received = bytearray()
        while len(received) <= MAX_REPLY_BYTES:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
            received += chunk
            if not chunk.endswith((b"}", b"}\n")):
                continue
            try:
                json.loads(received.decode("utf-8"))
            except ValueError:
                continue  # this brace was inside the text
            return bytes(received)
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
