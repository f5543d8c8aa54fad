"""A storm in which every packet is a new flow: ovs_upcalls goes on for a share of the time, and comes back completely.

The count stays exact. The governor lowers it under the summary profile's budget, or the test does it by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

import pytest

from netconsole.budget.enforcer import Enforcer
from netconsole.budget.governor import REACTION_S
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.session import live
from netconsole.session.protocol import News
from netconsole.telemetry.state import State
from tests.lab.collector import InsideMeasurement, InsideProcess
from tests.lab.conftest import Lab
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.wires import Wires
from tests.support.session_news import SessionNews

PROBE = "ovs_upcalls"
LIMIT_S = 240.0
END_LIMIT_S = 60.0
NEW_FLOWS = 30
PATIENT_MS = 60_000
"""Longer than a handler can be without a CPU here."""
SHARE = 0.75
"""The budget, of what the storm costs here, where that is less than the profile's."""
BEFORE = 6
"""Figures to look at."""
PERIODS_MS = 20_000
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


class Interval(NamedTuple):
    """What one interval cost, and how many upcalls were in it."""

    mode: str
    upcalls: int
    kernel_pct: float


class Governed:
    """A session out here, its collector inside; governed as soon as there is a budget."""

    def __init__(self) -> None:
        self._manifests = load_all()
        self._profile = Profile("storm", probes={PROBE: ProbeChoice("summary")})
        self.session = live.LiveSession((), plan(self._profile, self._manifests), is_often=True)
        self.enforcer: Enforcer | None = None
        self.intervals: list[Interval] = []
        self.session.on_news(self._heard)
        self.until = SessionNews(self.session, LIMIT_S).until
        self.session.start()
        self.until(lambda state: bool(state.probes[PROBE].settled and state.collector.intervals))

    def govern(self, storm_pct: float) -> float:
        """Keep the kernel's part of the summary profile's budget, or less, so that a storm of this cost exceeds it.

        Returns the limit.
        """
        limit_pct = min(load("summary", self._manifests).budget.kernel_cpu_pct or 0.0, SHARE * storm_pct)
        profile = replace(self._profile, budget=Budget(kernel_cpu_pct=limit_pct, action="degrade"))
        self.enforcer = Enforcer(self.session, profile, self._manifests)
        self.enforcer.start()
        return limit_pct

    def is_under_way(self) -> bool:
        """Whether a storm is, since so many intervals that its cost is known."""
        return len(self.intervals) > BEFORE and all(one.upcalls for one in self.intervals[-BEFORE - 1 :])

    def lowered(self) -> bool:
        return bool(self.enforcer and self.enforcer.lowered)

    def _heard(self, news: News) -> None:
        with self.session.view() as state:
            probe = state.probes[PROBE]
            if news != "interval" or not probe.measuring or "upcalls" not in probe.counters:
                return
            upcalls = probe.counters["upcalls"].count.delta or 0
            self.intervals.append(Interval(probe.mode, upcalls, probe.cost.kernel_cpu_pct or 0.0))

    def wait(self, intervals: int) -> None:
        """Await so many intervals more; the second begins after now."""
        with self.session.view() as state:
            wanted = state.collector.intervals + intervals
        self.until(lambda state: state.collector.intervals >= wanted)

    def counted(self) -> int:
        """All upcalls since the probe was loaded, also those of this moment."""
        self.wait(2)
        with self.session.view() as state:
            return state.probes[PROBE].counters["upcalls"].count.total

    def rows(self, port: str | None = None) -> dict[str, int]:
        with self.session.view() as state:
            return rows(state, port)

    def timed(self) -> int:
        """Answers in the histograms of latency."""
        with self.session.view() as state:
            return sum(one.total.count for one in state.probes[PROBE].histograms["latency"].rows.values())

    def ledger(self, entry: str) -> int:
        with self.session.view() as state:
            return state.probes[PROBE].cost.ledger[entry].total


@pytest.fixture(scope="module", autouse=True)
def alone(testbed: Testbed) -> None:
    """Probes come and go beside traffic: docs/design/lab.md says why no guest runs meanwhile."""
    testbed.rest()


@pytest.fixture
def governed(wires: Wires, monkeypatch: pytest.MonkeyPatch) -> Iterator[Governed]:
    monkeypatch.setattr(live, "CollectorProcess", lambda *_: InsideProcess(wires.hypervisor))
    governed = Governed()
    yield governed
    governed.session.close()


def rows(state: State, port: str | None = None) -> dict[str, int]:
    """What the rows of all ports, or of one, add up to."""
    found = [row for row in state.probes[PROBE].tables["upcalls"].rows.values() if port in (None, row.labels["port"])]
    return {name: sum(row.total(name) or 0 for row in found) for name in (*EACH, *NONE)}


def is_whole(state: State) -> bool:
    probe = state.probes[PROBE]
    return probe.measuring and probe.mode == "summary"


@pytest.mark.proves("ovs_upcalls", "counters.upcalls", "ledger.unlisted", "knobs.seen_pct")
def test_a_storm_of_new_flows_is_counted_exactly_and_seen_for_a_share_of_the_time_and_rows_are_exact_again_after_it(
    wires: Wires, governed: Governed
) -> None:
    uncounted = wires.ovs.upcalls()["missed"] - governed.counted()
    with storm(wires):
        governed.until(lambda _: governed.is_under_way())
        limit_pct = governed.govern(fmean(one.kernel_pct for one in governed.intervals[-BEFORE:]))
        began = len(governed.intervals)
        governed.until(lambda _: governed.lowered())
        reacted = len(governed.intervals)
        timed = governed.timed()
        governed.until(lambda _: governed.ledger("unseen_ms") > PERIODS_MS)
        timed = governed.timed() - timed
        with governed.session.view() as state:
            share_pct = state.probes[PROBE].seen_pct
    assert governed.enforcer
    told = (f"{one.mode}: {one.kernel_pct:.2f} % at {one.upcalls} upcalls" for one in governed.intervals)
    print(f"budget {limit_pct:.2f} %:", *told, *governed.enforcer.actions, sep="\n  ")
    action, *more = governed.enforcer.actions
    assert action.probe == PROBE and action.action.startswith("summary, ") and (action.measured or 0) > limit_pct
    if "detached" in (one.action for one in more):
        print("figures of a busy machine had it detached: what was asked meanwhile it cannot know")
        return
    assert len([one for one in governed.intervals[began:reacted] if one.kernel_pct > limit_pct]) <= REACTION_S
    print(f"seen {share_pct} % of the time, {timed} answers were timed")
    assert timed > 0 and share_pct is not None and 0 < share_pct < 100
    governed.until(lambda state: not governed.lowered() and is_whole(state))
    total = governed.counted()
    assert wires.ovs.upcalls()["missed"] - total == uncounted
    unlisted = governed.ledger("unlisted")
    assert 0 < unlisted == total - governed.rows()["upcalls"]
    before, missed = governed.rows("va"), governed.ledger("join_missed")
    wires.send("udp", NEW_FLOWS)
    governed.until(lambda state: rows(state, "va")["answered"] == before["answered"] + NEW_FLOWS)
    governed.wait(2)
    added = {name: count - before[name] for name, count in governed.rows("va").items()}
    assert added == {**dict.fromkeys(EACH, NEW_FLOWS), **dict.fromkeys(NONE, 0)}
    assert (governed.ledger("unlisted"), governed.ledger("join_missed")) == (unlisted, missed)


@pytest.mark.proves("ovs_upcalls", "counters.upcalls", "tables.upcalls.upcalls", "ledger.unlisted", "modes.counters")
def test_what_is_under_way_when_the_mode_changes_is_never_unanswered(wires: Wires, testbed: Testbed, lab: Lab) -> None:
    """To and fro under a storm: what was asked or answered unseen is in the ledger, and everything is counted."""
    collector: InsideMeasurement = lab.collector(testbed)

    def has_more(counted: int) -> bool:
        return collector.counter(PROBE, "upcalls") > counted

    collector.need(PROBE)
    collector.begin()
    before = wires.ovs.upcalls()["missed"]
    with storm(wires):
        for mode in ("counters", "summary") * 3:
            counted = collector.counter(PROBE, "upcalls")
            collector.set(PROBE, mode, unanswered_after_ms=PATIENT_MS)
            collector.until(partial(has_more, counted), "upcalls")
            collector.settle()
    collector.settle()
    lost = collector.counter(PROBE, "packets") - collector.counter(PROBE, "answered")
    collector.until(
        lambda: collector.ledger(PROBE, "join_missed") >= lost, "what became of packets that were under way"
    )
    counted = collector.counter(PROBE, "upcalls")
    assert counted == wires.ovs.upcalls()["missed"] - before
    assert collector.total(PROBE, "upcalls", "upcalls") + collector.ledger(PROBE, "unlisted") == counted
    fates = {name: collector.counter(PROBE, name) for name in ("unanswered", "unasked", "refused", "late")}
    collector.set(PROBE)
    assert fates == dict.fromkeys(fates, 0)
