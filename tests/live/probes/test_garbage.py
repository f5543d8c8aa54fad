"""Garbage on the wire beside counted traffic: no probe miscounts what is valid, and none stops."""

from __future__ import annotations

import random

import pytest

from netconsole.telemetry import frames
from tests.support.live import garbage
from tests.support.live.measurement import Measurement
from tests.support.live.network import send_udp
from tests.support.live.path import A6, B6, A, B, Host

LOCAL, DROPS, QUEUES, SOFTIRQS = "local_path", "kernel_drops", "tx_queue_latency", "softirq_health"
PORT, FROM = 7777, 7778
VALID = 20_000
RECEIVE = """
import socket, sys
receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE: room for all
receiver.bind(("::", int(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def probes(collector: Measurement, bridged: Host) -> Measurement:
    collector.load(LOCAL, host_devices="eth0", netns=bridged.b.inode)
    for name in (DROPS, QUEUES, SOFTIRQS):
        collector.load(name)
    return collector


@pytest.mark.parametrize(("source", "target"), [(A, B), (A6, B6)])
def test_valid_traffic_is_counted_exactly_beside_garbage(
    probes: Measurement, bridged: Host, source: str, target: str
) -> None:
    receiver = bridged.b.start(RECEIVE, PORT)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    before = dict(probes.statuses)
    probes.begin()
    send_udp(bridged.a, target, PORT, 1, source_port=FROM)  # its row is there before the table fills up
    fuzz = bridged.a.start(garbage.FUZZ, "eth0", random.randrange(2**31), garbage.PACKETS)
    send_udp(bridged.a, target, PORT, VALID, source_port=FROM)
    probes.settle()  # before the row is idle: the collector makes room in a full table
    flow: dict[str, frames.Label] = {"source": source, "target": target, "source_port": FROM, "target_port": PORT}
    assert probes.total(LOCAL, "flows", "samples", direction="in", **flow) == VALID + 1
    fuzz.communicate(timeout=garbage.LIMIT_S)
    assert fuzz.returncode == 0
    receiver.communicate("end\n", timeout=garbage.LIMIT_S)
    probes.settle()
    assert probes.ledger(LOCAL, "parse_failed") > garbage.PACKETS / 100
    assert probes.statuses == before, "none was tripped"
