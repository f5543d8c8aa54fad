"""A storm under a whole profile, second by second: what the console knows, and what snapshot and recording have."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from netconsole.host import identity
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load_file
from netconsole.profile.plan import plan
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import Recorder, describe
from netconsole.run.assembly import live_run
from netconsole.run.preflight import RunPlan
from netconsole.snapshot import builder
from netconsole.snapshot.document import ProbeData
from netconsole.telemetry.session import News, Session
from netconsole.telemetry.state import ProbeState
from tests.support.live.network import Namespace
from tests.support.live.storm import Storm
from tests.support.session_news import SessionNews

PROBE = "kernel_drops"
LIMIT_S = 180.0
PROFILE = """
[profile]
inherits = "summary"

[budget]
kernel_cpu_pct = {:g}
"""


@dataclass(frozen=True, slots=True)
class Second:
    """What the console knew of one interval."""

    counted: int | None
    """By the probe's counter."""
    listed: int
    """In rows, with reason and place."""
    kernel_pct: float
    """All probes together, as the governor sees it."""
    one_in: int
    is_watched: bool


@dataclass
class Course:
    """A storm from its begin to its end."""

    sent: int = 0
    seconds: list[Second] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """What the governor did."""
    live: dict[str, int] = field(default_factory=dict)
    """Packets by reason, by the console at the end; in ``taken`` by the snapshot, in ``recorded`` by a replay."""
    taken: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    """By how much the rows of a reason may be off, as the snapshot says."""
    status: str = ""

    def told(self) -> str:
        """All of it, for people."""
        lines = [f"{one.counted} counted, {one.listed} in rows (1 in {one.one_in}), {one.kernel_pct:.1f} %"
                 for one in self.seconds]  # fmt: skip
        return "\n  ".join([f"{self.sent} sent", *self.said, *lines, str(self.live)])


def by_reason(probe: ProbeState, netns: str) -> dict[str, int]:
    """Packets of a namespace by reason."""
    found: dict[str, int] = {}
    for row in probe.tables["drops"].rows.values():
        if row.labels["netns"] == netns:
            reason = str(row.labels["reason"])
            found[reason] = found.get(reason, 0) + (row.total("count") or 0)
    return found


def in_document(probe: ProbeData, netns: str) -> tuple[dict[str, int], dict[str, int]]:
    """The same of a snapshot, and their errors."""
    found: dict[str, int] = {}
    errors: dict[str, int] = {}
    of_rows = probe.row_errors.get("drops.count") or [0] * len(probe.tables["drops"])
    for row, error in zip(probe.tables["drops"], of_rows, strict=True):
        if row["netns"] == netns:
            reason, count = str(row["reason"]), row["count"]
            assert isinstance(count, int)
            found[reason] = found.get(reason, 0) + count
            errors[reason] = errors.get(reason, 0) + error
    return found, errors


def run(
    directory: Path, namespace: Namespace, frames: Sequence[bytes], rate_per_s: int, seconds: int, limit_pct: float,
    senders: int = 1,
) -> Course:  # fmt: skip
    """A storm of so many packets a second, of these frames in turn, under the summary profile with this budget."""
    path = directory / "storm.toml"
    path.write_text(PROFILE.format(limit_pct))
    manifests = load_all()
    profile = load_file(path, manifests)
    requests = plan(profile, manifests)
    course = Course()
    file = directory / f"{rate_per_s}-{len(frames)}.ncrec"
    recorder = Recorder(
        file, describe(profile, {one.name: one.mode for one in requests}, manifests, identity.describe())
    )
    with live_run(RunPlan(profile, manifests, requests)) as live, contextlib.closing(recorder):
        session, news = live.session, SessionNews(live.session, LIMIT_S)
        session.attach(recorder)
        session.on_news(partial(_observe, session, course))
        live.enforcer.start()
        session.start()
        news.until(lambda state: all(probe.settled for probe in state.probes.values()))
        _wait(session, news, 2)
        with session.view() as state:
            start = builder.totals(state)
        course.seconds.clear()
        with contextlib.ExitStack() as stack:
            storms = [stack.enter_context(Storm(namespace, rate_per_s // senders, frames)) for _ in range(senders)]
            _wait(session, news, seconds)
            course.sent = sum(storm.stop() for storm in storms)
        _wait(session, news, 2)
        with session.view() as state:
            probe = state.probes[PROBE]
            course.status = probe.status
            course.live = by_reason(probe, namespace.name)
            snapshot = builder.build(state, manifests, profile, start)
        course.said = [f"{one.probe}: {one.action} ({one.measured} %)" for one in live.enforcer.actions]
        session.detach(recorder)
    course.taken, course.errors = in_document(snapshot.probes[PROBE], namespace.name)
    with contextlib.closing(Recording(file)) as recording:
        player = Player(recording, manifests, profile.budget)
        while player.step():
            pass
        course.recorded = by_reason(player.place.state.probes[PROBE], namespace.name)
    return course


def _observe(session: Session, course: Course, news: News) -> None:
    if news != "interval":
        return
    with session.view() as state:
        probe = state.probes[PROBE]
        table, counter = probe.tables.get("drops"), probe.counters.get("drops")
        if table is None or counter is None:
            return
        listed = sum(row.counts["count"].delta or 0 for row in table.moving())
        is_watched = probe.measuring and probe.unwatched_since_ns(table) is None
        course.seconds.append(
            Second(counter.count.delta, listed, state.kernel_cpu_pct or 0.0, table.one_in, is_watched)
        )


def _wait(session: Session, news: SessionNews, intervals: int) -> None:
    with session.view() as state:
        until = state.collector.intervals + intervals
    news.until(lambda state: state.collector.intervals >= until)
