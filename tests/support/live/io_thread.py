"""A real I/O thread of QEMU that never rests: it answers all that a client of NBD asks of a disk that is nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from tests.support.live.tiny_guest import HALTS, TinyGuest

NAME = "disk0"
_DISK = "null-co,node-name=nothing,size=1073741824,read-zeroes=on"
_GREETING, _CHOSEN = 18, 10
"""Bytes that the server says at first, and when an export is chosen (NBD, fixed newstyle)."""
_CHOOSE = struct.pack(">I8sII7s", 3, b"IHAVEOPT", 1, 7, b"nothing")
_READS = b"".join(struct.pack(">IHHQQI", 0x25609513, 0, 0, number, 0, 1) for number in range(1000))
"""A thousand requests for one byte."""


@contextlib.contextmanager
def busy_io_thread(cpu: int) -> Iterator[TinyGuest]:
    """A machine whose I/O thread NAME has more to do than it can. Who asks it keeps off its CPU."""
    with contextlib.closing(TinyGuest(HALTS, more=["-object", f"iothread,id={NAME}", "-blockdev", _DISK])) as one:
        where = one.path("nbd")
        one.command("nbd-server-start", addr={"type": "unix", "data": {"path": where}})
        export = {"type": "nbd", "id": "all", "node-name": "nothing", "name": "nothing", "iothread": NAME}
        one.command("block-export-add", **export)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(where)
            with client.makefile("rb") as said:
                said.read(_GREETING)
                client.sendall(_CHOOSE)
                said.read(_CHOSEN)
            workers = [threading.Thread(target=_elsewhere, args=(cpu, work, client)) for work in (_ask, _take)]
            for worker in workers:
                worker.start()
            try:
                yield one
            finally:
                client.shutdown(socket.SHUT_RDWR)
                for worker in workers:
                    worker.join()


def _elsewhere(cpu: int, work: Callable[[socket.socket], None], client: socket.socket) -> None:
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {cpu} or {cpu})  # of this thread alone
    work(client)


def _ask(client: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is shut down
        while True:
            client.sendall(_READS)


def _take(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while client.recv(1 << 20):
            pass
