"""A storm in which every packet is a new flow: ovs_upcalls goes on for a share of the time, and comes back completely.

The count stays exact. The governor takes this step when a storm costs too much; here the test takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from netconsole.telemetry.ledger import UNSEEN
from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.wires import Wires

PROBE = "ovs_upcalls"
END_LIMIT_S = 60.0
NEW_FLOWS = 30
PATIENT_MS = 60_000
"""Longer than a handler can be without a CPU here."""
SHARE_PCT = 30
RESTED_MS = 20_000
"""Time in which it rested: some periods."""
EACH, NONE = ("upcalls", "packets", "answered"), ("failed", "dropped", "unanswered", "late")

# At most 64 of them wait for their answer. Ends with its input.
STORM = """
import ctypes, os, select, socket, struct, sys
os.sched_setaffinity(0, {0})
libc, there = ctypes.CDLL(None), os.open("/run/netns/a", 0)
answers = open("/sys/class/net/vb/statistics/tx_packets")
assert not libc.setns(there, 0)
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind(("eth0", 0))
def answered():
    answers.seek(0)
    return int(answers.read())
def is_over():
    return bool(select.select([sys.stdin], [], [], 0)[0])
ip = struct.pack("!BBHHHBBH", 0x45, 0, 48, 0, 0x4000, 64, 17, 0) + b"\\12\\11\\0\\1" + b"\\12\\11\\0\\2"
udp = struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)
begun, sent = answered(), 0
while not is_over():
    for _ in range(8):
        device.send(b"\\2BB\\0\\0\\1\\2S" + struct.pack("!I", sent) + b"\\10\\0" + ip + udp)
        sent += 1
    while sent - (answered() - begun) >= 64 and not is_over():
        pass
print(sent)
"""
# One rule looks at source addresses, so that every flow in the kernel has to.
RULES = ("priority=100,in_port=va,actions=output:vb", "priority=200,in_port=va,dl_src=02:ff:ff:ff:ff:ff,actions=drop")

UNDISTURBED = ("max-idle", "max-revalidator")
"""Nobody looks through flows meanwhile; above 10 000 no more are put, and packets are answered all the same."""


@contextmanager
def storm(wires: Wires) -> Iterator[None]:
    """Of new flows, until the end of this context."""
    hypervisor, ovs = wires.hypervisor, wires.ovs
    for rule in RULES:
        hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, rule)
    ovs.vsctl("set", "Open_vSwitch", ".", *(f"other_config:{setting}=600000" for setting in UNDISTURBED))
    try:
        with hypervisor.start("python3", "-c", STORM) as sender:
            yield
            sender.close_input()
            assert sender.wait(END_LIMIT_S).code == 0
    finally:
        for rule in RULES:
            hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule.partition(",actions")[0])
        ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", *UNDISTURBED)
        hypervisor.run("ovs-appctl", "revalidator/purge")


@pytest.fixture(scope="module", autouse=True)
def alone(testbed: Testbed) -> None:
    """Probes come and go beside traffic: docs/design/lab.md says why no guest runs meanwhile."""
    testbed.rest()


@pytest.fixture
def upcalls(testbed: Testbed, lab: Lab) -> InsideMeasurement:
    """A collector with the probe, in summary."""
    collector: InsideMeasurement = lab.collector(testbed)
    collector.need(PROBE)
    collector.set(PROBE)
    return collector


def settle(upcalls: InsideMeasurement) -> None:
    """Wait until all is counted, and until it is known of each packet whether it was answered."""
    upcalls.settle()
    lost = upcalls.counter(PROBE, "packets") - upcalls.counter(PROBE, "answered")
    upcalls.until(lambda: upcalls.ledger(PROBE, "join_missed") >= lost, "what became of packets that were under way")


@pytest.mark.proves("ovs_upcalls", "counters.upcalls", "ledger.unlisted", "knobs.seen_pct")
def test_a_storm_is_counted_exactly_and_seen_for_a_share_of_the_time_and_rows_are_exact_again_after_it(
    wires: Wires, upcalls: InsideMeasurement
) -> None:
    def has_rested() -> bool:
        return upcalls.ledger(PROBE, UNSEEN) > RESTED_MS

    upcalls.begin()
    before = wires.ovs.upcalls()["missed"]
    with storm(wires):
        upcalls.set(PROBE, seen_pct=SHARE_PCT, unanswered_after_ms=PATIENT_MS)
        upcalls.until(has_rested, "rests")
        upcalls.set(PROBE, unanswered_after_ms=PATIENT_MS)
    settle(upcalls)
    counted, listed = upcalls.counter(PROBE, "upcalls"), upcalls.total(PROBE, "upcalls", "upcalls")
    timed = upcalls.samples(PROBE, "latency")
    print(f"{counted} upcalls, {listed} in rows, {timed} timed")
    assert counted == wires.ovs.upcalls()["missed"] - before
    assert 0 < upcalls.ledger(PROBE, "unlisted") == counted - listed
    assert 0 < timed <= listed
    upcalls.begin()
    wires.send("udp", NEW_FLOWS)
    upcalls.settle()
    rows = {name: upcalls.total(PROBE, "upcalls", name, port="va") for name in (*EACH, *NONE)}
    assert rows == {**dict.fromkeys(EACH, NEW_FLOWS), **dict.fromkeys(NONE, 0)}
    assert (upcalls.ledger(PROBE, "unlisted"), upcalls.ledger(PROBE, "join_missed")) == (0, 0)


@pytest.mark.proves("ovs_upcalls", "counters.upcalls", "tables.upcalls.upcalls", "ledger.unlisted", "modes.counters")
def test_what_is_under_way_when_the_mode_changes_is_never_unanswered(wires: Wires, upcalls: InsideMeasurement) -> None:
    """To and fro under a storm: what was asked or answered unseen is in the ledger, and everything is counted."""

    def has_more(counted: int) -> bool:
        return upcalls.counter(PROBE, "upcalls") > counted

    upcalls.begin()
    before = wires.ovs.upcalls()["missed"]
    with storm(wires):
        for mode in ("counters", "summary") * 3:
            counted = upcalls.counter(PROBE, "upcalls")
            upcalls.set(PROBE, mode, unanswered_after_ms=PATIENT_MS)
            upcalls.until(partial(has_more, counted), "upcalls")
            upcalls.settle()
    settle(upcalls)
    counted = upcalls.counter(PROBE, "upcalls")
    assert counted == wires.ovs.upcalls()["missed"] - before
    assert upcalls.total(PROBE, "upcalls", "upcalls") + upcalls.ledger(PROBE, "unlisted") == counted
    fates = {name: upcalls.counter(PROBE, name) for name in ("unanswered", "unasked", "refused", "late")}
    upcalls.set(PROBE)
    assert fates == dict.fromkeys(fates, 0)
