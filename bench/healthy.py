"""What STANDS OUT says of a host on which nothing is wrong: nothing. First without load, then with a healthy one.

usage: python bench/healthy.py [MINUTES]      (default 10, of each; needs root)

The healthy load: TCP in both directions over a wire between two namespaces, as fast as it goes, 2 000 datagrams a
second to a socket that reads them, 20 a second in fragments, and 20 pings a second from a raw socket. Prints every
incident with its evidence; asserts nothing. What others do on this host meanwhile is seen, too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.findings.incident import told
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from tests.support.live.network import Namespace, Wire

SERVER = """
import socket, threading
def stream(one, way):
    data = bytearray(65536)
    try:
        while one.recv_into(data) if way else one.send(data):
            pass
    except OSError:
        pass
tcp = socket.create_server(("", 5001))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
udp.bind(("", 5002))
threading.Thread(target=lambda: [udp.recv(8192) for _ in iter(int, 1)], daemon=True).start()
print("ready", flush=True)
number = 0
while True:
    one, _ = tcp.accept()
    threading.Thread(target=stream, args=(one, number % 2 == 0), daemon=True).start()
    number += 1
"""
CLIENT = """
import socket, sys, threading, time
target = sys.argv[1]
def stream(one, way):
    data = bytearray(65536)
    while one.send(data) if way else one.recv_into(data):
        pass
for way in (True, False):
    one = socket.create_connection((target, 5001))
    threading.Thread(target=stream, args=(one, way), daemon=True).start()
    time.sleep(0.2)
ping, echo = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), bytes.fromhex("0800f7fe00010000")
threading.Thread(target=lambda: [ping.recv(2048) for _ in iter(int, 1)], daemon=True).start()
udp, started, number = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), time.monotonic(), 0
while True:
    while number < 2000 * (time.monotonic() - started):
        udp.sendto(bytes(200), (target, 5002))
        number += 1
        if number % 100 == 0:
            udp.sendto(bytes(4000), (target, 5002))
            ping.sendto(echo, (target, 0))
    time.sleep(0.01)
"""


def observe(minutes: float) -> Sequence[str]:
    """The incidents of so many minutes under the profile summary."""
    manifests = load_all()
    profile = load("summary", manifests)
    session = session_of(plan(profile, manifests), profile, manifests)
    incidents, lock = Incidents(manifests, profile.budget), threading.Lock()

    def note(_news: object) -> None:
        with lock, session.view() as state:
            incidents.update(state, session.connection())

    session.on_news(note)
    with closing(session):
        session.start()
        time.sleep(60 * minutes)
        with lock:
            return [f"{one.level} {told(one)}  {one.cause} {[e.probe for e in one.evidence]}" for one in incidents.log]


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    for name in ("quiet", "busy and healthy"):
        with ExitStack() as stack:
            if name != "quiet":
                a, b = Namespace(), Namespace()
                stack.callback(b.remove)
                stack.callback(a.remove)
                Wire(a, b)
                for namespace, code, argument in ((b, SERVER, ""), (a, CLIENT, Wire.ADDRESSES[1])):
                    process = namespace.start(code, argument)
                    stack.callback(process.wait)
                    stack.callback(process.kill)
                    if code is SERVER:
                        assert process.stdout is not None and process.stdout.readline() == "ready\n"
            found = observe(minutes)
        print(f"{name}, {minutes:g} minutes: {len(found)} incidents", *found, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
