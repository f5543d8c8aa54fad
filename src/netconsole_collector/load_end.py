"""One end of a calibration's load (netconsole/calibrate/load.py), in a network namespace of its own.

The namespace has no name, and the veth pair is made inside it. Both disappear with the last process in them. Nothing is
ever visible in the host's own namespace.

Arguments: the process to end with. On a far host "far", and the seconds of silence after which it ends. In both cases
the kernel kills it, whatever it is doing.

Commands are JSON lines on standard input. Each is answered by one line. The end of the input ends the process.
"""

import contextlib
import ctypes
import gc
import json
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from netconsole_collector.load_guest import TAP, LoadGuest
from netconsole_collector.load_switch import (
    BEHIND,
    BRIDGE,
    DROPPED,
    LOCAL,
    LOCAL_MAC,
    OVER,
    OVER_MAC,
    UPCALLED,
    LoadSwitch,
)

DEVICE = "nc-load"
ADDRESSES = ("192.0.2.1", "192.0.2.2")
"""From the block for documentation (RFC 5737). Only the two ends can see them."""
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
GUEST_NEAR, GUEST, GUEST_MAC = "198.51.100.1", "198.51.100.2", "02:00:00:00:00:03"
"""The tap at the far end, and who is behind it (from the same RFC)."""
_TARGETS = {"": ADDRESSES[1], "guest": GUEST, "over": OVER, "upcall": UPCALLED, "drop": DROPPED}
"""To whom the load goes, by the name that commands have for it."""
CLOSED_PORT = 9
PAYLOAD = bytes(64)
CHUNK = 128 * 1024
WARM_S = 0.1
"""Time of sending before counting starts: the first packets open TCP windows, fill caches and wake the other CPU."""
_BATCH = 64
"""Packets between two readings of the clock."""
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_BUFFER_BYTES = 8 * 1024 * 1024

Result = Dict[str, Any]


def main(arguments: List[str]) -> None:
    """Answer commands until the input ends. Arguments: PARENT, or "far" SILENCE_S."""
    silence_s = float(arguments[1]) if arguments[0] == "far" else 0.0
    if not silence_s:
        _die_with(int(arguments[0]))
    _own_namespace()
    gc.disable()  # a collection during a window would look like the cost of a probe
    end = _End()
    for line in _lines(silence_s):
        command = json.loads(line.decode())
        try:
            answer = getattr(end, "do_" + command.pop("do"))(**command)
        except OSError as error:
            answer = {"error": error.strerror or str(error)}
        except RuntimeError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer or {}), flush=True)
        gc.collect()


def _lines(silence_s: float) -> Iterator[bytes]:
    """The commands. A thread hears them, also while one is carried out, and ends the process with the input."""
    heard = queue.Queue()  # type: queue.Queue[bytes]

    def listen() -> None:
        rest = b""
        while True:
            signal.setitimer(signal.ITIMER_REAL, silence_s)  # the kernel ends what hears nothing; 0: never
            part = os.read(0, 4096)
            if not part:
                os._exit(0)
            lines = (rest + part).split(b"\n")
            rest = lines.pop()
            for line in filter(None, lines):  # an empty one says that the line is whole
                heard.put(line)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield heard.get()


class _End:
    def __init__(self) -> None:
        self._ports: Mapping[str, int] = {}
        self._guest: Optional[LoadGuest] = None
        self._switch: Optional[LoadSwitch] = None

    def do_hello(self) -> Result:
        return {"pid": os.getpid(), "cpus": sorted(os.sched_getaffinity(0))}

    def do_wire(self, peer: int) -> None:
        """Make a pair of devices: one end here, the other in the namespace of process ``peer``."""
        other = ("type", "veth", "peer", "name", DEVICE, "netns", str(peer))
        _ip("link", "add", DEVICE, *other)

    def do_address(self, side: int) -> None:
        """Bring this end up. The neighbour entry is permanent, so that there are no ARP packets."""
        _ip("link", "set", DEVICE, "address", MACS[side], "up")
        _ip("address", "add", f"{ADDRESSES[side]}/24", "dev", DEVICE)
        _ip("neighbour", "replace", ADDRESSES[1 - side], "lladdr", MACS[1 - side], "dev", DEVICE, "nud", "permanent")

    def do_serve(self) -> Result:
        """Start the servers on ports that the kernel chooses."""
        return {"ports": {"tcp": _listen(), "echo": _bind(_echo), "sink": _bind(_sink)}}

    def do_guest(self) -> None:
        """Make a guest's side of vhost behind a tap, to which this end forwards."""
        self._guest = LoadGuest()
        _ip("link", "set", TAP, "up")
        _ip("address", "add", f"{GUEST_NEAR}/24", "dev", TAP)
        _ip("neighbour", "replace", GUEST, "lladdr", GUEST_MAC, "dev", TAP, "nud", "permanent")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
            file.write("1")

    def do_to_guest(self) -> None:
        """Send what is for the guest by the other end."""
        _ip("route", "add", GUEST, "via", ADDRESSES[1])

    def do_switch(self, peer: int) -> None:
        """Make a bridge of Open vSwitch, with this end at it and a wire to the namespace of process ``peer``."""
        self._switch = LoadSwitch(_run, peer)
        _ip("link", "set", BRIDGE, "address", LOCAL_MAC, "up")
        _ip("address", "add", f"{LOCAL}/24", "dev", BRIDGE)
        for one in (OVER, UPCALLED, DROPPED):
            _ip("neighbour", "replace", one, "lladdr", OVER_MAC, "dev", BRIDGE, "nud", "permanent")

    def do_behind(self) -> None:
        """Bring up the wire from a bridge that the other end has made."""
        _ip("link", "set", BEHIND, "address", OVER_MAC, "up")
        _ip("address", "add", f"{OVER}/24", "dev", BEHIND)
        _ip("neighbour", "replace", LOCAL, "lladdr", LOCAL_MAC, "dev", BEHIND, "nud", "permanent")

    def do_received(self) -> Result:
        """Packets that the guest has received so far."""
        assert self._guest is not None
        return {"units": self._guest.received()}

    def do_from_guest(self, seconds: float) -> Result:
        """The guest sends as fast as vhost takes it."""
        assert self._guest is not None
        warm, began = self._guest.send(WARM_S), time.monotonic()
        units = self._guest.send(seconds)
        return {"units": units, "units_in_all": warm + units, "seconds": time.monotonic() - began}

    def do_ports(self, ports: Mapping[str, int]) -> None:
        """Take the ports of the other end's servers."""
        self._ports = ports

    def do_cpus(self, cpus: List[int]) -> None:
        """Run on these CPUs only, with all threads that exist already."""
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), cpus)

    def do_used(self) -> Result:
        """CPU time so far of this process and of its children that have ended."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {"cpu_ns": _cpu_ns() + round((children.ru_utime + children.ru_stime) * 1e9)}

    def do_stream(
        self, streams: int, seconds: float, kind: str = "tcp", size: int = CHUNK, threads: int = 0, to: str = ""
    ) -> Result:
        """Send ``size`` bytes at a time as fast as possible over this many connections.

        ``threads``: so many send, each over its share of them in turn; 0: one for each connection.
        """
        sockets = [self._connected_to(to, kind, b"s") for _ in range(streams)]
        stop = threading.Event()
        sent = [0] * (threads or streams)

        def push(number: int) -> None:
            own, chunk = sockets[number :: len(sent)], memoryview(bytes(size))
            while not stop.is_set():
                for wire in own:
                    sent[number] += wire.send(chunk)

        pushing = [threading.Thread(target=push, args=(number,)) for number in range(len(sent))]
        for thread in pushing:
            thread.start()
        time.sleep(WARM_S)
        before, began = sum(sent), time.monotonic()
        time.sleep(seconds)
        units, elapsed_s = sum(sent) - before, time.monotonic() - began
        stop.set()
        for thread in pushing:
            thread.join()
        for wire in sockets:
            wire.close()
        return {"units": units, "seconds": elapsed_s, "units_in_all": sum(sent)}

    def do_round_trips(self, kind: str, seconds: float, to: str = "") -> Result:
        """Send small requests, each when the answer to the last one has arrived."""
        with self._connected_to(to, kind, b"r") as wire:
            warm = len(_exchange(wire, WARM_S))
            taken = sorted(_exchange(wire, seconds))
        if not taken:
            raise RuntimeError("no request was answered")
        at = {name: taken[min(len(taken) - 1, int(share * len(taken)))] for name, share in _PERCENTILES}
        at.update(min=taken[0], max=taken[-1])
        return {"units": len(taken), "units_in_all": warm + len(taken), "mean": sum(taken) / len(taken), **at}

    def do_datagrams(self, dropped: bool, seconds: float, to: str = "", flows: int = 1) -> Result:
        """Send small datagrams as fast as possible, to a socket that receives them or to a closed port; of these flows.

        Each flow has a socket of its own, and a thread where there are several.
        """
        target = _TARGETS[to], CLOSED_PORT if dropped or to == "guest" else self._ports["sink"]
        wires = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
        warm = _send_all(wires, target, WARM_S)
        cpu_ns, began = _cpu_ns(), time.monotonic()
        units = _send_all(wires, target, seconds)
        elapsed_s, used_ns = time.monotonic() - began, _cpu_ns() - cpu_ns
        for wire in wires:
            wire.close()
        return {"units": units, "units_in_all": warm + units, "seconds": elapsed_s, "cpu_ns": used_ns}

    def _connected_to(self, to: str, kind: str, purpose: bytes) -> socket.socket:
        """A connection to a server of the other end: ``s`` takes what comes, ``r`` answers."""
        if kind == "tcp":
            return _connect(_TARGETS[to], self._ports["tcp"], purpose)
        return _connected(_TARGETS[to], self._ports["echo" if purpose == b"r" else "sink"])


_PERCENTILES = (("p50", 0.50), ("p90", 0.90), ("p99", 0.99))


def _now_ns() -> int:
    return int(time.monotonic() * 1e9)  # Python 3.6 has no other


_clock_ns: Callable[[], int] = getattr(time, "monotonic_ns", _now_ns)


def _cpu_ns() -> int:
    return int(time.process_time() * 1e9)


def _exchange(wire: socket.socket, seconds: float) -> "array[int]":
    """Nanoseconds of every round trip."""
    taken, clock, buffer = array("Q"), _clock_ns, bytearray(len(PAYLOAD))
    until = clock() + int(seconds * 1e9)
    sent = clock()
    while sent < until:
        wire.send(PAYLOAD)
        wire.recv_into(buffer)
        now = clock()
        taken.append(now - sent)
        sent = now
    return taken


def _send(wire: socket.socket, to: Tuple[str, int], seconds: float) -> int:
    until, sent = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for _ in range(_BATCH):
            wire.sendto(PAYLOAD, to)
        sent += _BATCH
    return sent


def _send_all(wires: List[socket.socket], to: Tuple[str, int], seconds: float) -> int:
    """By each of them at once."""
    sent = [0] * len(wires)

    def send(number: int) -> None:
        sent[number] = _send(wires[number], to, seconds)

    others = [threading.Thread(target=send, args=(number,)) for number in range(1, len(wires))]
    for thread in others:
        thread.start()
    send(0)
    for thread in others:
        thread.join()
    return sum(sent)


def _connected(address: str, port: int) -> socket.socket:
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.settimeout(None)
    wire.connect((address, port))
    return wire


def _connect(address: str, port: int, purpose: bytes) -> socket.socket:
    wire = socket.create_connection((address, port))
    if purpose == b"r":
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.send(purpose)
    return wire


# ---- the serving end ----


def _listen() -> int:
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.bind(("", 0))
    server.listen(128)

    def accept() -> None:
        while True:
            wire, _ = server.accept()
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            purpose = wire.recv(1)
            threading.Thread(target=_echo if purpose == b"r" else _sink, args=(wire,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(server.getsockname()[1])


def _bind(serve: Callable[[socket.socket], None]) -> int:
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    wire.bind(("", 0))
    threading.Thread(target=serve, args=(wire,), daemon=True).start()
    return int(wire.getsockname()[1])


_SO_RCVBUFFORCE = 33
"""include/uapi/asm-generic/socket.h: allows more than net.core.rmem_max, which is set for the whole host."""


def _echo(wire: socket.socket) -> None:
    with wire, contextlib.suppress(OSError):
        if wire.type == socket.SOCK_DGRAM:
            while True:
                request, sender = wire.recvfrom(2048)
                wire.sendto(request, sender)
        request = wire.recv(2048)
        while request:
            wire.send(request)
            request = wire.recv(2048)


def _sink(wire: socket.socket) -> None:
    buffer = bytearray(2 * CHUNK)
    with wire, contextlib.suppress(OSError):
        while wire.recv_into(buffer) or wire.type == socket.SOCK_DGRAM:
            pass


# ---- where it runs ----


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the parent dies. If the parent is dead already, end now."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process


def _own_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        why = "no network namespace: {}".format(os.strerror(ctypes.get_errno()))
        print(json.dumps({"error": why}), flush=True)
        sys.exit(1)
    # IPv6 sends packets by itself, which would be measured too. The setting is that of our namespace alone.
    with contextlib.suppress(OSError):
        for scope in ("all", "default"):
            with open("/proc/sys/net/ipv6/conf/{}/disable_ipv6".format(scope), "w") as file:
                file.write("1")


def _ip(*words: str) -> None:
    _run("ip", "iproute2", *words)


def _run(program: str, package: str, *words: str) -> None:
    """Raises RuntimeError."""
    try:
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"),
            universal_newlines=True,
            timeout=30,
        )
    except OSError as error:
        raise RuntimeError("{} ({}) cannot be run: {}".format(program, package, error.strerror)) from None
    if done.returncode:
        raise RuntimeError("{} {}: {}".format(program, " ".join(words), done.stderr.strip()))
