"""The frames of a host with problems, always the same: for pictures, counts of bytes and tests on a pseudo terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.fake_collector import INTERVAL_NS, Scenario

PROBES = ("kernel_drops", "link_rates", "socket_drops", "softirq_health", "tx_queue_latency")
PROBE_DIRECTORY = Path(__file__).parent / "probes"

HOSTILE = "[bold]x\x1b[31m"
"""An interface name that would be markup and an escape sequence, if it were allowed to."""

_REASONS = (
    ("FULL_RING", "tun_net_xmit", "vnet3", "UDP", "suspicious", 400),
    ("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", "eth0", "UDP", "suspicious", 55),
    ("NO_SOCKET", "__udp4_lib_rcv", "eth1", "UDP", "benign", 31),
    ("NETFILTER_DROP", "nf_hook_slow", "br-int", "TCP", "benign", 4),
    ("TCP_OLD_DATA", "tcp_validate_incoming", "eth0", "TCP", "benign", 2),
    ("NOT_SPECIFIED", "ip6_mc_input", HOSTILE, "ICMPv6", "unknown", 1),
)
_PACKETS: dict[str, dict[str, Any]] = {
    "FULL_RING": {
        "protocol": "UDP",
        "source": "192.0.2.1",
        "source_port": 40000,
        "target": "192.0.2.7",
        "target_port": 9,
    },
    "NOT_SPECIFIED": {"protocol": "ICMPv6", "source": HOSTILE, "target": "2001:db8::7"},
}
"""The latest packets of rows, by reason."""
_ARRIVED = {"source_mac": "02:00:00:00:00:01", "target_mac": "02:00:00:00:00:07", "length_bytes": 98}
_SOCKETS = (
    ("0.0.0.0:5001", "iperf3", "UDP", 55, 0),
    ("192.0.2.7:443", "ng\x1b[2Jinx", "TCP", 0, 12),
    ("[2001:db8::7]:22", "sshd", "TCP", 0, 1),
)
_LINKS = (("eth0", "mq", 812_000), ("eth1", "mq", 9_300), ("vnet3", "tbf", 640_000), (HOSTILE, "noqueue", 120))


def wobble(tick: int, place: int, base: int) -> int:
    """A figure that moves a little, the same on every run."""
    return base + (base * ((tick * 7 + place * 5) % 11)) // 50


def moved(tick: int, place: int, base: int, before: int = 0, times: float = 1) -> tuple[int, int]:
    """By how much such a figure moved in this interval, and its total: what it was before, and all of its moves."""
    moves = [int(wobble(one, place, base) * times) for one in range(tick + 1)]
    return moves[-1], before + sum(moves)


def attached(scenario: Scenario, real: bool = False) -> Scenario:
    """Hello, and every probe in its state."""
    if real:
        scenario.do("clock", real=True)
    scenario.hello()
    knobs = {"device": "", "address": "", "port": 0, "protocol": "", "events_per_s": 100}
    scenario.status("kernel_drops", attach=["raw_tracepoint:kfree_skb"], knobs=knobs)
    scenario.status(
        "tx_queue_latency", attach=["raw_tracepoint:net_dev_queue"], knobs={"device": "", "threshold_us": 0}
    )
    scenario.status("softirq_health", attach=["raw_tracepoint:softirq_entry"])
    scenario.status("link_rates")
    scenario.status(
        "socket_drops",
        "degraded",
        why="no tracepoint sock:sock_rcvqueue_full",
        help="a kernel with CONFIG_NET tracepoints",
        attach=["raw_tracepoint:udp_fail_queue_rcv_skb"],
        missing=["raw_tracepoint:sock_rcvqueue_full"],
    )
    return scenario


def interval(scenario: Scenario, tick: int, rows: int = 0, lost: int = 0) -> Scenario:
    """One interval of the host. ``rows`` adds so many idle rows to the drops; ``lost`` puts losses into a ledger."""
    drops, dropped = [], []
    for place, (reason, location, device, protocol, kind, base) in enumerate(_REASONS):
        dropped.append(moved(tick, place, base, base * 40))
        labels = {"reason": reason, "location": location, "device": device, "protocol": protocol}
        labels.update({"class": kind, "provenance": "kernel"})
        example = {**_PACKETS[reason], **_ARRIVED, "came_in_by": device} if reason in _PACKETS else {}
        drops.append({"labels": labels, "counts": {"count": dropped[-1]}, "example": example})
    for place in range(rows):
        labels = {"reason": "NO_SOCKET", "location": f"function_{place:05}", "device": "eth0", "protocol": "UDP"}
        labels.update({"class": "benign", "provenance": "kernel"})
        drops.append({"labels": labels, "counts": {"count": (place % 3, 10 + place)}})
    scenario.counters("kernel_drops", drops=(sum(delta for delta, _ in dropped), sum(total for _, total in dropped)))
    scenario.table("kernel_drops", "drops", drops)
    scenario.table("socket_drops", "sockets", [_socket(tick, place, one) for place, one in enumerate(_SOCKETS)])
    scenario.table("softirq_health", "cpus", [_softirq(tick, cpu) for cpu in range(4)])
    scenario.table("link_rates", "links", [_link(tick, place, one) for place, one in enumerate(_LINKS)])
    for queue in range(3):
        _wait(scenario, tick, queue)
    for probe in PROBES:
        _cost(scenario, probe, lost if probe == "kernel_drops" else 0)
    return scenario.end()


def host(intervals: int, **options: int) -> Scenario:
    """So many intervals, and then nothing more."""
    scenario = attached(Scenario())
    for tick in range(intervals):
        interval(scenario, tick, **options)
    return scenario


def for_ever(cycle: int = 11, pace_s: float = 1.0, **options: int) -> Scenario:
    """The same intervals again and again, by the real clock, one every ``pace_s``."""
    scenario = attached(Scenario(), real=True)
    lines = Scenario()
    for tick in range(cycle):
        interval(lines, tick, **options)
    for line in lines.lines:
        if line.get("do") == "end":
            line["pace_s"] = pace_s
    return scenario.do("repeat", times=0, lines=lines.lines)


def _socket(tick: int, place: int, one: tuple[str, str, str, int, int]) -> dict[str, Any]:
    socket, process, protocol, drops, again = one
    counts = {
        "drops": moved(tick, place, drops, drops * 20),
        "retransmissions": moved(tick, place, again, again * 5),
    }
    return {"labels": {"socket": socket, "process": process, "protocol": protocol}, "counts": counts}


def _softirq(tick: int, cpu: int) -> dict[str, Any]:
    base = 900 + 700 * cpu
    counts = {
        "runs": moved(tick, cpu, base),
        "time_ns": moved(tick, cpu, base, times=9_000),
        "exhausted": (cpu // 3, tick * (cpu // 3)),
    }
    return {
        "labels": {"cpu": cpu, "softirq": "NET_RX"},
        "counts": counts,
        "gauges": {"longest_ns": 180_000 + cpu * 9_000},
    }


def _link(tick: int, place: int, one: tuple[str, str, int]) -> dict[str, Any]:
    device, qdisc, base = one
    counts = {
        "rx_packets": moved(tick, place, base, base * 100),
        "rx_bytes": moved(tick, place, base, base * 80_000, times=800),
        "rx_drops": (0, 17),
        "tx_packets": moved(tick, place, base, base * 50, times=0.5),
        "tx_bytes": moved(tick, place, base, base * 30_000, times=300),
        "tx_drops": (0, 0),
        "qdisc_drops": (12 if qdisc == "tbf" else 0, 12 * tick),
    }
    gauges = {"backlog_packets": 40 if qdisc == "tbf" else 0}
    return {"labels": {"device": device, "qdisc": qdisc}, "counts": counts, "gauges": gauges}


def _wait(scenario: Scenario, tick: int, queue: int) -> None:
    samples = wobble(tick, queue, 4_000 - queue * 1_500)
    peak = 120 if queue == 0 else 88
    delta = [[index, samples // 20 + samples // (2 + abs(index - peak) ** 2)] for index in range(72, peak + 20, 4)]
    total = [[index, count * (tick + 1)] for index, count in delta]
    scenario.frame(
        "histogram",
        "tx_queue_latency",
        name="wait",
        interval_ns=INTERVAL_NS,
        unit="ns",
        labels={"device": "vnet3" if queue == 0 else "eth0", "queue": queue},
        delta=_buckets(delta),
        total=_buckets(total),
    )


def _buckets(buckets: list[list[int]]) -> dict[str, Any]:
    count = sum(number for _, number in buckets)
    return {"count": count, "sum": count * 5_000, "min": 4_200, "max": 2_400_000, "buckets": buckets}


def _cost(scenario: Scenario, probe: str, lost: int) -> None:
    bpf = probe != "link_rates"
    program = {
        "name": "count",
        "attach": "raw_tracepoint:x",
        "run_count": 9_000,
        "run_time_ns": 800_000,
        "missed": lost,
    }
    events = {"seen": 500, "submitted": 100, "suppressed": 400, "lost": 0}
    scenario.frame(
        "cost",
        probe,
        interval_ns=INTERVAL_NS,
        programs=[program] if bpf else [],
        statistics={"window_ns": 200_000_000, "interval_ns": INTERVAL_NS, "estimated": False} if bpf else None,
        events={name: {"delta": number, "total": number} for name, number in events.items()} if bpf else {},
        ledger={"missed": {"delta": lost, "total": lost}, "map_full": {"delta": 0, "total": 0}} if bpf else {},
        maps_kb=512 if bpf else None,
    )
