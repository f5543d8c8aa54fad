"""A row that gets a label later, such as the process that holds a socket, is the same row in its incident."""

from __future__ import annotations

from netconsole.findings.incident import Incident
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Label, Row
from tests.unit.findings.test_rules_of_probes import Played
from tests.unit.telemetry.test_state import SECOND

SOCKET: dict[str, Label] = {
    "process": None, "port": 9, "address": "0.0.0.0", "protocol": "UDP", "peer": None, "inode": 7, "netns": "blue",
    "peer_port": 0, "merged": "no",
}  # fmt: skip
FOUND: dict[str, Label] = {**SOCKET, "process": "reader (533)"}
OTHER: dict[str, Label] = {**FOUND, "inode": 8, "process": "other (534)"}
QUIET = 8
"""Seconds after which it has ended."""


class Sockets(Played):
    """Of one namespace, by whole readings."""

    def __init__(self) -> None:
        super().__init__("socket_drops")
        self.totals = {7: 0, 8: 0}

    def second(self, labels: dict[str, Label], lost: int) -> list[Incident]:
        """All incidents after a second in which a socket of this name lost so many."""
        rows = []
        for one in (labels, OTHER):
            inode = int(one["inode"] or 7)
            delta = lost if one is labels else 0
            self.totals[inode] += delta
            counts = {"buffer_full": Count(delta=delta, total=self.totals[inode])}
            rows.append(Row(labels=one, counts=counts, gauges={"buffer_bytes": 8192}))
        stamp = self.stream.stamp(self.probe)
        self.stream.state.apply(frames.Table(**stamp, name="sockets", interval_ns=SECOND, full=True, rows=rows))
        self.end()
        return list(self.incidents.log)


def test_it_is_named_and_counts_on() -> None:
    sockets = Sockets()
    (one,) = sockets.second(SOCKET, 300)
    assert one.sentence.startswith("– UDP port 9")
    (one,) = sockets.second(FOUND, 400)
    assert one.sentence.startswith("reader (533) UDP port 9") and one.total == 700
    (one,) = sockets.second(FOUND, 50)
    assert (one.total, len(one.evidence), one.where["process"]) == (750, 1, "reader (533)")


def test_it_is_named_when_all_is_over() -> None:
    sockets = Sockets()
    sockets.second(SOCKET, 300)
    for _ in range(QUIET):
        (one,) = sockets.second(SOCKET, 0)
    assert one.ended_ns is not None and one.sentence.startswith("– UDP port 9")
    (one,) = sockets.second(FOUND, 0)
    assert one.sentence.startswith("reader (533) UDP port 9") and one.total == 300 and one.ended_ns is not None


def test_it_keeps_its_labels_where_two_may_be_it() -> None:
    sockets = Sockets()
    sockets.second({**SOCKET, "inode": None}, 300)
    (one,) = sockets.second(FOUND, 0)
    assert one.sentence.startswith("– UDP port 9")
