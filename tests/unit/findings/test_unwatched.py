"""An incident goes on by the kernel's own counter while nobody watches its places, and says so."""

from __future__ import annotations

import time
from typing import Any

import pytest

from netconsole.base.timestamps import clock
from netconsole.findings.incident import document
from netconsole.findings.open_incident import LEAVES_AFTER
from netconsole.findings.saved_log import decode, encode
from netconsole.report import short_form
from netconsole.telemetry import frames
from tests.unit.findings.test_one_cause import COUNTERS, DROP, DROPS, Watched
from tests.unit.telemetry.test_state import SECOND

REFUSED = {**DROP, "device": "lo", "netns": "red", "reason": "NO_SOCKET", "location": "udp_rcv", "class": "benign"}
NO_PORT = {"counter": "UdpNoPorts", "class": "noise", "netns": "red", "meaning": "nobody listens on the UDP port"}
BY_COUNTER = "(by the kernel's counter; places not watched since {})"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return Watched()


def test_a_counter_that_costs_nothing_begins_no_incident(watched: Watched) -> None:
    for _ in range(5):
        assert watched.interval((COUNTERS, NO_PORT, 5000)) == []


@pytest.mark.proves("protocol_counters", "findings.counters.count.!.UdpNoPorts")
def test_an_incident_goes_on_by_the_counter_and_ends_with_it(watched: Watched) -> None:
    """The rate is of now and the total exact: neither is that of when the probe was lowered."""
    for _ in range(3):
        (one,) = watched.interval((DROPS, REFUSED, 1000), (COUNTERS, NO_PORT, 1000))
    assert one.sentence == "lo (netns red): nobody listens on their port: 1.00k UDP packets/s refused"
    assert len(one.evidence) == 2
    since = clock(102 * SECOND + 5)
    stream = watched._stream
    stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="off", mode="summary", why="detached"))
    for number in (1, 2, 3):
        listed = watched.interval((COUNTERS, NO_PORT, 4000))
        (told,) = [other for other in listed if other.cause == "nobody-listens"]
        assert told.sentence == (
            f"lo (netns red): nobody listens on their port: 4.00k UDP packets/s refused {BY_COUNTER.format(since)}"
        )
        assert (told.total, told.at_least, told.blind_since_ns) == (3000 + number * 4000, False, None)
        assert told.number == one.number
    for _ in range(LEAVES_AFTER):
        listed = watched.interval((COUNTERS, NO_PORT, 0))
    (told,) = [other for other in listed if other.cause == "nobody-listens"]
    assert told.ended_ns == 105 * SECOND + 5 and told.total == 15_000


SOFTNET = "softnet", "cpus", "dropped"
LINK = {"device": "tap-a", "netns": "red", "qdisc": "fq_codel", "shaper": None, "peer": None, "peer_netns": None}


@pytest.mark.parametrize(
    ("reason", "location", "counter", "labels", "cause"),
    [
        ("CPU_BACKLOG", "enqueue_to_backlog", SOFTNET, {"cpu": 1}, "backlog-full"),
        ("QDISC_DROP", "__dev_queue_xmit", ("link_rates", "links", "qdisc_drops"), LINK, "qdisc-drops"),
        ("FULL_RING", "tun_net_xmit", ("link_rates", "links", "tx_drops"), LINK, "tap-ring-full"),
        (
            "NOT_SPECIFIED",
            "__dev_forward_skb2",
            ("link_rates", "links", "tx_drops"),
            {**LINK, "peer": "tap-b", "peer_netns": "blue"},
            "peer-refuses",
        ),
    ],
)
def test_what_a_device_or_a_cpu_counts_itself_goes_on_without_its_probe(
    watched: Watched, reason: str, location: str, counter: tuple[str, str, str], labels: dict[str, Any], cause: str
) -> None:
    """These counters begin incidents, too: one that they join is theirs when nobody watches the places any more."""
    lost = {**DROP, "device": "tap-a", "netns": "red", "reason": reason, "location": location, "class": "suspicious"}
    for _ in range(3):
        (one,) = watched.interval((DROPS, lost, 1000), (counter, labels, 1000))
    assert (one.cause, one.total) == (cause, 3000), one.sentence
    stream = watched._stream
    stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="off", mode="summary", why="detached"))
    for number in range(1, 5):
        (told,) = [other for other in watched.interval((counter, labels, 4000)) if not other.is_ours]
        assert (told.number, told.cause, told.total) == (one.number, cause, 3000 + number * 4000), told.sentence
        assert "4.00k" in told.sentence and "packets/s" in told.sentence
        assert told.blind_since_ns is None and not told.at_least
    for _ in range(LEAVES_AFTER):
        (told,) = [other for other in watched.interval((counter, labels, 0)) if not other.is_ours]
    assert told.ended_ns == 106 * SECOND + 5 and told.total == 19_000


@pytest.mark.parametrize("lost", [0, 40])
def test_what_the_kernel_counted_stands_beside_a_total_that_lacks_some(watched: Watched, lost: int) -> None:
    """Programs miss packets now and then, as on a CPU that is busy with them. Its own counter does not."""
    stream = watched._stream
    attached = frames.Status(
        **stream.stamp("kernel_drops"), state="attached", mode="summary", attach=["raw_tracepoint:kfree_skb"]
    )
    stream.state.apply(attached)
    for _ in range(3):
        missed = {"missed": frames.Count(delta=lost, total=lost)} if lost else {}
        stream.state.apply(frames.Cost(**stream.stamp("kernel_drops"), interval_ns=SECOND, ledger=missed))
        listed = watched.interval((DROPS, REFUSED, 1000), (COUNTERS, NO_PORT, 1200))
    (one,) = [other for other in listed if other.cause == "nobody-listens"]
    assert (one.total, one.at_least) == (3000, bool(lost))
    assert one.sentence.endswith(" (the kernel's own counter says 3\u202f600)") == bool(lost), one.sentence


def test_without_a_counter_nobody_knows_whether_it_goes_on(watched: Watched) -> None:
    for _ in range(3):
        watched.interval((DROPS, REFUSED, 1000))
    for _ in range(3):
        listed = watched.interval((COUNTERS, NO_PORT, 0))
    (one,) = listed
    assert one.sentence.startswith("no longer measured: ") and one.total == 3000


def test_an_incident_of_scaled_rows_is_marked_in_every_form(watched: Watched) -> None:
    """Whatever it says of now; its total and peak keep the mark when rows are of all packets again."""
    (one,) = watched.interval((DROPS, REFUSED, 1600), one_in=16)
    assert one.sentence == "lo (netns red): nobody listens on their port: ≈1.60k UDP packets/s refused"
    for _ in range(2):
        (one,) = watched.interval((DROPS, REFUSED, 800))
    assert one.sentence == "lo (netns red): nobody listens on their port: 800 UDP packets/s refused"
    assert (one.scaled, one.at_least, one.mark, one.total) == (True, False, "≈", 3200)
    (data,) = document([one])
    assert data.scaled and "≈3\u202f200 packets, peak ≈1.60k/s" in short_form._of_incident(data, [], "").text
    (kept,) = [saved.told() for saved in decode(encode(watched._incidents.saved()))]
    assert kept.scaled and kept.total == 3200
