"""A made-up host as batches of frames, and recordings of it: always the same, with all kinds of frames, two sources."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from netconsole.base.fact_keys import FactData
from netconsole.profile.profile import Budget
from netconsole.recording.format import SCHEMA, Header, RecordedProbe, RecordedProfile
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import Recorder
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame, Buckets, Count, Host, Row
from netconsole.telemetry.histogram import index
from netconsole.telemetry.state import State

SECOND = 1_000_000_000
BEGIN_MONO_NS = 5_000 * SECOND
BEGIN_WALL_NS = 1_795_251_600 * SECOND
"""2026-11-21 09:00:00 UTC."""
HOST = Host(name="hv-017", kernel="6.1.0", arch="x86_64", os="Debian", cpus=8, boot_id="b")
HEADER = Header(
    schema=SCHEMA,
    created="2026-11-21T09:00:00Z",
    netconsole="0.1.0",
    host=HOST,
    profile=RecordedProfile("summary", {"kernel_cpu_pct": 2.0, "action": "degrade"}),
    probes={"kernel_drops": RecordedProbe(1, "details"), "link_rates": RecordedProbe(1)},
    facts={"vm/web/net/0/tap": FactData("vnet7", "/proc")},
)

VERSION_1 = Path(__file__).parent / "data/recording-version-1.ncrec"
"""A recording of the first version of the format. It is never made anew."""
LIMIT_S = 300.0
"""How long the recorder may take on a loaded machine."""

Batch = Sequence[AnyFrame]


class Stream:
    """Frames of a host, interval by interval. ``rows`` idle rows make its tables larger."""

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.tick = 0
        self.mono_ns = BEGIN_MONO_NS
        self._seq = {"collector": itertools.count(1), "console": itertools.count(1)}
        self._drops = 0
        self._waits: dict[int, int] = {}

    def stamp(self, probe: str | None, source: frames.SourceName = "collector", late_ns: int = 0) -> dict[str, Any]:
        """What every frame carries."""
        mono_ns = self.mono_ns + late_ns
        wall_ns = BEGIN_WALL_NS + mono_ns - BEGIN_MONO_NS
        return {
            "source": source,
            "probe": probe,
            "seq": next(self._seq[source]),
            "mono_ns": mono_ns,
            "wall_ns": wall_ns,
        }

    def begin(self) -> Iterator[Batch]:
        """Hello and statuses, one batch each."""
        yield [frames.Hello(**self.stamp(None), host=HOST, collector={"pid": 7}, capabilities={})]
        for probe in ("kernel_drops", "tx_queue_latency"):
            yield [frames.Status(**self.stamp(probe), state="attached", mode="details", knobs={"device": ""})]

    def interval(self) -> Iterator[Batch]:
        """A second of the collector, then of the console."""
        self.tick += 1
        self.mono_ns += SECOND + 1000 * (self.tick % 7)  # no interval is exactly a second
        yield list(self._collector())
        yield list(self._console())

    def batches(self, intervals: int) -> Iterator[Batch]:
        """All of it."""
        yield from self.begin()
        for _ in range(intervals):
            yield from self.interval()

    def _collector(self) -> Iterator[AnyFrame]:
        tick, full = self.tick, self.tick % 10 == 0
        delta = 3 + tick % 5
        self._drops += delta
        values = {"drops": Count(delta, self._drops)}
        yield frames.Counters(**self.stamp("kernel_drops"), interval_ns=SECOND, values=values)
        rows = [Row({"reason": "NO_SOCKET", "device": "eth0"}, values, {"worst": tick})]
        if full:
            rows += [Row({"reason": "OLD", "device": f"d{n}"}, {"count": Count(0, n)}) for n in range(self.rows)]
        yield frames.Table(**self.stamp("kernel_drops"), name="drops", interval_ns=SECOND, full=full, rows=rows)
        slot = index(20_000 + 100 * (tick % 50))
        self._waits[slot] = self._waits.get(slot, 0) + 12
        counted = sum(self._waits.values())
        delta_waits = Buckets(count=12, sum=12 * 20_000, min=20_000, max=30_000, buckets=[(slot, 12)])
        total = Buckets(counted, counted * 20_000, 20_000, 30_000, sorted(self._waits.items()))
        yield frames.Histogram(
            **self.stamp("tx_queue_latency"), name="wait", interval_ns=SECOND, unit="ns", labels={"device": "eth0"},
            delta=delta_waits, total=total,
        )  # fmt: skip
        fields: dict[str, Any] = {"saddr": "192.0.2.7", "stack": ["a", "b"], "n": tick}
        yield frames.Event(**self.stamp("kernel_drops"), name="drop", fields=fields)
        for probe in ("kernel_drops", "tx_queue_latency"):
            yield frames.Cost(
                **self.stamp(probe),
                interval_ns=SECOND,
                programs=[frames.Program("on_free", "raw_tracepoint:kfree_skb", 1000, 200_000, 0)],
                statistics=frames.Statistics(SECOND // 5, SECOND, True),
                events={"seen": Count(1, tick), "submitted": Count(1, tick)},
                ledger={"map_full": Count(tick % 2, tick // 2)},
                maps_kb=64,
            )
        usage = frames.Usage(4_000_000, 13_000, 11_000)
        yield frames.Cost(**self.stamp(None), interval_ns=SECOND, usage=usage)

    def _console(self) -> Iterator[AnyFrame]:
        late_ns = SECOND // 3
        rows = [Row({"device": "eth0"}, {"rx_packets": Count(100, 100 * self.tick)}, {"up": 1})]
        yield frames.Table(
            **self.stamp("link_rates", "console", late_ns), name="links", interval_ns=SECOND, full=True, rows=rows
        )
        usage = frames.Usage(9_000_000, 50_000, 48_000)
        yield frames.Cost(**self.stamp(None, "console", late_ns), interval_ns=SECOND, usage=usage)


def record(path: Path, batches: Iterable[Batch], budget: Budget | None = None, **bounds: Any) -> tuple[State, Recorder]:
    """Record batches as a session would. Returns the state of that session, and the recorder, closed."""
    recorder = Recorder(path, HEADER, budget, **bounds)
    state = State()
    for batch in batches:
        recorder.take(state, tuple(batch))
        recorder.flush(LIMIT_S)
        for frame in batch:
            state.apply(frame)
    recorder.close()
    return state, recorder


def frames_of(recording: Recording) -> list[AnyFrame]:
    """All frames of a recording."""
    return [frame for number in range(len(recording.blocks)) for frame in recording.frames(number)]


def flat(batches: Iterable[Batch]) -> list[AnyFrame]:
    """The frames of batches, in one list."""
    return [frame for batch in batches for frame in batch]
