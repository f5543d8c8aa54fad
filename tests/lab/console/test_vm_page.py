"""`netconsole vm` on a hypervisor: a guest that cannot take its packets is said to be capped, and by what."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.machine.l2 import Guest
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import frozen, qemu_pid, stopped, worker_pids
from tests.lab.pytest_inside import console_command

pytestmark = [pytest.mark.booting, pytest.mark.long]

WITHOUT_BPF = ("vm_states", "thread_waits", "link_rates")
PROBES = (*WITHOUT_BPF, "tun_queues")
LIMIT_S = 180.0
RULES, NEVER = 3000, "match ip dst 192.0.2.1/32 action pass"
"""Rules of tc of each priority, none of which fits. A table of u32 has room for 4095."""
SENDER = """
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    sender.sendto(bytes(60), (sys.argv[1], 9))
    time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def host(testbed: Testbed) -> Testbed:
    bring(testbed.hypervisor, shipped(PROBES).values())
    return testbed


@contextlib.contextmanager
def flooded(host: Testbed, ip: str) -> Iterator[None]:
    """Some hundred packets a second go there."""
    with host.hypervisor.start("python3", "-c", SENDER, ip) as sender:
        yield
        sender.signal(signal.SIGKILL)


def caps(host: Testbed, name: str, probes: Sequence[str] = PROBES, duration: str = "5s") -> dict[str, Any]:
    """What caps a VM, and each cap by its name."""
    words = [word for probe in probes for word in ("--probe", probe)]
    command = console_command("vm", name, "--duration", duration, "--format", "json", *words)
    found = json.loads(host.hypervisor.run(*command, check=False, limit_s=LIMIT_S).text)["vms"][0]
    return {"verdict": found["verdict"]["text"], **{cap["name"]: cap for cap in found["caps"]}}


def test_a_guest_that_is_stopped_is_said_first_and_its_tap_is_known(host: Testbed) -> None:
    guest = host.guests[0]
    with stopped(host.hypervisor, guest):
        found = caps(host, guest.name)
    assert found["verdict"].startswith("it is stopped: its QEMU process gets no CPU")
    assert found["whether it runs"]["state"] == "caps"
    assert found["the rings of its taps"]["state"] == "free", "nobody sends to it"
    assert found["a shaper or queue of its tap"]["state"] == "free", "its tap is known"


def test_a_guest_that_takes_nothing_caps_by_the_ring_of_its_tap(host: Testbed) -> None:
    guest = host.guests[0]
    with frozen(host.hypervisor, guest), flooded(host, guest.card.at.ip):
        found = caps(host, guest.name)
    assert found["the rings of its taps"]["state"] == "caps", found
    assert guest.card.tap in found["the rings of its taps"]["text"]
    assert not found["verdict"].startswith("nothing")


def test_one_flow_has_one_queue_of_several(host: Testbed) -> None:
    guest = host.guests[1]
    target = guest.card.at.ip
    with host.hypervisor.start("python3", "-c", SENDER.replace("0.002", "0"), target) as sender:
        found = caps(host, guest.name)
        sender.signal(signal.SIGKILL)
    told = found["how packets spread over its queues"]
    assert told["state"] == "caps" and f"of {guest.card.queues} of {guest.card.tap} carries" in told["text"], told


@contextlib.contextmanager
def made(host: Testbed, begin: str, end: str) -> Iterator[None]:
    """Something of the hypervisor's, for so long."""
    host.hypervisor.shell(begin)
    try:
        yield
    finally:
        host.hypervisor.shell(end)


@pytest.mark.parametrize(
    ("modules", "begin", "end", "name", "said"),
    [
        (
            "sch_tbf",
            "tc qdisc add dev {tap} root tbf rate 8kbit burst 1600 limit 3000",
            "tc qdisc del dev {tap} root",
            "a shaper or queue of its tap",
            "tbf of 8 kbit/s at {tap} lets no more through",
        ),
        (
            "sch_ingress cls_matchall act_police",
            "tc qdisc add dev {tap} clsact;"
            " tc filter add dev {tap} egress matchall action police rate 8kbit burst 10k conform-exceed drop",
            "tc qdisc del dev {tap} clsact",
            "a policer of tc",
            "tc polices what {tap} receives to 8",
        ),
    ],
    ids=["shaper", "policer of tc"],
)
def test_what_limits_its_packets_is_named(
    host: Testbed, modules: str, begin: str, end: str, name: str, said: str
) -> None:
    guest = host.guests[0]
    names = {"tap": guest.card.tap}
    limited = made(host, f"modprobe -a {modules}; {begin.format(**names)}", end.format(**names))
    with limited, flooded(host, guest.card.at.ip):
        found = caps(host, guest.name)
    assert found[name]["state"] == "caps" and said.format(**names) in found[name]["text"], found
    # Threads of a guest in an emulated machine may wait for a CPU as well, which is said before it.
    assert found["verdict"] in (found[name]["text"], found["waits for a CPU"]["text"])


@contextlib.contextmanager
def sending(host: Testbed, guest: Guest, per_s: int) -> Iterator[None]:
    """The guest sends so many datagrams a second to the hypervisor."""
    guest.keep_sending_udp(per_s, host.bridge, port=9)
    try:
        yield
    finally:
        guest.be_quiet()


def test_a_policer_of_open_vswitch_is_named(host: Testbed) -> None:
    """It sheds with the kernel's own policer, which is counted; what the guest sends is more than its rate."""
    guest = host.guests[0]
    tap = guest.card.tap
    host.hypervisor.shell("modprobe -a sch_ingress cls_basic cls_matchall act_police")
    host.ovs.vsctl("set", "interface", tap, "ingress_policing_rate=80", "ingress_policing_burst=8")
    try:
        with sending(host, guest, 500):
            found = caps(host, guest.name)
            shown = host.hypervisor.run("tc", "-s", "filter", "show", "dev", tap, "ingress").text
    finally:
        host.ovs.vsctl("set", "interface", tap, "ingress_policing_rate=0", "ingress_policing_burst=0")
    dropped = sum(map(int, re.findall(r"dropped (\d+)", shown)))
    assert "police" in shown and dropped > 100, shown
    told = found["a policer of Open vSwitch"]
    assert told["state"] == "caps" and told["text"].startswith(f"Open vSwitch polices {tap} to 80.0kbit/s; it sends ")
    assert found["verdict"] == told["text"], "nothing else kept it from its limit"
    free = caps(host, guest.name)["a policer of Open vSwitch"]
    assert free["state"] == "free", free


def test_a_worker_that_can_move_no_more_packets_is_named(host: Testbed) -> None:
    """Each packet that the guest sends passes thousands of rules of tc in its own time, as in a large firewall.

    It has its CPU whoever else wants it. The rest of the machine has the other one, and the guest what is left of that.
    """
    guest = host.guests[0]
    tap, qemu = guest.card.tap, qemu_pid(host.hypervisor, guest)
    pids = " ".join(worker_pids(host.hypervisor, guest))
    rule = f"echo filter add dev {tap} ingress protocol ip prio $prio u32 {NEVER}"
    rules = f"for prio in 6 7 8 9; do for n in $(seq {RULES}); do {rule}; done; done"
    nice = f"for task in /proc/{qemu}/task/*; do taskset -pc 0 ${{task##*/}}; renice -n 15 -p ${{task##*/}}; done"
    first = f"for pid in {pids}; do taskset -pc 1 $pid; chrt -f -p 1 $pid; done"
    begin = f"modprobe -a sch_ingress cls_u32; tc qdisc add dev {tap} clsact; ({rules}) | tc -batch -; {nice}; {first}"
    last = f"for pid in {pids}; do chrt -o -p 0 $pid; taskset -pc 0,1 $pid; done; tc qdisc del dev {tap} clsact"
    end = f"{last}; {nice.replace('-pc 0 ', '-pc 0,1 ').replace('-n 15', '-n 0')}"
    with made(host, begin, end), sending(host, guest, 1500):
        found = caps(host, guest.name, WITHOUT_BPF, "10s")
    told = found["the vhost worker"]
    assert told["state"] == "caps" and told["text"].startswith("its vhost worker uses "), told
    assert told["text"].endswith("of a core: it can move no more packets")
    assert found["verdict"] in (told["text"], found["waits for a CPU"]["text"]), found
