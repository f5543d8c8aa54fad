"""A TCP connection to a machine whose window is full: `netconsole vm` says that before it says that nothing caps it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.support.live.network import BARE_PYTHON, Namespace
from tests.support.live.tiny_guest import HALTS, MAC, Card, TinyGuest
from tests.support.live.vm_page import WAITS, Caps, caps

pytestmark = pytest.mark.costs

HOST, GUEST, PORT = "192.0.2.1", "192.0.2.2", 5201
WINDOW = "a TCP window of what this host sends to it"
SOURCES = ("vm_states", "thread_waits", "link_rates", "io_limits")
READS = """
import socket, sys, time
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen()
print("ready", flush=True)
one, _ = server.accept()
while one.recv(1 << 12):
    time.sleep(float(sys.argv[3]))
"""
SENDS = """
import socket, sys, time
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    one.send(bytes(1 << 14))
    time.sleep(float(sys.argv[3]))
"""


@contextmanager
def host() -> Iterator[tuple[Namespace, Namespace]]:
    """A namespace that stands for a host, and one for the network stack of its guest, with the MAC of its card."""
    here, inside = Namespace(), Namespace()
    try:
        here.ip("link", "add", "to-guest", "type", "veth", "peer", "name", "eth0", "netns", inside.name)
        inside.ip("link", "set", "eth0", "address", MAC)
        for namespace, device, address in ((here, "to-guest", HOST), (inside, "eth0", GUEST)):
            namespace.ip("address", "add", f"{address}/24", "dev", device)
            namespace.ip("link", "set", device, "up")
        yield here, inside
    finally:
        here.remove()
        inside.remove()


@contextmanager
def ready(one: subprocess.Popen[str]) -> Iterator[None]:
    try:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
        yield
    finally:
        one.kill()
        one.communicate()


def seen(here: Namespace, one: TinyGuest) -> Caps:
    return caps(one, SOURCES, where=("ip", "netns", "exec", here.name))


@pytest.mark.parametrize(("reads_every_s", "sends_every_s", "state"), [(0.05, 0.0, "caps"), (0.0, 0.001, "free")])
def test_the_window_of_a_receiver_that_reads_slowly_is_told_and_of_a_quick_one_not(
    reads_every_s: float, sends_every_s: float, state: str
) -> None:
    with host() as (here, inside), closing(TinyGuest(HALTS, Card.DEAF, inside=here)) as one:
        reads = inside.start(READS, GUEST, PORT, reads_every_s, python=BARE_PYTHON)
        with ready(reads), ready(here.start(SENDS, GUEST, PORT, sends_every_s, python=BARE_PYTHON)):
            found = seen(here, one)
    said = found[WINDOW]
    assert said["state"] == state, found
    if state == "caps":
        assert said["text"].startswith(f"the receiver's window of {GUEST}:{PORT} from "), said
        assert found["first"]["text"] in (said["text"], found[WAITS]["text"]), found
