"""Frames of a host with many virtual machines, as the probes between tap and guest would send them."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from netconsole.telemetry import histogram
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import EMPTY
from netconsole.telemetry.tables import RowKey, row_key
from tests.support.fake_collector import INTERVAL_NS, Scenario

NS = {"S1-S2": 40_000, "S2-S3": 2_000, "S3-S4": 1_000, "S4-S5": 3_000}
KICK_NS = {"K1-K2": 30_000, "K2-K3": 4_000, "K3-K4": 6_000}


def labels(vm: int, queue: int, **more: Any) -> dict[str, Any]:
    return {"device": f"vnet{vm}", "vm": f"vm-{vm:03}", "netns": "host", "queue": queue, **more}


class Host:
    """Totals of all queues; `interval` adds one second in which `busy` ones (VM, queue) move."""

    def __init__(self, vms: int, queues: int) -> None:
        self.scenario = Scenario().hello()
        for probe in ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path"):
            self.scenario.status(probe)
        self.places = [(vm, queue) for vm in range(vms) for queue in range(queues)]
        self.ticks = 0
        self.totals: dict[tuple[str, str, RowKey], Buckets] = {}
        self.dropped: dict[tuple[int, int], int] = {}

    def interval(
        self,
        busy: set[tuple[int, int]],
        *,
        slow: dict[tuple[int, int], int] | None = None,
        stuck: dict[tuple[int, int], int] | None = None,
        detached: bool = False,
        unanswered: bool = False,
        ring_full: int = 0,
        starved: int = 0,
        waited_ms: int = 0,
    ) -> Scenario:
        """`slow`: ns that S1-S2 takes; `stuck`: unsignalled buffers of a queue that delivers nothing and drops all,
        `detached`: QEMU has taken it from vhost, `unanswered`: its guest was interrupted and did nothing. Of all that
        move: packets that found the ring full, runs without buffers, ms that a worker waited for a CPU."""
        slow, stuck = slow or {}, stuck or {}
        full = self.ticks == 0
        moving = busy | set(stuck)
        chosen = self.places if full else [place for place in self.places if place in moving]
        self.scenario.lines = self.scenario.lines if full else []
        vhost, rings, workers, spread = [], [], [], []
        for place in chosen:
            moved = 1000 if place in busy else 0
            for direction in ("rx", "tx"):
                counts = {"packets": (moved, moved), "batches": (moved // 4, 1), "signals": (moved // 8, 1)}
                counts |= {"suppressed": (moved // 8, 1), "starved_runs": (starved, starved), "runs": (moved // 4, 1)}
                gauges = {"depth_buffers": 0 if place in stuck else 200, "size_buffers": 256}
                gauges |= {"starving": int(place in stuck), "unsignalled_buffers": stuck.get(place, 0)}
                gauges |= {"detached": int(detached and place in stuck)}
                gauges |= {"unanswered": int(unanswered and place in stuck)}
                vhost.append({"labels": labels(*place, direction=direction), "counts": counts, "gauges": gauges})
            dropped = 500 if place in stuck else ring_full
            self.dropped[place] = self.dropped.get(place, 0) + dropped
            counts = {"packets": (moved + dropped, 1), "ring_full": (dropped, self.dropped[place]), "taken": (moved, 1)}
            rings.append({"labels": labels(*place), "counts": counts, "gauges": {"size": 1000}})
            spread.append({"labels": labels(*place), "counts": {}, "gauges": {"flows": 12}})
            counts = {"cpu_ns": (300 * INTERVAL_NS // 1000 if moved else 0, 1), "switches": (moved, 1)}
            counts["waited_ms"] = (waited_ms, waited_ms)
            gauges = {"cpu": place[1] + 4, "node": 1}
            workers.append({"labels": labels(*place, worker=f"vhost-{place[0]}"), "counts": counts, "gauges": gauges})
        self.scenario.table("vhost_queues", "queues", vhost, full=full)
        self.scenario.table("vhost_queues", "workers", workers, full=full)
        self.scenario.table("tun_queues", "queues", rings, full=full)
        self.scenario.table("tun_queues", "spread", spread, full=full)
        for place in sorted(busy):
            times = {**NS, "S1-S2": slow.get(place, NS["S1-S2"])}
            for probe, way in (("irq_path", times), ("tx_kick_path", KICK_NS)):
                for stage, ns in {**way, "total": sum(way.values())}.items():
                    self._histogram(probe, "stages", labels(*place, stage=stage), ns)
            self._histogram("vhost_queues", "wake", labels(*place, direction="rx"), times["S1-S2"] // 2, count=100)
            self._histogram("vhost_queues", "scheduled", labels(*place), times["S1-S2"] // 4, count=100)
            self._histogram("tun_queues", "occupancy", labels(*place), 30, "packets")
        self.ticks += 1
        return self.scenario.end()

    def _histogram(
        self, probe: str, name: str, its: dict[str, Any], value: int, unit: str = "ns", count: int = 10
    ) -> None:
        buckets = Buckets(count, count * value, value, value, [(histogram.index(value), count)])
        key = probe, name, row_key(its)
        self.totals[key] = histogram.add([self.totals.get(key, EMPTY), buckets])
        self.scenario.frame(
            "histogram",
            probe,
            name=name,
            interval_ns=INTERVAL_NS,
            unit=unit,
            labels=its,
            delta=to_builtins(buckets),
            total=to_builtins(self.totals[key]),
        )
