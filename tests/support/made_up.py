"""Makes snapshots with known noise and known faults, to test readers of snapshots. A seed makes them repeatable."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec

from netconsole.snapshot.document import Snapshot
from netconsole.telemetry.histogram import bounds, index

COLUMNS = {
    "drops": {
        "labels": ["reason", "class", "location", "device", "protocol"],
        "values": {"count": {"unit": "packets", "kind": "sum"}},
    },
    "links": {
        "labels": ["device"],
        "values": {
            "rx_packets": {"unit": "packets", "kind": "sum"},
            "rx_errors": {"unit": "packets", "kind": "sum", "worse": "up"},
            "backlog": {"unit": "packets", "kind": "max", "worse": "up"},
        },
    },
}


def histogram(chance: random.Random, typical: float, samples: int, width: float = 0.5, **labels: Any) -> dict[str, Any]:
    """A log-normal histogram of times in us, in the buckets of the probes (which count ns)."""
    values = [max(1, int(1000 * typical * chance.lognormvariate(0, width))) for _ in range(samples)]
    counts, total = Counter(map(index, values)), sum(values)
    buckets = [[low / 1000, high / 1000, counts[i]] for i in sorted(counts) for low, high in [bounds(i)]]
    return {"unit": "us", "count": samples, "sum": total / 1000, "buckets": buckets, "labels": labels}


def poisson(chance: random.Random, mean: float) -> int:
    """Poisson for small means, its normal approximation for others."""
    if mean > 50:
        return max(0, round(chance.gauss(mean, mean**0.5)))
    count, left = 0, chance.expovariate(1)
    while left < mean:
        count, left = count + 1, left + chance.expovariate(1)
    return count


def document(
    seed: int,
    *,
    day: float = 0.1,
    wait_us: float = 20.0,
    drops_per_s: float = 0.0,
    devices: int = 4,
    samples: int = 3000,
    facts: dict[str, Any] | None = None,
    seconds: float = 10.0,
) -> dict[str, Any]:
    """One run on a path with traffic; every rate and time is off by ``day`` (log-normal) from run to run."""
    chance = random.Random(seed)

    def vary(mean: float) -> float:
        return mean * chance.lognormvariate(0, day)

    rows: list[dict[str, Any]] = []
    links, waits = [], []
    for number in range(devices):
        device = f"vnet{number}"
        faulty = number == devices - 1
        rows.append(
            {
                "reason": "NO_SOCKET",
                "class": "benign",
                "location": "__udp4_lib_rcv",
                "device": device,
                "protocol": "UDP",
            }
            | {"count": poisson(chance, vary(3) * seconds)}
        )
        if faulty and drops_per_s:
            rows.append(
                {"reason": "QDISC_DROP", "class": "suspicious", "location": "netem_enqueue", "device": device}
                | {"protocol": "UDP", "count": poisson(chance, vary(drops_per_s) * seconds)}
            )
        links.append(
            {"device": device, "rx_packets": poisson(chance, vary(1000) * seconds), "rx_errors": 0, "backlog": 0}
        )
        for queue in range(2):
            typical = vary(wait_us if faulty else 20.0)
            waits.append(histogram(chance, typical, samples, device=device, queue=queue))
    drops = sum(row["count"] for row in rows)
    return {
        "schema": "netconsole.snapshot/1",
        "created": f"2026-11-{1 + seed % 28:02}T21:00:00Z",
        "netconsole": "0.1.0",
        "host": {"name": "hv-017", "kernel": "6.1.0", "arch": "x86_64", "os": "Debian", "cpus": 8, "boot_id": "b"},
        "profile": {"name": "summary", "budget": {}},
        "duration_s": seconds,
        "probes": {
            "kernel_drops": {
                "status": "attached", "version": 1, "columns": {"drops": COLUMNS["drops"]}, "tables": {"drops": rows},
                "counters": {"drops": {"total": drops, "per_s": drops / seconds, "unit": "packets"}},
            },
            "link_rates": {
                "status": "attached", "version": 1, "columns": {"links": COLUMNS["links"]}, "tables": {"links": links},
            },
            "tx_queue_latency": {
                "status": "attached", "version": 1, "histograms": {"wait": {"unit": "us", "by": waits}},
            },
        },
        "facts": {
            "nic/vnet3/offload/tx-tcp-segmentation": {"value": "on", "source": "ethtool"},
            "kernel/release": {"value": "6.1.0", "source": "proc"},
            **{name: {"value": value, "source": "made up"} for name, value in (facts or {}).items()},
        },
    }  # fmt: skip


def snapshot(seed: int, **kind: Any) -> Snapshot:
    """As :func:`document`, loaded."""
    return msgspec.convert(document(seed, **kind), Snapshot)


EMPTY = document(1, samples=1)
"""A document to change."""


def changed(document: dict[str, Any], **change: Any) -> Snapshot:
    """A document with other values, loaded."""
    return msgspec.convert({**document, **change}, Snapshot)


LOSSES = {
    "a firewall": ("NETFILTER_DROP", "benign", "nft_do_chain"),
    "a full socket": ("SOCKET_RCVBUFF", "suspicious", "udp_queue_rcv_one_skb"),
    "a policer": ("QDISC_DROP", "suspicious", "__dev_queue_xmit"),
}
"""Reason, class and place of a loss."""
CLOSES = ("SOCKET_CLOSE", "benign", "tcp_close")
BURST = 300
"""Packets that are dropped at once."""


def with_losses(seed: int, *, by: str = "", share: float = 0.0, bursts: bool = False, **kind: Any) -> Snapshot:
    """As :func:`snapshot`, with the drops in time: each device carries 1000 packets/s, the last one loses a ``share``.

    A firewall drops one by one, a full socket five at once, a policer evenly. With ``bursts`` each of these reasons,
    and the end of connections, may drop some hundred packets at once, on every device.
    """
    made = document(seed, **kind)
    chance = random.Random(-1 - seed)
    drops, seconds = made["probes"]["kernel_drops"], round(made["duration_s"])
    rows = drops["tables"]["drops"]
    counts = {_drop(**row): _spread_over(chance, row["count"], seconds) for row in rows}
    devices = list(dict.fromkeys(row["device"] for row in rows))
    for device in devices if bursts else ():
        for reason in (*LOSSES.values(), CLOSES):
            if chance.random() < 0.3:
                part = counts.setdefault(_drop(*reason, device), [0] * seconds)
                part[chance.randrange(seconds)] += round(BURST * chance.lognormvariate(0, 1))
    if by:
        part = counts.setdefault(_drop(*LOSSES[by], devices[-1]), [0] * seconds)
        for second, count in enumerate(_lost(chance, by, 1000 * share, seconds)):
            part[second] += count
    known = {key: parts for key, parts in counts.items() if any(parts)}
    drops["tables"]["drops"] = [dict(key) | {"count": sum(parts)} for key, parts in known.items()]
    drops["counters"]["drops"]["total"] = sum(map(sum, known.values()))
    drops["history"] = {"drops": [float(sum(parts)) for parts in zip(*known.values(), strict=True)]}
    drops["history"]["drops.count"] = drops["history"]["drops"]
    drops["row_history"] = {"drops.count": [[float(part) for part in parts] for parts in known.values()]}
    return msgspec.convert(made, Snapshot)


def _drop(reason: str, kind: str = "", location: str = "", device: str = "", **row: Any) -> tuple[tuple[str, str], ...]:
    labels = {"reason": reason, "class": row.get("class", kind), "location": location, "device": device}
    return tuple((labels | {"protocol": "UDP"}).items())


def _spread_over(chance: random.Random, count: int, seconds: int) -> list[int]:
    found = Counter(chance.randrange(seconds) for _ in range(count))
    return [found[second] for second in range(seconds)]


def _lost(chance: random.Random, by: str, per_s: float, seconds: int) -> list[int]:
    if by == "a policer":
        return [int(per_s * (second + 1)) - int(per_s * second) for second in range(seconds)]
    at_once = 5 if by == "a full socket" else 1
    return [at_once * poisson(chance, per_s / at_once) for _ in range(seconds)]
