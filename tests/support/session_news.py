"""Waits until a session reaches a state. The condition is checked again at each of the session's news."""

from __future__ import annotations

import threading
from collections.abc import Callable

from netconsole.telemetry.session import News, Session
from netconsole.telemetry.state import State


class SessionNews:
    """Listens to a session from before its start."""

    def __init__(self, session: Session, limit_s: float) -> None:
        """``limit_s``: how long anything may take on a loaded machine before the test gives up."""
        self._session = session
        self._limit_s = limit_s
        self._changed = threading.Condition()
        session.on_news(self._heard)

    def _heard(self, _: News) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, true: Callable[[State], bool]) -> None:
        """Wait until this holds of the session's state."""

        def holds() -> bool:
            with self._session.view() as state:
                return true(state)

        with self._changed:
            assert self._changed.wait_for(holds, self._limit_s), f"did not come to pass in {self._limit_s:g} s"
