"""The balance on made-up losses: what kernel_drops says of each, by the kernel's own names, meets its stage's counter.

tests/live/console/test_balance.py has the same with real losses, where no run of a program may be missed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from netconsole.snapshot.balance import balance_of
from netconsole.snapshot.document import BalanceData
from tests.live.contexts.test_kernel_drops import Drops, symbol
from tests.support.live.contexts.filters import NETNS
from tests.support.live.contexts.packets import TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe

Load = Callable[..., UnattachedProbe]

PLACE = {"device": "eth0", "netns": str(NETNS)}
LOSSES = {
    "qdisc": [("QDISC_DROP", "__dev_queue_xmit", 11), ("QDISC_OVERLIMIT", "__dev_queue_xmit", 12)],
    "device-receive": [("UNHANDLED_PROTO", "ip_rcv", 13)],
    "device-send": [("FULL_RING", "tun_net_xmit", 14), ("NOT_SPECIFIED", "veth_xmit", 15)],
    "udp-socket": [("SOCKET_RCVBUFF", "ip_rcv", 16), ("PROTO_MEM", "ip_rcv", 17)],
    "backlog": [("CPU_BACKLOG", "ip_rcv", 18)],
}
"""By stage: reason and place of losses, and how many there are of each."""
COUNTED: dict[tuple[str, str], Mapping[str, Any]] = {
    ("link_rates", "links"): {
        **PLACE, "qdisc_drops": 23, "rx_drops": 13 + 18, "tx_drops": 29, "tx_packets": 1000, "rx_packets": 2000,
    },
    ("protocol_counters", "counters"): {"netns": str(NETNS), "counter": "UdpRcvbufErrors", "count": 33},
    ("softnet", "cpus"): {"cpu": 0, "dropped": 18, "processed": 5000},
}  # fmt: skip
"""What the kernel counts of them: a packet that finds no room in a backlog is a device's loss, too (rx_dropped)."""


place_of = functools.cache(symbol)


@pytest.fixture
def drops(load: Load) -> Drops:
    return Drops(load("kernel_drops"))


def lose(drops: Drops, *left_out: str) -> None:
    """All of them, but for those of these stages."""
    for stage, losses in LOSSES.items():
        for why, function, times in losses if stage not in left_out else []:
            skb = drops.packet(Flow(), drops.eth0)
            for _ in range(times):
                drops.drop(skb, why, location=place_of(function) + 4)


def balance(drops: Drops, reason: str = "") -> dict[str, BalanceData]:
    drops.probe.read()
    seen = drops.probe.rows("drops")

    def rows(probe: str, table: str) -> Iterable[Mapping[str, Any]]:
        if probe == "kernel_drops":
            return seen
        return [COUNTED[probe, table]] if (probe, table) in COUNTED else []

    return {one.stage: one for one in balance_of(rows, {"reason": reason})}


def test_it_closes_where_every_loss_is_seen(drops: Drops) -> None:
    lose(drops)
    found = balance(drops)
    assert found.keys() == LOSSES.keys()
    assert {one.unexplained for one in found.values()} == {0}
    assert {one.coverage_pct for one in found.values()} == {100.0}
    assert (found["device-send"].device, found["device-send"].netns) == ("eth0", str(NETNS))
    assert (found["qdisc"].left, found["device-receive"].entered, found["backlog"].entered) == (1000, 2000, 5000)


@pytest.mark.parametrize("stage", LOSSES)
def test_it_is_open_by_what_was_not_seen(drops: Drops, stage: str) -> None:
    lose(drops, stage)
    found = balance(drops)
    missing = sum(times for _, _, times in LOSSES[stage])
    opened = {name: one.unexplained for name, one in found.items() if one.unexplained}
    assert opened == ({stage: missing, "device-receive": missing} if stage == "backlog" else {stage: missing})
    assert found[stage].coverage_pct == round(100.0 * (found[stage].dropped - missing) / found[stage].dropped, 3)


def test_it_is_open_by_what_a_filter_hides(drops: Drops) -> None:
    drops.probe.set(port=2222)
    lose(drops, "udp-socket")
    for port, times in ((2222, 20), (7, 13)):
        skb = drops.packet(Flow(target_port=port, source_port=9), drops.eth0)
        for _ in range(times):
            drops.drop(skb, "SOCKET_RCVBUFF")
    found = balance(drops)
    assert (found["udp-socket"].unexplained, found["udp-socket"].coverage_pct) == (13, round(2000 / 33, 3))
    assert found["qdisc"].unexplained == 0


def test_it_is_open_by_a_reason_that_is_filtered_out_and_says_so(drops: Drops) -> None:
    drops.probe.set(reason="not:QDISC_OVERLIMIT")
    lose(drops)
    found = balance(drops, "not:QDISC_OVERLIMIT")
    assert {name: (one.unexplained, one.hidden_by) for name, one in found.items() if one.unexplained} == {
        "qdisc": (12, ["reason"])
    }
    assert found["qdisc"].coverage_pct == round(1100 / 23, 3)
    drops.probe.set(reason="")


def test_a_socket_s_losses_of_another_protocol_are_none_of_udp(drops: Drops) -> None:
    lose(drops, "udp-socket")
    skb = drops.packet(Flow(protocol=TCP), drops.eth0)
    for _ in range(40):
        drops.drop(skb, "SOCKET_RCVBUFF")
    assert balance(drops)["udp-socket"].unexplained == 33
