"""Rows that are read less often than their table: rates of their own time, and no incident beside the one that told."""

from __future__ import annotations

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import ENDED_SHOWN, Incidents
from netconsole.findings.matches import matches
from netconsole.findings.windows import Windows
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Label, Row, Scalar
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import TableState
from tests.unit.telemetry.test_state import SECOND, Stream

EVERY = 9
"""Intervals between two readings of the counters."""
DROPPED: dict[str, Label] = {
    "netns": "blue",
    "device": "",
    "reason": "NETFILTER_DROP",
    "hook": "output",
    "protocol": "UDP",
}
COUNTED: dict[str, Label] = {"netns": "blue", "counter": "IpOutDiscards", "class": "suspicious", "meaning": ""}


class Host:
    """Drops are told every second, counters of the namespace every ninth, or more rarely."""

    def __init__(self, every: int = EVERY) -> None:
        self.every = every
        self.manifests = {name: catalogue.shipped(name) for name in ("kernel_drops", "protocol_counters")}
        self.incidents, self.stream = Incidents(self.manifests), Stream(State())
        self.stream.hello()
        for probe in self.manifests:
            self.stream.state.apply(frames.Status(**self.stream.stamp(probe), state="attached", mode="summary"))
        self.totals: dict[str, int] = {}
        self.dropped, self.counted = DROPPED, COUNTED
        self.unread = 0
        self.second = 0
        self.silent: set[int] = set()
        """Seconds in which nothing comes of the counters."""

    def pass_second(self, dropped: int = 0, counted: int = 0) -> list[Incident]:
        self.unread += counted
        self.second += 1
        is_read = self.second % self.every == 0
        self._tell("kernel_drops", "drops", self.dropped, dropped, None)
        if self.second not in self.silent:
            delta, interval_ns = self.unread if is_read else 0, self.every * SECOND
            self._tell("protocol_counters", "counters", self.counted, delta, interval_ns)
        self.unread = 0 if is_read else self.unread
        self.stream.end()
        return self.incidents.update(self.stream.state)

    def _tell(self, probe: str, table: str, labels: dict[str, Label], delta: int, interval_ns: int | None) -> None:
        self.totals[probe] = self.totals.get(probe, 0) + delta
        count = {"count": Count(delta=delta, total=self.totals[probe])}
        rows = [Row(labels=labels, counts=count, interval_ns=interval_ns)] if delta else []
        self.stream.state.apply(
            frames.Table(**self.stream.stamp(probe), name=table, interval_ns=SECOND, full=False, rows=rows)
        )

    @property
    def counters(self) -> TableState:
        found = self.stream.state.table("protocol_counters", "counters")
        assert found is not None
        return found

    @property
    def counter_per_s(self) -> float | None:
        return next((row.per_s("count") for row in self.counters.rows.values()), None)


def test_the_rate_is_that_of_its_own_time_and_holds_until_the_next_reading() -> None:
    host = Host()
    host.totals["protocol_counters"] = 50
    found = []
    for second in range(1, 4 * EVERY):
        host.pass_second(counted=30 if second <= EVERY else 0)
        found.append(host.counter_per_s)
    assert found == [None] * (EVERY - 1) + [30.0] * (EVERY + 1) + [0.0] * (2 * EVERY - 1)
    (row,) = host.counters.rows.values()
    history = host.counters.history(row.key, "count")
    assert [one for one in history if one] == [30.0] * (EVERY + 1)
    assert row.total("count") == 50 + 30 * EVERY
    assert [one for one in host.counters.sums()["count"] if one] == [30.0] * (EVERY + 1)


def test_a_rate_holds_through_an_interval_in_which_nothing_is_told() -> None:
    """It was seen in the lab: what is small and lasts was lost with the first late frame."""
    host = Host()
    host.counted = {**COUNTED, "counter": "IpOutNoRoutes", "class": "loss"}
    host.silent = {EVERY + 1}
    found = [(host.counter_per_s, listed) for listed in (host.pass_second(counted=2) for _ in range(2 * EVERY))]
    assert [per_s for per_s, _ in found][EVERY:] == [2.0] * EVERY
    (told,) = found[-1][1]
    assert (told.cause, told.total, told.at_least) == ("no-route-out", 4 * EVERY, False)


def test_what_was_answered_about_drops_holds_for_the_counter_that_is_read_late() -> None:
    """It was seen in the lab: when the counter of connections is read, the table is full no more."""
    host = Host()
    host.dropped = {**DROPPED, "device": "vB", "hook": "prerouting", "location": "nf_hook_slow"}
    host.counted = {**COUNTED, "counter": "Conntrackdrop", "class": "loss"}
    host.pass_second(300, 300)
    document: dict[str, Scalar | None] = {"entries": 300, "limit": 300, "full": True, "no_port": False}
    host.stream.state.apply(
        frames.Answer(
            **{**host.stream.stamp("kernel_drops"), "source": "console"},
            table="drops",
            labels=host.dropped,
            question="conntrack",
            document=document,
        )
    )
    (told,) = host.pass_second(300, 300)
    assert told.cause == "firewall-drops" and "the table of connections is full: 300 of 300" in told.sentence
    while told.cause != "conntrack-drops":
        (told,) = host.pass_second()
    assert "the table of connections is full: 300 of 300" in told.sentence


@pytest.mark.parametrize("first", [2, 5, 8], ids=lambda first: f"{EVERY - first} s before the counter is read")
@pytest.mark.parametrize(("seconds", "per_s"), [(1, 2000), (3, 300), (7, 300)])
def test_what_was_told_and_has_ended_is_no_second_incident(first: int, seconds: int, per_s: int) -> None:
    host = Host()
    for second in range(1, 45):
        lost = per_s if first <= second < first + seconds else 0
        host.pass_second(dropped=lost, counted=lost)
    told = list(host.incidents.log)
    assert [one.cause for one in told] == ["firewall-drops"], [one.sentence for one in told]
    assert told[0].total == per_s * seconds
    assert told[0].ended_ns is not None


def test_what_was_told_is_no_news_either_when_it_is_listed_no_more() -> None:
    """Seen on 5.10: the counter was read so rarely that its rate held for longer than the end of the incident."""
    host = Host(every=ENDED_SHOWN)
    for second in range(1, 3 * ENDED_SHOWN):
        lost = 900 if second == 2 else 0
        host.pass_second(dropped=lost, counted=lost)
    assert [one.cause for one in host.incidents.log] == ["firewall-drops"]


def test_what_only_the_late_counter_knows_is_one_incident_for_as_long_as_it_lasts() -> None:
    host = Host()
    listed = [host.pass_second(counted=300 if second < 40 else 0) for second in range(80)]
    assert {len(found) for found in listed[EVERY:]} == {1}
    (told,) = host.incidents.log
    assert (told.total, told.at_least, told.peak) == (40 * 300, False, 300.0)
    assert told.ended_ns is not None


def test_far_more_than_was_told_is_an_incident_of_its_own() -> None:
    host = Host()
    for second in range(1, 30):
        host.pass_second(dropped=20 if second == 3 else 0, counted=3000 if second == 3 else 0)
    assert len(list(host.incidents.log)) == 2, "the drops explain 20 packets of 3000"


class ManyQdiscs(Host):
    """The sums of qdiscs are read every ninth second, and all else of their devices in each."""

    def _tell(self, probe: str, table: str, labels: dict[str, Label], delta: int, interval_ns: int | None) -> None:
        if interval_ns is None:
            probe, table, labels = "tx_queue_latency", "dropped", {"netns": "blue", "device": "eth0", "queue": 0}
            counts = {"count": delta}
        else:
            probe, table, labels = "link_rates", "links", {"netns": "blue", "device": "eth0", "shaper": "tbf"}
            counts = {"tx_packets": 50, "qdisc_drops": delta}
        rows = []
        for name, more in counts.items():
            self.totals[name] = self.totals.get(name, 0) + more
        made = {
            name: Count(more, self.totals[name], interval_ns if name == "qdisc_drops" and more else None)
            for name, more in counts.items()
        }
        rows = [Row(labels=labels, counts=made)]
        self.stream.state.apply(
            frames.Table(**self.stream.stamp(probe), name=table, interval_ns=SECOND, full=False, rows=rows)
        )


def many_qdiscs() -> ManyQdiscs:
    host = ManyQdiscs()
    host.manifests = {name: catalogue.shipped(name) for name in ("tx_queue_latency", "link_rates")}
    host.incidents = Incidents(host.manifests)
    for probe in host.manifests:
        host.stream.state.apply(frames.Status(**host.stream.stamp(probe), state="attached", mode="summary"))
    return host


def test_a_count_that_is_read_less_often_than_its_row_has_its_own_rate() -> None:
    host, found = many_qdiscs(), []
    for second in range(1, 3 * EVERY):
        host.pass_second(counted=30 if second <= EVERY else 0)
        (row,) = host.stream.state.rows("link_rates", "links")
        found.append((row.per_s("tx_packets"), row.per_s("qdisc_drops")))
    assert found == [(50.0, 0.0)] * (EVERY - 1) + [(50.0, 30.0)] * (EVERY + 1) + [(50.0, 0.0)] * (EVERY - 1)
    assert row.total("qdisc_drops") == 30 * EVERY and not row.moved("qdisc_drops")


@pytest.mark.parametrize("first", [2, 5, 8], ids=lambda first: f"{EVERY - first} s before the qdiscs are read")
@pytest.mark.parametrize(("seconds", "per_s"), [(1, 2000), (3, 50), (7, 300)])
def test_a_queue_that_was_full_is_one_incident_where_qdiscs_are_read_less_often(
    first: int, seconds: int, per_s: int
) -> None:
    host = many_qdiscs()
    for second in range(1, 45):
        lost = per_s if first <= second < first + seconds else 0
        host.pass_second(dropped=lost, counted=lost)
    told = list(host.incidents.log)
    assert [one.cause for one in told] == ["qdisc-drops"], [one.sentence for one in told]
    assert told[0].total == per_s * seconds


class SlowHost(Host):
    """The source of all counters is slow: no row has a time of its own, the table is of nine seconds."""

    def _tell(self, probe: str, table: str, labels: dict[str, Label], delta: int, interval_ns: int | None) -> None:
        self.totals[probe] = self.totals.get(probe, 0) + delta
        count = {"count": Count(delta=delta, total=self.totals[probe])}
        rows = [Row(labels=labels, counts=count)] if delta else []
        if interval_ns is not None and self.second % EVERY:
            return
        length_ns = interval_ns or SECOND
        self.stream.state.apply(
            frames.Table(**self.stream.stamp(probe), name=table, interval_ns=length_ns, full=False, rows=rows)
        )


@pytest.mark.parametrize("first", [2, 5, 8], ids=lambda first: f"{EVERY - first} s before the counter is read")
@pytest.mark.parametrize(("seconds", "per_s"), [(1, 2000), (3, 300)])
def test_a_burst_is_one_incident_where_the_source_of_the_counters_is_slow(first: int, seconds: int, per_s: int) -> None:
    host = SlowHost()
    for second in range(1, 45):
        lost = per_s if first <= second < first + seconds else 0
        host.pass_second(dropped=lost, counted=lost)
    told = list(host.incidents.log)
    assert [one.cause for one in told] == ["firewall-drops"], [one.sentence for one in told]


@pytest.mark.parametrize("first", [2, 5, 8], ids=lambda first: f"{EVERY - first} s before the counter is read")
def test_a_late_counter_that_explains_a_burst_takes_its_incident(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COUNTED, "counter", "Conntrackdrop")
    monkeypatch.setitem(COUNTED, "class", "loss")
    host = Host()
    for second in range(1, 45):
        lost = 900 if second == first else 0
        host.pass_second(dropped=lost, counted=lost)
    told = list(host.incidents.log)
    assert [one.cause for one in told] == ["conntrack-drops"], [one.sentence for one in told]


class InterruptedHost(Host):
    """Its counters are read late row by row, and their source is not heard of at all for a second."""

    SILENT = EVERY + 4

    def _tell(self, probe: str, table: str, labels: dict[str, Label], delta: int, interval_ns: int | None) -> None:
        if probe == "kernel_drops" or self.second != self.SILENT:
            super()._tell(probe, table, labels, delta, interval_ns)


def test_what_was_read_late_stays_so_when_its_source_misses_an_interval() -> None:
    host = InterruptedHost()
    windows, late = Windows(host.manifests), []
    for second in range(1, 2 * EVERY):
        lost = 300 if 2 <= second < 5 else 0
        host.pass_second(counted=lost)
        windows.update(host.stream.state)
        late += [match.late for match in matches(host.stream.state, host.manifests, windows)]
    assert len(late) > InterruptedHost.SILENT - EVERY and len(set(late)) == 1
    assert late[0] is not None and late[0].counted == pytest.approx(900)
