"""A running probe on made-up maps, programs and events, which write down what is done to them."""

from __future__ import annotations

import struct
from typing import Any

from netconsole_collector.kernel.attach import CannotAttach
from netconsole_collector.kernel.bpf_maps import MAP_PERCPU_ARRAY, MapInfo
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe import checks, followers, running
from netconsole_collector.probe.attached_program import AttachedProgram
from netconsole_collector.probe.reading.decode import LayoutError
from tests.support.fake_map import CPUS, FakeMap

SECOND = 1_000_000_000
BEGAN_NS = 100 * SECOND
COUNT = [{"name": "count", "type": "u64"}]
QUEUE = [{"name": "queue", "type": "u32"}, {"name": "protocol", "type": "u32"}]
WAITS = [{"name": "cpu", "type": "u32"}, {"name": "queue", "type": "u32"}]


class Slots:
    """An array of counts, as nc_counters and nc_ledger are."""

    def __init__(self) -> None:
        self.totals: dict[int, int] = {}

    def sum_of(self, slot: int) -> int:
        return self.totals.get(slot, 0)

    def get(self, _: bytes) -> bytes:
        return struct.pack("=QQ", 0, 2 * checks.ENOUGH)


class CpuArray(FakeMap):
    """The map of a histogram of a hot hook."""

    is_array = True
    cpus = range(CPUS)

    def __init__(self) -> None:
        super().__init__(4, 499 * 8, 1)
        self.info = MapInfo(MAP_PERCPU_ARRAY, 1, 4, 499 * 8, 1, 0, "fake")


class Maps(dict[str, Any]):
    """In place of the maps of a probe in the kernel."""

    def __init__(self, made: dict[str, Any]) -> None:
        super().__init__(made)
        self.log: list[Any] = made["log"]
        self.kb = 64

    def __missing__(self, name: str) -> Any:
        raise LayoutError(f"map {name}")

    def fd(self, name: str) -> int:
        return 70 + len(name)

    def write(self, name: str, value: bytes) -> None:
        self.log.append((name, value))

    def memory_kb(self) -> int:
        return self.kb

    def close(self) -> None:
        self.log.append("maps closed")


class Program:
    """In place of a program in the kernel."""

    def __init__(self, entry: dict[str, Any], point: str, fd: int, link: int) -> None:
        self.name: str = entry["name"]
        self.measures: str = entry.get("measures", self.name)
        self.modes = entry.get("modes")
        self.point = self.place = point
        self.fd, self.link = fd, link
        self.log: list[Any] = entry["log"]
        self.why_not: str | None = None
        self.refuses = False
        self.skipped: int | None = 0

    @property
    def is_attached(self) -> bool:
        return self.link >= 0

    runs = is_attached
    is_of = AttachedProgram.is_of
    goes_on = False

    def release(self) -> list[int]:
        if not self.is_attached:
            return []
        self.log.append(f"release {self.name}")
        link, self.link = self.link, -1
        return [link]

    def missed(self) -> int | None:
        return self.skipped

    def attach(self) -> None:
        self.log.append(f"attach {self.name}")
        if self.refuses:
            raise CannotAttach("no such function")
        self.link = 9

    def detach(self) -> None:
        self.log.append(f"detach {self.name}")
        self.link = -1

    def lead(self, calls: Any) -> None:
        self.log.append(f"{self.name} leads {calls}")

    def close(self) -> None:
        self.log.append(f"close {self.name}")


class Events:
    """In place of its ring buffer."""

    shed = 0

    def __init__(self, _: Any) -> None:
        self.names: list[str] = []

    def add(self, name: str, spec: dict[str, Any], map_fd: int) -> None:
        self.names.append(f"{name} {map_fd}")

    def __bool__(self) -> bool:
        return bool(self.names)

    def read(self) -> list[dict[str, Any]]:
        return [{"kind": "event", "name": "drop"}] if self else []

    def close(self) -> None:
        self.names = []


class Window:
    """In place of the kernel's statistics of programs."""

    why_not: str | None = None
    window_ns = 100_000_000
    took_ns = 100_000_000

    def take(self, fds: list[int]) -> tuple[list[tuple[int, int]], int]:
        return [(fd, 10 * fd) for fd in fds], self.took_ns


class Made:
    """A running probe on those, and what happened to it in turn."""

    def __init__(self, **more: Any) -> None:
        self.log: list[Any] = []
        self.counters, self.accounts = Slots(), Slots()
        self.rows = FakeMap(8, 8, 8)
        self.window = Window()
        programs = [
            {"name": "count", "log": self.log},
            {"name": "wait", "log": self.log, "modes": ["summary", "details"], "measures": "waits"},
            {"name": "tell", "log": self.log, "modes": ["details"]},
        ]
        self.spec: dict[str, Any] = {
            "probe": {"modes": ["counters", "summary", "details"]},
            "knobs": {"device": "", "events_per_s": 100, "threshold_us": 0},
            "programs": programs,
            "counters": {"seen": {"slot": 0}, "slow": {"slot": 1, "modes": ["details"]}},
            "tables": {"queues": {"map": "rows", "key": QUEUE, "value": COUNT, "counter": "seen"}},
            **more,
        }
        maps = {
            "nc_counters": self.counters, "nc_ledger": self.accounts, "rows": self.rows, "log": self.log,
            "nc_checks": Slots(), followers.MAP: "followers", "waits": CpuArray(),
            "buckets": FakeMap(12, 32, 8), "lately": FakeMap(4, 16, 8),
        }  # fmt: skip
        self.answer: dict[str, Any] = {
            "programs": [
                {"name": one["name"], "attach": f"point of {one['name']}", "program": number, "link": number}
                for number, one in enumerate(programs, 1)
            ],
            "missing": [],
            "facts": {},
            "maps": maps,
            "names": {},
        }
        self.probe = running.RunningProbe("drops", self.spec, self.answer, Lookups(), BEGAN_NS)
        self.maps: Maps = self.probe._maps  # type: ignore[assignment]

    def did(self) -> list[Any]:
        """What happened since the last call: of writes the map's name."""
        done, self.log[:] = [one[0] if isinstance(one, tuple) else one for one in self.log], []
        return done

    def rest(self) -> list[Any]:
        """The links that the programs have given up."""
        return [*self.probe.rest()]

    def read(self, after_s: float, since_s: float = 0.0) -> list[dict[str, Any]]:
        return self.probe.read(
            self.window,  # type: ignore[arg-type]
            BEGAN_NS + round(after_s * SECOND),
            BEGAN_NS + round(since_s * SECOND),
        )

    def cost(self, after_s: float) -> dict[str, Any]:
        return self.read(after_s)[-1]
