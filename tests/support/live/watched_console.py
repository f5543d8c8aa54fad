"""The console on a live run, without a terminal; and snapshots of the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from netconsole.run.assembly import LiveRun
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot, encode, parse
from netconsole.telemetry.state import State
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import watched_run
from tests.support.session_news import SessionNews

INTERVALS = 3
"""Of each snapshot; what is done is within one, and shown in the next."""


class WatchedConsole:
    """Its application runs where a test runs it."""

    def __init__(self, live: LiveRun, limit_s: float) -> None:
        self.session, self.plan = live.session, live.plan
        self._news = SessionNews(live.session, limit_s)
        self.app = ConsoleApp(watched_run(live))

    async def until(self, true: Callable[[State], bool]) -> None:
        """Wait, while the console goes on."""
        await asyncio.to_thread(self._news.until, true)

    async def snapshot(self, during: Callable[[], Awaitable[None]] | None = None) -> Snapshot:
        """A snapshot of some intervals in which something is done, as it is read from its file."""
        with self.session.view() as state:
            since, end = builder.totals(state), state.collector.intervals + INTERVALS
        if during is not None:
            await during()
        await self.until(lambda state: state.collector.intervals >= end)
        with self.session.view() as state:
            return parse(encode(builder.build(state, self.plan.manifests, self.plan.profile, since)), "the snapshot")
