"""An emulated arm64 machine, measured from this one: programs compiled here run there, and N packets are N."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.profile.plan import plan
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole.session.live import LiveSession
from netconsole.telemetry.state import State
from tests.lab.machine.arm64 import KERNEL, Arm64
from tests.lab.machine.errors import LabUnavailable
from tests.lab.ping.door import HYPERVISOR, Door, patient
from tests.support.session_news import SessionNews

ONLY_KERNEL = KERNEL
"""By which the lab knows where this file belongs (conftest.py)."""

SENT = 500
LIMIT_S = 240.0
INSIDE, OUTSIDE = "in0", "out0"
PROBES = {
    "kernel_drops": ProbeChoice(),
    "tx_queue_latency": ProbeChoice(knobs={"device": OUTSIDE}),
    "host_path": ProbeChoice(knobs={"inside_devices": INSIDE, "outside_devices": OUTSIDE, "protocol": "udp"}),
}
# a - in0, this host, out0 - b. Nobody asks for an address, and b knows no way back: all that it gets it drops.
WIRES = f"""
echo 1 >/proc/sys/net/ipv4/ip_forward
for end in a b; do
    ip netns add $end
done
quiet='for one in all default; do echo 1 >/proc/sys/net/ipv6/conf/$one/disable_ipv6; done'
for inside in "" "ip netns exec a" "ip netns exec b"; do $inside dash -c "$quiet"; done
ip link add {INSIDE} address 02:00:00:00:00:01 type veth peer name eth0 netns a
ip link add {OUTSIDE} type veth peer name eth0 address 02:00:00:00:00:02 netns b
ip address add 10.99.1.1/24 dev {INSIDE}
ip address add 10.99.2.1/24 dev {OUTSIDE}
ip -n a address add 10.99.1.2/24 dev eth0
ip -n b address add 10.99.2.2/24 dev eth0
ip link set {INSIDE} up
ip link set {OUTSIDE} up
ip -n a link set eth0 up
ip -n b link set eth0 up
ip -n a neighbour replace 10.99.1.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent
ip neighbour replace 10.99.2.2 lladdr 02:00:00:00:00:02 dev {OUTSIDE} nud permanent
ip -n a route add default via 10.99.1.1
tc qdisc replace dev {OUTSIDE} root pfifo limit 10000
"""
SEND = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[1])):
    sender.sendto(bytes(64), ("10.99.2.2", 9))
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Arm64]:
    try:
        machine = Arm64()
    except LabUnavailable as error:
        pytest.skip(str(error))
    with closing(machine):
        yield machine


def test_n_packets_through_an_arm64_host_are_n_for_each_probe(machine: Arm64, tmp_path: Path) -> None:
    machine.shell(WIRES)
    b = {"b", machine.run("stat", "-L", "-c", "%i", "/run/netns/b").text.strip()}
    requests = plan(Profile("arm64", probes=PROBES), load_all())

    def counted(state: State) -> dict[str, int]:
        """The machine's own traffic has other devices and protocols."""
        found = {
            f"{probe} {name}": state.probes[probe].counters[name].count.total
            for probe, name in (
                ("tx_queue_latency", "queued"),
                ("tx_queue_latency", "sent"),
                ("host_path", "packets"),
                ("host_path", "crossed"),
            )
            if name in state.probes[probe].counters
        }
        rows = (
            state.probes["kernel_drops"].tables["drops"].rows if "drops" in state.probes["kernel_drops"].tables else {}
        )
        found["kernel_drops in b"] = sum(
            row.counts["count"].total
            for row in rows.values()
            if str(row.labels["netns"]) in b and row.labels["reason"] == "NO_SOCKET"
        )
        return found

    with patient(), Door(machine, [], tmp_path) as door, closing(door.approach(HYPERVISOR)) as way:
        there = way.enter([])
        assert there.about is not None
        assert (there.about.machine, there.about.has_bcc) == ("aarch64", False)
        with closing(LiveSession(there, requests)) as session:
            news = SessionNews(session, LIMIT_S)
            session.start()
            news.until(lambda state: all(state.probes[probe].settled for probe in PROBES))
            with session.view() as state:
                for probe in PROBES:
                    assert state.probes[probe].measuring, state.probes[probe].why
            machine.run("ip", "netns", "exec", "a", "python3", "-I", "-S", "-c", SEND, str(SENT), limit_s=LIMIT_S)
            news.until(lambda state: min(counted(state).values()) >= SENT)
            with session.view() as state:
                seen = state.collector.intervals
            news.until(lambda state: state.collector.intervals > seen)
            with session.view() as state:
                found = counted(state)
    assert len(found) == 5
    assert found == dict.fromkeys(found, SENT)
