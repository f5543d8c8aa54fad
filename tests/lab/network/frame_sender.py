"""Runs on the hypervisor: sends frames as told, and says when. Each line of its input is one order, as JSON.

Arguments: for each place to send from its namespace, its device, and the switch's port by which that comes in.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SOL_PACKET, PACKET_VNET_HDR = 263, 15
LIMIT_S = 60.0
libc = ctypes.CDLL(None, use_errno=True)


class Place:
    """`sender` sends by the device of a namespace; `large` sends what has struct virtio_net_hdr before the frame."""

    def __init__(self, netns: str, device: str, port: str) -> None:
        here, there = os.open("/proc/self/ns/net", 0), os.open("/run/netns/" + netns, 0)
        try:
            assert not libc.setns(there, CLONE_NEWNET)
            self.sender, self.large = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2))
            self.large.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            for one in (self.sender, self.large):
                one.bind((device, 0))
        finally:
            assert not libc.setns(here, CLONE_NEWNET)
            os.close(here)
            os.close(there)
        self.port = port


def await_sent(port: str, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while sent_by(port) < count:
        assert time.monotonic() < deadline, "no answer"
        time.sleep(0)


def sent_by(port: str) -> int:
    """How many packets the port has sent."""
    return int(Path("/sys/class/net", port, "statistics/tx_packets").read_text())


def send(place: Place, frames: Sequence[bytes], answered_by: str) -> list[list[int]]:
    """The clock before and after each frame. If a port is named, each frame has been sent by it before the next one."""
    times = []
    for frame in frames:
        expected = sent_by(answered_by) + 1 if answered_by else 0
        began = time.monotonic_ns()
        place.sender.send(frame)
        if answered_by:
            await_sent(answered_by, expected)
        times.append([began, time.monotonic_ns()])
    return times


def send_and_hold(place: Place, frame: bytes, answered_by: str, hold_ns: int) -> list[int]:
    """Sends it, and keeps this CPU from all others for so long. Who answers on this CPU cannot do so meanwhile.

    The clock: before it was sent, when the switch had it, when others could run again, and when it was answered. The
    second is 0 if the switch got it only later, as from ksoftirqd.
    """
    expected = sent_by(answered_by) + 1
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as seen:
        seen.bind((place.port, ETH_P_ALL))
        seen.setblocking(False)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        began = time.monotonic_ns()
        place.sender.send(frame)
        try:
            is_there = seen.recv(65536)[:12] == frame[:12]
        except BlockingIOError:
            is_there = False
        there = time.monotonic_ns()
        while is_there and time.monotonic_ns() < there + hold_ns:
            pass
        ended = time.monotonic_ns()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    await_sent(answered_by, expected)
    return [began, there if is_there else 0, ended, time.monotonic_ns()]


places = {one.split(",")[0]: Place(*one.split(",")) for one in sys.argv[1:]}
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    os.sched_setaffinity(0, set(order["cpus"]))
    place, frames = places[order["place"]], [bytes.fromhex(frame) for frame in order["frames"]]
    if order["hold_ns"]:
        told = [send_and_hold(place, frames[0], order["answered_by"], order["hold_ns"])]
    elif order["is_large"]:
        told = [[place.large.send(frame), 0] for frame in frames]
    else:
        told = send(place, frames * order["times"], order["answered_by"])
    print(json.dumps(told), flush=True)
