"""The balance closes where probes saw what the kernel counted, and is open where one did not."""

from __future__ import annotations

from typing import Any

from netconsole.snapshot.balance import balance
from netconsole.snapshot.document import ProbeData


def probe(table: str, *rows: dict[str, Any]) -> ProbeData:
    return ProbeData(status="attached", tables={table: list(rows)})


COUNTED = {
    "link_rates": probe(
        "links", {"device": "eth0", "netns": "host", "qdisc_drops": 300}, {"device": "lo", "qdisc_drops": 0}
    ),
    "softnet": probe("cpus", {"cpu": 0, "dropped": 5}, {"cpu": 1, "dropped": 7}),
    "protocol_counters": probe(
        "counters",
        {"counter": "UdpRcvbufErrors", "netns": "blue", "count": 40},
        {"counter": "UdpNoPorts", "netns": "blue", "count": 9},
    ),
}
SEEN = probe(
    "drops",
    {"reason": "QDISC_DROP", "device": "eth0", "netns": "host", "protocol": "UDP", "count": 300},
    {"reason": "CPU_BACKLOG", "device": "eth0", "netns": "host", "protocol": "TCP", "count": 12},
    {"reason": "SOCKET_RCVBUFF", "device": "eth0", "netns": "blue", "protocol": "UDP", "count": 30},
    {"reason": "SOCKET_RCVBUFF", "device": "eth1", "netns": "blue", "protocol": "UDP", "count": 10},
    {"reason": "SOCKET_RCVBUFF", "device": "eth1", "netns": "host", "protocol": "UDP", "count": 99},
)


def test_it_closes_where_every_loss_was_seen() -> None:
    found = balance({**COUNTED, "kernel_drops": SEEN})
    assert [(row.stage, row.device, row.netns, row.dropped, row.unexplained, row.coverage_pct) for row in found] == [
        ("qdisc", "eth0", "host", 300, 0, 100.0),
        ("udp-socket", None, "blue", 40, 0, 100.0),
        ("backlog", None, None, 12, 0, 100.0),
    ]


def test_it_is_open_where_a_probe_is_away_or_blind() -> None:
    assert [(row.stage, row.unexplained, row.coverage_pct) for row in balance(COUNTED)] == [
        ("qdisc", 300, 0.0),
        ("udp-socket", 40, 0.0),
        ("backlog", 12, 0.0),
    ]
    blind = probe("drops", {"reason": "QDISC_DROP", "device": "eth0", "netns": "host", "count": 270})
    first = balance({"link_rates": COUNTED["link_rates"], "kernel_drops": blind})[0]
    assert (first.unexplained, first.coverage_pct) == (30, 90.0)


def test_nothing_is_said_where_drops_are_counted_without_rows() -> None:
    assert balance({**COUNTED, "kernel_drops": ProbeData(status="attached", mode="counters")}) == []
