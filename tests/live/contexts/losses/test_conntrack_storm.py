"""conntrack amid more packets than it lists, and packets that come amid others or leave on another CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.live.contexts.losses.test_conntrack import (
    DROP,
    EARLIER,
    ESTABLISHED,
    FULL,
    MS,
    NEW,
    NO_CONNECTION,
    PROBE,
    SYN_SENT,
    TEMPLATE,
    UNTRACKED,
    Tracking,
    wait,
)
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.hooks import Functions
from tests.support.live.contexts.packets import TCP, UDP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

Load = Callable[..., UnattachedProbe]

LISTED, IN_EIGHT_TICKS = 256, 64
"""So many packets of a CPU are listed at once, and then in eight ticks, as the probe says in cannot_see."""
CLOCK_MONOTONIC_COARSE = 6
WINDOW_MS = 8 * time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e3
"""The coarse clock has the resolution of a tick (time.h)."""
REST_MS = 100
"""A probe rests for at least so long (docs/design/collector.md)."""
TRIALS = 50
AWAY_WINDOWS = 32
"""For so long a packet that has changed its CPU is known."""
NESTED = 4
"""So many packets of one CPU have a place."""


class Storm(Tracking):
    """Packets of a known connection, as fast as they can be made."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe)
        self.skb = self.packet(Flow(), self.eth0)
        nfct = self.connection() | ESTABLISHED
        self._came = self.memory.bytes_of("sk_buff", self.skb)
        self.memory.change("sk_buff", self.skb, {"_nfct": nfct})
        self._found = self.memory.bytes_of("sk_buff", self.skb)
        self._begins = probe.prepare("began", self.skb, self.arriving)
        self._ends = probe.prepare("ended", self.skb, self.arriving, 1, 0, 0, 0, 1)

    def blow(self, packets: int) -> None:
        for _ in range(packets):
            self.memory.put(self.skb, self._came)
            self._begins()
            self.memory.put(self.skb, self._found)
            self._ends()

    def comes(self, skb: int, nfct: int = 0) -> None:
        self.memory.change("sk_buff", skb, {"_nfct": nfct})
        self.probe.run("began", skb, self.arriving)

    def listed(self) -> int:
        """Rows of all tables; read before."""
        return sum(row["count"] for row in self.probe.rows("packets"))


def within_a_window(load: Load, functions: Functions | None, trial: Callable[[Storm], None]) -> Storm:
    """Does it anew until all of it has fallen into the same ticks: then all that may be listed is."""
    for _ in range(TRIALS):
        storm = Storm(load(PROBE, functions or {}))
        trial(storm)
        storm.probe.read()
        if storm.listed() == LISTED:
            break
    return storm


@pytest.mark.proves("conntrack", "counters.packets", "tables.packets.count", "ledger.{unlisted,join_missed}")
@pytest.mark.parametrize("functions", [{}, EARLIER], ids=["fexit", "kretprobe"])
def test_of_a_storm_all_are_counted_and_the_first_ones_are_listed(load: Load, functions: Functions) -> None:
    def trial(storm: Storm) -> None:
        storm.blow(LISTED + 50)
        storm.found(storm.skb, 0, UNTRACKED)  # of which no begin was seen

    storm = within_a_window(load, functions, trial)
    assert storm.probe.counters() == {"packets": LISTED + 50, "refused": 0}
    assert storm.probe.ledger() == {"unlisted": 50, "join_missed": 1}
    (timed,) = storm.probe.histograms("time")
    assert timed["count"] == storm.probe.row("packets")["count"] == LISTED


@pytest.mark.proves("conntrack", "ledger.unlisted")
def test_each_window_of_a_long_storm_has_its_rows(load: Load) -> None:
    storm = Storm(load(PROBE))
    began, sent = time.monotonic_ns(), 0
    while time.monotonic_ns() < began + 6 * WINDOW_MS * MS:
        storm.blow(50)
        sent += 50
    windows = (time.monotonic_ns() - began) / MS / WINDOW_MS
    storm.probe.read()
    assert storm.probe.counters()["packets"] == sent
    assert LISTED + 4 * IN_EIGHT_TICKS <= storm.listed() <= LISTED + IN_EIGHT_TICKS * (windows + 2)
    assert storm.probe.ledger().get("unlisted", 0) == sent - storm.listed()


@pytest.mark.proves("conntrack", "counters.refused", "tables.refused.{zone,outcome,reason,count}", "ledger.unlisted")
def test_what_is_refused_amid_a_storm_has_its_rows(load: Load) -> None:
    def trial(storm: Storm) -> None:
        storm.blow(LISTED)
        tcp, udp = storm.packet(Flow(protocol=TCP), storm.eth0), storm.packet(Flow(), storm.eth0)
        form, text = storm.text("%s"), storm.text("bad checksum")
        for _ in range(3):
            storm.comes(tcp)
            storm.probe.run("said", tcp, 0, 0, form, text)
            storm.found(tcp, 0, 0)
        storm.comes(udp, storm.connection(zone=7, status=TEMPLATE) | NEW)
        storm.found(udp, 0, 0)
        storm.comes(udp)
        storm.found(udp, 0, 0, DROP)
        storm.comes(udp)
        storm.found(udp, 0, UNTRACKED)  # one that conntrack leaves alone is not refused
        storm.blow(20)

    storm = within_a_window(load, None, trial)
    assert storm.rows("refused", "zone", "outcome", "protocol", "reason") == {
        (0, "invalid", "TCP", "bad checksum"): 3,
        (7, "invalid", "UDP", NO_CONNECTION): 1,
        (0, "dropped", "UDP", FULL): 1,
    }
    assert storm.probe.counters() == {"packets": LISTED + 26, "refused": 5}
    assert storm.probe.ledger() == {"unlisted": 26}


@pytest.mark.proves("conntrack", "ledger.{unlisted,breaker}", "modes.details")
def test_in_details_what_is_not_listed_is_no_sample(load: Load) -> None:
    def trial(storm: Storm) -> None:
        storm.probe.set("details", events_per_s=100)
        storm.blow(LISTED + 30)
        storm.tracked(storm.skb)

    storm = within_a_window(load, None, trial)
    made = storm.probe.ledger()
    assert (made["unlisted"], made["breaker"], made["seen"]) == (31, 31, LISTED + 31)
    assert made["submitted"] + made["suppressed"] == LISTED + 31
    assert storm.probe.counters() == {"packets": LISTED + 31, "refused": 1}


@pytest.mark.proves("conntrack", "knobs.threshold_us", "events.packet.{took_ns,outcome}")
def test_slow_and_refused_packets_amid_a_storm_are_samples(load: Load) -> None:
    def trial(storm: Storm) -> None:
        storm.probe.set("details", threshold_us=2000, events_per_s=100_000)
        storm.blow(LISTED + 10)
        storm.comes(storm.skb)
        wait(3)
        storm.found(storm.skb, 0, UNTRACKED)
        storm.tracked(storm.skb)

    storm = within_a_window(load, None, trial)
    slow, refused = [one for one in storm.probe.events() if one["outcome"] != "established"]
    assert slow["outcome"] == "untracked" and slow["took_ns"] >= 3 * MS
    assert refused["outcome"] == "invalid" and refused["took_ns"] > 0
    assert storm.probe.ledger()["unlisted"] == 12 and "breaker" not in storm.probe.ledger()


@pytest.mark.proves("conntrack", "knobs.netns", "ledger.unlisted")
def test_a_filter_decides_amid_a_storm_and_what_it_keeps_out_uses_nothing_up(load: Load) -> None:
    storm = Storm(load(PROBE))
    storm.probe.set(netns=OTHER_NETNS)
    elsewhere = storm.hook(storm.net(OTHER_NETNS))
    storm.blow(LISTED + 50)
    for _ in range(40):
        storm.tracked(storm.skb, storm.connection(), NEW, hook=elsewhere)
    storm.probe.read()
    assert storm.probe.counters()["packets"] == 40 == storm.probe.row("packets")["count"]
    assert storm.probe.ledger() == {}

    def trial(storm: Storm) -> None:
        storm.probe.set(netns=NETNS)
        storm.blow(LISTED + 5)

    narrow = within_a_window(load, None, trial)
    assert narrow.probe.counters()["packets"] == LISTED + 5 and narrow.probe.ledger() == {"unlisted": 5}


@pytest.mark.proves("conntrack", "knobs.protocol", "ledger.unlisted")
def test_a_filter_that_is_set_while_packets_are_here_decides_of_these(load: Load) -> None:
    def trial(storm: Storm) -> None:
        storm.blow(LISTED)
        tcp = storm.packet(Flow(protocol=TCP), storm.eth0)
        storm.comes(tcp)
        storm.comes(storm.skb)
        storm.probe.set(protocol="udp")
        storm.found(storm.skb, storm.connection(), NEW)
        storm.found(tcp, storm.connection(), NEW)

    storm = within_a_window(load, None, trial)
    assert storm.probe.counters()["packets"] == LISTED + 1 and storm.probe.ledger() == {"unlisted": 1}


@pytest.mark.proves("conntrack", "tables.packets.{outcome,protocol,count}", "ledger.join_missed")
def test_packets_that_come_amid_others_are_told_apart(load: Load) -> None:
    storm = Storm(load(PROBE))
    packets = [storm.packet(Flow(protocol=TCP if number else UDP), storm.eth0) for number in range(NESTED + 1)]
    for skb in packets[:NESTED]:
        storm.comes(skb)
    for skb in reversed(packets[:NESTED]):
        storm.found(skb, storm.connection(), NEW if skb == packets[0] else ESTABLISHED)
    assert storm.rows("packets", "outcome", "protocol") == {("new", "UDP"): 1, ("established", "TCP"): NESTED - 1}
    assert storm.probe.ledger() == {}
    for skb in packets:
        storm.comes(skb)
    for skb in packets:
        storm.found(skb, storm.connection(), NEW)
    storm.probe.read()
    assert storm.probe.counters()["packets"] == 2 * NESTED and storm.probe.ledger() == {"join_missed": 1}


@pytest.mark.proves("conntrack", "counters.packets", "ledger.join_missed")
def test_packets_whose_ends_are_not_seen_keep_no_place(load: Load) -> None:
    storm = Storm(load(PROBE))
    for _ in range(3 * NESTED):
        storm.comes(storm.packet(Flow(), storm.eth0))
    storm.blow(20)
    storm.comes(storm.skb)  # nor does this one
    storm.blow(20)
    storm.probe.read()
    assert storm.probe.counters()["packets"] == 40 and storm.probe.ledger() == {}


@pytest.mark.proves("conntrack", "tables.{packets.outcome,changes.before,refused.reason}", "ledger.join_missed")
def test_a_packet_may_leave_on_another_cpu(load: Load) -> None:
    storm = Storm(load(PROBE))
    tcp, form, text = storm.packet(Flow(protocol=TCP), storm.eth0), storm.text("%s"), storm.text("bad checksum")
    connection = storm.connection()
    storm.comes(tcp)
    with on_cpu(1):
        storm.probe.run("judged", connection, tcp)
        storm.memory.change("nf_conn", connection, {"proto.tcp.state": SYN_SENT})
    storm.found(tcp, connection, NEW)
    with on_cpu(1):
        storm.comes(tcp)
    storm.probe.run("said", tcp, 0, 0, form, text)
    with on_cpu(1):
        storm.found(tcp, 0, 0)
    assert storm.rows("changes", "before", "after") == {("NONE", "SYN_SENT"): 1}
    assert storm.rows("refused", "reason") == {("bad checksum",): 1}
    assert storm.rows("packets", "outcome") == {("new",): 1, ("invalid",): 1}
    assert storm.probe.ledger() == {}
    with on_cpu(1):
        storm.comes(tcp)  # its end is not seen
    wait((AWAY_WINDOWS + 1) * WINDOW_MS)
    storm.found(tcp, connection, NEW)  # another packet at its address, whose begin was not seen
    storm.probe.read()
    assert storm.probe.counters()["packets"] == 2 and storm.probe.ledger() == {"join_missed": 1}


@pytest.mark.proves("conntrack", "knobs.seen_pct", "histograms.time", "ledger.join_missed")
@pytest.mark.parametrize("functions", [{}, EARLIER], ids=["fexit", "kretprobe"])
def test_what_came_before_a_rest_is_not_joined_with_what_leaves_after_it(load: Load, functions: Functions) -> None:
    storm = Storm(load(PROBE, functions))
    other = storm.packet(Flow(), storm.eth0)
    connection = storm.connection()
    storm.blow(3)
    storm.comes(storm.skb)  # its end is not seen
    storm.comes(other)
    storm.probe.rest()
    storm.blow(5)
    storm.comes(other)
    wait(REST_MS)
    storm.probe.wake()
    storm.found(other, connection, ESTABLISHED)
    storm.blow(2)
    storm.found(other, connection, ESTABLISHED)  # another one, whose begin was missed
    storm.probe.read()
    assert storm.probe.counters()["packets"] == 5 == storm.probe.row("packets")["count"]
    (timed,) = storm.probe.histograms("time")
    assert timed["count"] == 5 and timed["max"] < REST_MS * MS
    made = storm.probe.ledger()
    assert made.pop("unseen_ms") >= REST_MS and made == {"join_missed": 1}


@pytest.mark.proves("conntrack", "knobs.seen_pct", "counters.packets", "ledger.unlisted")
def test_a_rest_that_is_ended_early_leaves_no_gap(load: Load) -> None:
    storm = Storm(load(PROBE))
    storm.blow(3)
    storm.probe.rest()
    storm.probe.set("summary", seen_pct=100)  # within the same ticks
    storm.blow(100)
    storm.probe.read()
    assert storm.probe.counters()["packets"] == 103 == storm.probe.row("packets")["count"]


@pytest.mark.proves("conntrack", "histograms.time", "ledger.join_missed")
def test_an_address_has_one_place_and_keeps_no_time_of_another_packet(load: Load) -> None:
    """Its end was missed while another packet had the first place, and then its address is used again."""
    storm = Storm(load(PROBE))
    other = storm.packet(Flow(), storm.eth0)
    storm.comes(other)
    storm.comes(storm.skb)  # its end is not seen
    storm.found(other, storm.connection(), ESTABLISHED)
    wait(30)
    storm.blow(1)
    storm.found(storm.skb, storm.connection(), ESTABLISHED)  # another one, whose begin was missed
    storm.probe.read()
    (timed,) = storm.probe.histograms("time")
    assert timed["count"] == 2 and storm.probe.ledger() == {"join_missed": 1}


@pytest.mark.proves("conntrack", "counters.packets", "ledger.join_missed")
def test_one_that_stays_long_keeps_its_place_amid_many(load: Load) -> None:
    storm = Storm(load(PROBE))
    long = storm.packet(Flow(), storm.eth0)
    for _ in range(2):
        storm.comes(long)
        storm.blow(3 * NESTED)
        storm.found(long, storm.connection(), ESTABLISHED)
        storm.probe.rest()  # all places are free afterwards
        storm.probe.wake()
    storm.probe.read()
    made = storm.probe.ledger()
    assert storm.probe.counters()["packets"] == 2 * (3 * NESTED + 1) and "join_missed" not in made


@pytest.mark.proves("conntrack", "knobs.seen_pct", "histograms.time", "ledger.join_missed")
def test_no_place_outlives_a_rest(load: Load) -> None:
    storm = Storm(load(PROBE))
    packets = [storm.packet(Flow(), storm.eth0) for _ in range(NESTED)]
    for skb in packets:
        storm.comes(skb)  # their ends are not seen
    storm.probe.rest()
    wait(5)
    storm.probe.wake()
    storm.blow(1)
    for skb in packets:
        storm.found(skb, storm.connection(), ESTABLISHED)
    storm.probe.read()
    (timed,) = storm.probe.histograms("time")
    assert timed["count"] == 1 == storm.probe.counters()["packets"]
    assert storm.probe.ledger()["join_missed"] == NESTED
