"""What is asked about an incident, what is said once the host has answered, and that the next incident asks again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Label, Row, Scalar
from netconsole.telemetry.histogram import index
from netconsole.telemetry.request import CommandOutput, HostQuestion
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key
from tests.unit.telemetry.test_state import SECOND, Stream

LABELS: dict[str, Label] = {
    "netns": "blue", "device": "vB", "reason": "IP_INADDRERRORS", "location": "ip_error", "protocol": "UDP",
    "ethertype": "IPv4", "class": "suspicious",
}  # fmt: skip
PACKET: dict[str, Label] = {"source": "192.0.2.1", "target": "198.51.100.7"}
GENERAL = "they are for another host, and forwarding is off"
LATE_NS = 200_000_000
KNOWN = "they are for 198.51.100.7, and forwarding is off here"
OFF: dict[str, Scalar | None] = {"forwarding_all": 0, "is_own": False}


class Host:
    """One row of drops, the questions about it, and what was answered."""

    def __init__(self, probe: str = "kernel_drops") -> None:
        self.incidents, self.stream, self.total = (
            Incidents({probe: catalogue.shipped(probe)}),
            Stream(State()),
            0,
        )
        self.asked: list[HostQuestion] = []
        self.labels = LABELS
        self.stream.hello()
        self.stream.state.apply(frames.Status(**self.stream.stamp(probe), state="attached", mode="summary"))

    def ask_why(self, questions: Iterable[HostQuestion]) -> None:
        self.asked += [one for one in questions if one not in self.asked]

    def run_command(self, netns: str, command: str) -> CommandOutput:
        raise NotImplementedError

    def pass_seconds(self, count: int, dropped: int = 0, packet: dict[str, Label] | None = None) -> list[Incident]:
        listed: list[Incident] = []
        for _ in range(count):
            self.total += dropped
            counts = {"count": Count(delta=dropped, total=self.total)}
            example: dict[str, Label] = {**packet, "mono_ns": self.stream.mono_ns} if packet is not None else {}
            rows = [Row(labels=self.labels, counts=counts, example=example)] if dropped else []
            stamp = self.stream.stamp("kernel_drops")
            self.stream.state.apply(frames.Table(**stamp, name="drops", interval_ns=SECOND, full=False, rows=rows))
            self.stream.end()
            listed = self.incidents.update(self.stream.state)
            self.incidents.look_into(self)
        return listed

    def answer(self, **document: Scalar | None) -> None:
        self._answer(document, None)

    def no_answer(self, error: str) -> None:
        self._answer({}, error)

    def _answer(self, document: dict[str, Scalar | None], error: str | None) -> None:
        stamp = {**self.stream.stamp("kernel_drops"), "source": "console"}
        self.stream.state.apply(
            frames.Answer(**stamp, table="drops", labels=self.labels, question="route", document=document, error=error)
        )


@pytest.fixture
def host() -> Host:
    return Host()


def test_nobody_is_asked_while_nothing_is_wrong_or_the_packet_is_not_known(host: Host) -> None:
    host.pass_seconds(3)
    (one,) = host.pass_seconds(2, 300)
    assert GENERAL in one.sentence and host.asked == []


def test_what_the_host_answers_replaces_the_general_words_and_commands(host: Host) -> None:
    (before,) = host.pass_seconds(2, 300, PACKET)
    assert GENERAL in before.sentence
    (asked,) = host.asked
    assert (asked.name, asked.key) == ("route", row_key(LABELS))
    assert asked.arguments == {"netns": "blue", "device": "vB", **PACKET}
    host.answer(**OFF)
    (after,) = host.pass_seconds(1, 300, {**PACKET, "target": "203.0.113.9"})
    assert KNOWN in after.sentence or "203.0.113.9" in after.sentence
    assert after.answer == OFF and after.commands[0] == "ip netns exec blue sysctl net.ipv4.ip_forward"
    (later,) = host.pass_seconds(3, 300, {**PACKET, "target": "198.51.100.99"})
    assert later.sentence.split(": ")[1] == after.sentence.split(": ")[1], "it does not change with each packet"
    assert len(host.asked) == 1


def test_an_answer_that_comes_when_all_is_over_is_still_said(host: Host) -> None:
    host.pass_seconds(2, 300, PACKET)
    (over,) = host.pass_seconds(10)
    assert over.ended_ns is not None and GENERAL in over.sentence
    host.answer(**OFF)
    (told,) = host.pass_seconds(1)
    assert KNOWN in told.sentence and told.answer == OFF and told.ended_ns == over.ended_ns
    assert list(host.incidents.log) == [told] and len(host.asked) == 1


def test_what_was_answered_about_one_row_counts_more_than_no_answer_about_another(host: Host) -> None:
    host.pass_seconds(2, 300, PACKET)
    host.no_answer("route: no answer within 10 s")
    host.labels = {**LABELS, "protocol": "TCP"}
    host.pass_seconds(2, 200, PACKET)
    host.answer(**OFF)
    (one,) = host.pass_seconds(1, 200, PACKET)
    assert KNOWN in one.sentence and one.answer == OFF and len(one.evidence) == 2


def test_an_answer_that_explains_nothing_changes_nothing(host: Host) -> None:
    host.pass_seconds(2, 300, PACKET)
    host.answer(forwarding_all=1, forwarding=1, is_own=False)
    (one,) = host.pass_seconds(2, 300, PACKET)
    assert GENERAL in one.sentence and len(host.asked) == 1


def test_the_host_is_asked_about_a_percentile_as_well() -> None:
    """A device whose queue is late: whether it shapes is asked, and said."""
    host = Host("tx_queue_latency")
    labels: dict[str, Label] = {"netns": "blue", "device": "vB", "queue": 0}
    waits = Buckets(count=100, sum=100 * LATE_NS, min=LATE_NS, max=LATE_NS, buckets=[(index(LATE_NS), 100)])

    def passes() -> list[Incident]:
        stamp = host.stream.stamp("tx_queue_latency")
        late = frames.Histogram(
            **stamp, name="wait", interval_ns=SECOND, unit="ns", labels=labels, delta=waits, total=waits
        )
        host.stream.state.apply(late)
        host.stream.end()
        listed = host.incidents.update(host.stream.state)
        host.incidents.look_into(host)
        return listed

    passes()
    (before,) = passes()
    half = "half of its packets wait over 200 ms, 1 in 100 over 200 ms"
    assert before.sentence == f"vB (netns blue) queue 0: {half}"
    (asked,) = host.asked
    assert (asked.name, asked.arguments) == ("queue", {"netns": "blue", "device": "vB"})
    stamp = {**host.stream.stamp("tx_queue_latency"), "source": "console"}
    document: dict[str, Scalar | None] = {"kind": "tbf", "shaper": "tbf of 1 Mbit/s"}
    host.stream.state.apply(frames.Answer(**stamp, table="wait", labels=labels, question="queue", document=document))
    (after,) = passes()
    assert after.sentence == f"vB (netns blue) queue 0: they wait for its tbf of 1 Mbit/s: {half}"
    assert len(host.asked) == 1


def test_the_next_incident_of_a_row_asks_again(host: Host) -> None:
    host.pass_seconds(2, 300, PACKET)
    host.answer(**OFF)
    (first,) = host.pass_seconds(1, 300, PACKET)
    assert KNOWN in first.sentence
    host.pass_seconds(10)
    host.pass_seconds(2, 300, PACKET)
    newest = list(host.incidents.log)[-1]
    assert newest.number != first.number and GENERAL in newest.sentence, "what was answered then says nothing of now"
    assert len(host.asked) == 2


def test_what_is_none_by_its_row_is_a_fault_by_the_answer_at_once(host: Host) -> None:
    host.labels = {**LABELS, "reason": "OTHERHOST", "location": "ip_rcv_core", "class": "benign"}
    packet: dict[str, Label] = {"source": "192.0.2.1", "target": "192.0.2.2", "target_mac": "02:00:00:00:00:ff"}
    assert host.pass_seconds(2, 300, packet) == [], "frames for others are nobody's loss"
    (asked,) = host.asked
    assert asked.name == "stranger"
    host.answer(is_own=True, is_of_device=True, mac_matches=False, own_mac="02:00:00:00:00:0b")
    (one,) = host.pass_seconds(1, 300, packet)
    assert one.level == "!" and "for our 192.0.2.2, but with the MAC 02:00:00:00:00:ff" in one.sentence
    host.pass_seconds(10)
    assert {one.level for one in host.incidents.log} == {"!"}


def test_what_is_a_fault_by_an_answer_that_comes_when_all_is_over_is_still_said(host: Host) -> None:
    """It was seen in the lab: a host that has much to do answers some seconds later."""
    host.labels = {**LABELS, "reason": "OTHERHOST", "location": "ip_rcv_core", "class": "benign"}
    packet: dict[str, Label] = {"source": "192.0.2.1", "target": "192.0.2.2", "target_mac": "02:00:00:00:00:ff"}
    host.pass_seconds(3, 300, packet)
    assert host.pass_seconds(2) == []
    host.answer(is_own=True, is_of_device=True, mac_matches=False, own_mac="02:00:00:00:00:0b")
    (one,) = host.pass_seconds(1)
    assert "for our 192.0.2.2, but with the MAC 02:00:00:00:00:ff" in one.sentence and one.total == 900
    host.pass_seconds(12)
    (ended,) = host.incidents.log
    assert ended.ended_ns is not None


@pytest.mark.parametrize(
    ("has_refused", "syn", "waiting", "said"),
    [
        (False, 1, 0, None),  # late packets of connections that have ended, as under load
        (True, 1, 0, "192.0.2.1:4000 reopens the connection to port 9 that has just ended"),
        (True, 0, 0, None),  # one was refused at some time, and this packet opens no connection
        (False, 0, 3, "web/7 does not accept on port 80: 3 wait, 1 fit"),
    ],
)
def test_what_comes_late_for_a_connection_is_a_fault_where_the_host_says_so(
    host: Host, has_refused: bool, syn: int, waiting: int, said: str | None
) -> None:
    where: dict[str, Label] = {"reason": "NOT_SPECIFIED", "location": "tcp_v4_rcv", "protocol": "TCP"}
    host.labels = {**LABELS, **where}
    packet: dict[str, Label] = {"source": "192.0.2.1", "source_port": 4000, "target": "192.0.2.2", "target_port": 9}
    packet |= {"syn": 1} if syn else {}
    assert host.pass_seconds(2, 30, packet) == []
    assert [one.name for one in host.asked] == ["sockets"]
    listener: dict[str, Scalar | None] = {"process": "web/7", "port": 80, "waiting": waiting, "limit": 1}
    host.answer(is_time_wait=not waiting, has_refused=has_refused, **listener)
    listed = host.pass_seconds(1, 30, packet)
    assert [said in one.sentence for one in listed if said] == ([True] if said else [])
    assert [one.level for one in listed] == (["!"] if said else [])
