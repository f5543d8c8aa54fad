"""A session of one probe under a profile of the test's own, with the enforcer of its budget."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from netconsole.budget.enforcer import Enforcer
from netconsole.far.host import THIS_HOST
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load_file
from netconsole.profile.plan import plan
from netconsole.session.live import LiveSession
from netconsole.telemetry.session import News
from tests.support.session_news import SessionNews

LIMIT_S = 180.0
Session = TypeVar("Session", bound="GovernedSession")


class GovernedSession:
    """Runs from here to the end of a ``with``; :meth:`heard` is told all news, before whoever waits looks."""

    def __init__(
        self,
        directory: Path,
        probe: str,
        profile: str,
        *,
        interval_s: float = 1.0,
        is_often: bool = True,
        is_enforced: bool = True,
    ) -> None:
        """``is_often``: whether the statistics are on often from the start; ``is_enforced``: whether the budget is."""
        path = directory / "storm.toml"
        path.write_text(profile)
        manifests = load_all()
        loaded = load_file(path, manifests)
        self._name = probe
        self.session = LiveSession(THIS_HOST, plan(loaded, manifests), interval_s, is_often=is_often)
        self.enforcer = Enforcer(self.session, loaded, manifests)
        if is_enforced:
            self.enforcer.start()
        self.session.on_news(self.heard)
        self.until = SessionNews(self.session, LIMIT_S).until
        self.session.start()

    def __enter__(self: Session) -> Session:
        self.until(lambda state: bool(state.probes[self._name].settled and state.collector.intervals))
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def heard(self, news: News) -> None:
        """Take note of what the session tells. Called in a thread of the session."""
        raise NotImplementedError
