"""Holds what the probes saw lost against counters that the kernel keeps by itself, stage by stage.

A loss that the kernel counts and no probe saw is unexplained: a probe is missing or blind. The kernel counts all
packets, also those that a filter of kernel_drops hides, or that it counts and does not list: rows that this concerns
name it in ``hidden_by``, and are unknown. Both sides are read within one interval, not in the same moment, so a loss
that still goes on may be off by what one interval has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from netconsole.probes.knobs import FILTERS, filters_set
from netconsole.snapshot.document import BalanceData
from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State
from netconsole_collector.probe import drop_filter

StagePlace: TypeAlias = tuple[str | None, str | None]
"""Device and network namespace; None: the stage has no such thing."""
RowsOf: TypeAlias = Callable[[str, str], Iterable[Mapping[str, Any]]]
"""The rows of a probe's table: labels and totals."""


class Stage(NamedTuple):
    """A counter of the kernel, and what kernel_drops says of the same packets: by reason or by place in the code."""

    name: str
    probe: str
    table: str
    value: str
    by: tuple[str, ...] = ()
    """Labels that both have: device, netns."""
    reasons: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    but_reasons: tuple[str, ...] = ()
    """What is counted elsewhere, at the same places of the code."""
    counters: tuple[str, ...] = ()
    """Of a table with a row for each counter: these."""
    protocols: tuple[str, ...] = ()
    entered: str = ""
    left: str = ""
    """Values of the same row: packets that came in and went out there."""


def _of_protocol(
    name: str, counters: tuple[str, ...], reasons: tuple[str, ...], protocols: tuple[str, ...] = ()
) -> Stage:
    """Counters of a network namespace's protocols, each of which moves by one for a packet with one of the reasons.

    Those that move where nothing is freed (IpOutNoRoutes), or for several packets (reassembly), are no stage.
    """
    of = "protocol_counters", "counters", "count", ("netns",)
    return Stage(name, *of, reasons, counters=counters, protocols=protocols)


SEEN_BY: Final = "kernel_drops"
LEFT_OUT: Final = ("unlisted", "map_full", "missed")
"""Entries of its ledger: packets that are in no row of it."""
BEGIN: Final = "begin"
"""In ``hidden_by``: it saw as much just before the begin. The kernel's counters may have been read up to an interval
before the probe, and then count that after the begin."""
UDP_COUNTERS: Final = ("UdpRcvbufErrors", "UdpMemErrors", "Udp6RcvbufErrors", "Udp6MemErrors")
CLOSED_PCT = 99.9
"""From this share of its losses on a place is explained."""
QDISC_REASONS: Final = (
    "QDISC_DROP",
    "QDISC_OVERLIMIT",
    "QDISC_CONGESTED",
    "QDISC_EDT_HORIZON",
    "CAKE_FLOOD",
    "FQ_BAND_LIMIT",
    "FQ_FLOW_LIMIT",
    "FQ_HORIZON_LIMIT",
    "DUALPI2_STEP_DROP",
)
PLACE: Final = ("device", "netns")
FORWARDED: Final = ("__dev_forward_skb2", "__dev_forward_skb", "____dev_forward_skb")
"""Where one end of a pair refuses what the other one sends: it is down, or its MTU is too small. It counts that as
received and dropped, and the sender counts it, too (net/core/dev.c, drivers/net/veth.c). The row is of the sender, and
link_rates knows the other end of a veth."""
STAGES: Final = (
    Stage("qdisc", "link_rates", "links", "qdisc_drops", PLACE, QDISC_REASONS, left="tx_packets"),
    # dev_core_stats_rx_dropped_inc of net/core/dev.c
    Stage(
        "device-receive", "link_rates", "links", "rx_drops", PLACE, ("UNHANDLED_PROTO", "CPU_BACKLOG"),
        ("__netif_receive_skb_core",), entered="rx_packets",
    ),
    # dev_core_stats_tx_dropped_inc: net/core/dev.c, drivers/net/tun.c; tx_dropped of a veth: drivers/net/veth.c
    Stage(
        "device-send", "link_rates", "links", "tx_drops", PLACE, ("FULL_RING", "DEV_READY"),
        ("tun_net_xmit", "veth_xmit", "__dev_queue_xmit", "validate_xmit_skb", *FORWARDED), QDISC_REASONS,
        left="tx_packets",
    ),
    Stage("backlog", "softnet", "cpus", "dropped", (), ("CPU_BACKLOG",), entered="processed"),
    Stage(
        "udp-socket", "protocol_counters", "counters", "count", ("netns",), ("SOCKET_RCVBUFF", "PROTO_MEM"),
        counters=UDP_COUNTERS, protocols=("UDP",),
    ),
    _of_protocol("closed-port", ("UdpNoPorts", "Udp6NoPorts"), ("NO_SOCKET",), ("UDP",)),
    _of_protocol("udp-checksum", ("UdpInCsumErrors", "Udp6InCsumErrors"), ("UDP_CSUM",)),
    _of_protocol("tcp-checksum", ("TcpInCsumErrors",), ("TCP_CSUM",)),
    _of_protocol("reverse-path", ("TcpExtIPReversePathFilter",), ("IP_RPFILTER",)),
    _of_protocol("no-route", ("IpExtInNoRoutes", "Ip6InNoRoutes"), ("IP_INNOROUTES",)),
    _of_protocol("ip-address", ("IpInAddrErrors",), ("IP_INADDRERRORS",)),
    _of_protocol("ip-header", ("IpInHdrErrors", "Ip6InHdrErrors"), ("IP_INHDR", "IP_CSUM")),
    _of_protocol("ip-protocol", ("IpInUnknownProtos", "Ip6InUnknownProtos"), ("IP_NOPROTO",)),
    _of_protocol("too-long", ("IpFragFails", "Ip6InTooBigErrors"), ("PKT_TOO_BIG",)),
    Stage(
        "datapath", "ovs_flows", "datapaths", "lost", (), ("OVS_UPCALL_FAILED",), ("ovs_dp_process_packet",),
        entered="hits",
    ),
)  # fmt: skip


class BalanceSums(NamedTuple):
    """Packets of all rows. ``hidden``: not seen, and a filter may be why. ``unknown``: something else may be why.

    ``lost`` and ``unexplained`` are without what is hidden or unknown.
    """

    lost: int
    unexplained: int
    hidden: int
    filters: tuple[str, ...]
    unknown: int = 0

    @property
    def seen_pct(self) -> float | None:
        """Share of ``lost`` that probes saw; None where nothing was lost."""
        return 100.0 * (self.lost - self.unexplained) / self.lost if self.lost else None


def level_of(row: BalanceData) -> str:
    """How much of a place's losses is explained."""
    return "ok" if (row.coverage_pct or 0.0) >= CLOSED_PCT else "?" if row.hidden_by else "!"


def is_filtered(row: BalanceData) -> bool:
    """Whether a filter may hide what is unexplained there."""
    return not set(FILTERS).isdisjoint(row.hidden_by)


def balance_sums(rows: Sequence[BalanceData]) -> BalanceSums:
    """What the title of a balance says."""
    filters = tuple(dict.fromkeys(name for row in rows for name in row.hidden_by if name in FILTERS))
    unexplained = sum(row.unexplained for row in rows if not row.hidden_by)
    hidden = sum(row.unexplained for row in rows if is_filtered(row))
    unknown = sum(row.unexplained for row in rows) - unexplained - hidden
    return BalanceSums(sum(row.dropped for row in rows) - hidden - unknown, unexplained, hidden, filters, unknown)


def filters_of(state: State) -> dict[str, Scalar]:
    """The filters that are set for kernel_drops, as ``netns``, and to what."""
    drops = state.probes.get(SEEN_BY)
    return filters_set(drops.knobs) if drops is not None else {}


def balance(span: Span, earlier: Span | None = None) -> list[BalanceData]:
    """The balance of a stretch of time. Where kernel_drops counts without rows (mode counters), nothing can be said.

    ``earlier``: kernel_drops from one interval before the begin.
    """
    drops = span.state.probes.get(SEEN_BY)
    if drops is not None and drops.mode == "counters":
        return []
    if earlier is None:
        return balance_of(span.rows, filters_of(span.state), span.ledger(SEEN_BY))
    longest = Span(span.state, {**span.marks, **earlier.marks})
    return balance_of(span.rows, filters_of(span.state), longest.ledger(SEEN_BY), longest.rows)


def balance_of(
    rows: RowsOf,
    filters: Mapping[str, Scalar] | None = None,
    ledger: Mapping[str, int] | None = None,
    earlier: RowsOf | None = None,
) -> list[BalanceData]:
    """A row for each place of a stage where the kernel counted a loss, the largest unexplained loss first.

    ``filters`` are those that are set for kernel_drops, ``ledger`` is what it missed. ``earlier``: the same rows, with
    what it saw in the interval before. That makes a row unknown, it never closes one.
    """
    found = _found(rows)
    left_out = {name: count for name in LEFT_OUT if (count := (ledger or {}).get(name, 0)) > 0}
    still_open = {_key(row): row.unexplained for row in (found if earlier is None else _found(earlier))}
    seen = {label: {row.get(label) for row in rows(SEEN_BY, "drops")} for label in PLACE} if filters else {}
    for number, row in enumerate(found):
        hidden_by = [*_hiding(row, filters or {}, seen), *_may_explain(row, left_out, still_open[_key(row)])]
        found[number] = msgspec.structs.replace(row, hidden_by=hidden_by)
    return sorted(found, key=lambda row: (-row.unexplained, -row.dropped))


def _found(rows: RowsOf) -> list[BalanceData]:
    found = [row for stage in STAGES for row in _stage(stage, rows)]
    _explain(found, "device-receive", _refused(rows))
    _explain(found, "device-send", _without_carrier(rows) + _full_behind(rows))
    return found


def _key(row: BalanceData) -> tuple[str, str | None, str | None]:
    return row.stage, row.device, row.netns


def _may_explain(row: BalanceData, left_out: Mapping[str, int], still_open: int) -> list[str]:
    """Why kernel_drops may have seen all that is unexplained. Nothing where that is more than it can have seen."""
    if not row.unexplained or still_open > sum(left_out.values()):
        return []
    return [*left_out, *([BEGIN] if still_open < row.unexplained else [])]


def _stage(stage: Stage, rows: RowsOf) -> Iterable[BalanceData]:
    counted = [
        row for row in rows(stage.probe, stage.table) if not stage.counters or row.get("counter") in stage.counters
    ]
    seen = _sums((_place(stage, row), row.get("count")) for row in rows(SEEN_BY, "drops") if _is_of(stage, row))
    entered = _sums((_place(stage, row), row.get(stage.entered)) for row in counted)
    left = _sums((_place(stage, row), row.get(stage.left)) for row in counted)
    for place, dropped in _sums((_place(stage, row), row.get(stage.value)) for row in counted).items():
        unexplained = max(0, dropped - seen.get(place, 0))
        if dropped:
            yield BalanceData(
                stage=stage.name,
                device=place[0],
                netns=place[1],
                entered=entered.get(place) if stage.entered else None,
                left=left.get(place) if stage.left else None,
                dropped=dropped,
                unexplained=unexplained,
                coverage_pct=round(100.0 * (dropped - unexplained) / dropped, 3),
            )


def _explain(found: list[BalanceData], stage: str, seen: Mapping[StagePlace, int]) -> None:
    """One packet may move counters of several places, and is seen at one: that explains as much of the others."""
    for number, row in enumerate(found):
        count = seen.get((row.device, row.netns), 0)
        if row.stage == stage and count:
            rest = max(0, row.unexplained - count)
            coverage = round(100.0 * (row.dropped - rest) / row.dropped, 3)
            found[number] = msgspec.structs.replace(row, unexplained=rest, coverage_pct=coverage)


def _refused(rows: RowsOf) -> Counter[StagePlace]:
    """What an end of a pair refused was seen at the one that sent it."""
    return _at_the_other_end(rows, lambda row: row.get("location") in FORWARDED)


def _full_behind(rows: RowsOf) -> Counter[StagePlace]:
    """What the backlog behind an end of a pair had no room for was seen there; the sender counts it, too."""
    return _at_the_other_end(rows, lambda row: row.get("reason") == "CPU_BACKLOG")


def _at_the_other_end(rows: RowsOf, is_of: Callable[[Mapping[str, Any]], bool]) -> Counter[StagePlace]:
    peers: dict[tuple[Any, Any], StagePlace] = {
        (row.get("device"), row.get("netns")): (row["peer"], row.get("peer_netns"))
        for row in rows("link_rates", "links")
        if row.get("peer")
    }
    return _sums(
        (peers[there], row.get("count"))
        for row in rows(SEEN_BY, "drops")
        if is_of(row) and (there := (row.get("device"), row.get("netns"))) in peers
    )


def _without_carrier(rows: RowsOf) -> Counter[StagePlace]:
    """Where a device has no carrier, an empty qdisc takes the place of its own: the kernel names that one as the cause,
    and the device counts it. What its own qdisc has shed does not explain this."""
    links = list(rows("link_rates", "links"))
    shed = _sums(
        ((row.get("device"), row.get("netns")), row.get("count"))
        for row in rows(SEEN_BY, "drops")
        if row.get("reason") in QDISC_REASONS
    )
    shed.subtract(_sums(((row.get("device"), row.get("netns")), row.get("qdisc_drops")) for row in links))
    lost = _sums(((row.get("device"), row.get("netns")), row.get("lost_without_carrier")) for row in links)
    return shed & lost


def _hiding(row: BalanceData, filters: Mapping[str, Scalar], seen: Mapping[str, set[Any]]) -> list[str]:
    """The filters that may hide packets of this row: not one that lets rows of its own device or namespace through.

    Nor one that lets all of its reasons through, where these alone make the loss.
    """
    if not row.unexplained or not filters:
        return []
    own = {"device": row.device, "netns": row.netns}
    passed = {name for name, value in own.items() if value is not None and value in seen[name]}
    stage = next(one for one in STAGES if one.name == row.stage)
    if not stage.locations and _are_passed(stage.reasons, filters.get("reason", "")):
        passed.add("reason")
    return [name for name in filters if name not in passed]


def _are_passed(reasons: Sequence[str], wanted: Scalar) -> bool:
    try:
        return all(map(drop_filter.parse(wanted).passes, reasons))
    except drop_filter.ReasonError:  # of a recording: nobody has checked it
        return False


def _is_of(stage: Stage, row: Mapping[str, Any]) -> bool:
    """Whether kernel_drops saw in this row what the stage's counter counts."""
    if stage.protocols and row.get("protocol") not in stage.protocols:
        return False
    reason = row.get("reason")
    return reason in stage.reasons or (row.get("location") in stage.locations and reason not in stage.but_reasons)


def _place(stage: Stage, row: Mapping[str, Any]) -> StagePlace:
    device, netns = (row.get(label) if label in stage.by else None for label in PLACE)
    return device if isinstance(device, str) else None, netns if isinstance(netns, str) else None


def _sums(pairs: Iterable[tuple[StagePlace, Any]]) -> Counter[StagePlace]:
    sums: Counter[StagePlace] = Counter()
    for place, value in pairs:
        if isinstance(value, int):
            sums[place] += value
    return sums
