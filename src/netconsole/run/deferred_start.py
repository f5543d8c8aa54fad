"""Starts expensive probes of the default profile after the console has opened, as far as the budget allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from netconsole.base.errors import Unable
from netconsole.budget import forecast
from netconsole.budget.enforcer import Enforcer
from netconsole.budget.forecast import Forecast
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.probes.manifest import Manifest
from netconsole.profile.spending import packets_per_s
from netconsole.session.live import LiveSession
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import News

WAY_IN = "e starts it anyway"


class DeferredStart:
    """Forecasts these probes when all others run. Then each one starts, or is off with the reason."""

    def __init__(
        self,
        session: LiveSession,
        enforcer: Enforcer,
        manifests: Mapping[str, Manifest],
        requests: Sequence[ProbeRequest],
        host: AnyHost = THIS_HOST,
    ) -> None:
        self._host = host
        self._session = session
        self._enforcer = enforcer
        self._manifests = manifests
        self._requests = {request.name: request for request in requests}
        self._lock = threading.Lock()
        self._has_begun = False

    def start(self) -> None:
        """Wait for the other probes. Call this before the session starts."""
        if not self._requests:
            return
        for request in self._requests.values():
            self._session.say(request.name, "compiling", request.mode)
        self._session.on_news(self._news)

    def _news(self, _news: News) -> None:
        if self._has_begun:
            return
        with self._session.view() as state:
            others = [probe for probe in state.probes.values() if probe.name not in self._requests]
            is_time = all(probe.settled for probe in others)
        with self._lock:
            if self._has_begun or not is_time:
                return
            self._has_begun = True
        threading.Thread(target=self._begin, name="deferred start", daemon=True).start()

    def _begin(self) -> None:
        left_out = self._left_out()
        for name, one in left_out.items():
            self._session.say(name, "off", one.mode, f"not started: {forecast.describe(one)}", WAY_IN)
        self._enforcer.leave_out({name: forecast.describe(one) for name, one in left_out.items()})
        for name, request in self._requests.items():
            if name not in left_out:
                # The probe's status shows the result.
                self._session.load(request).add_done_callback(lambda done: done.exception())

    def _left_out(self) -> Mapping[str, Forecast]:
        """The probes that do not fit into the budget together with those that run; none without a forecast."""
        from netconsole.budget.forecaster import forecast_now, running_pct

        wanted = [(self._manifests[name], request.mode) for name, request in self._requests.items()]
        try:
            found = forecast_now(wanted, host=self._host).forecasts
        except Unable as error:
            self._enforcer.note(BudgetAction(time.monotonic(), "", "no forecast", str(error)))
            return {}
        forecasts = [forecast.of_share(one, self._requests[one.probe].knobs) for one in found]
        for one in forecasts:
            self._enforcer.note(BudgetAction(time.monotonic(), one.probe, "forecast", forecast.describe(one)))
        with self._session.view() as state:
            others_pct = running_pct(state)
            packets = packets_per_s(state)
        budget = self._enforcer.profile.budget
        if forecast.excess([], budget, others_pct, packets) is not None:
            return {one.probe: one for one in forecasts}
        out = forecast.too_costly(forecasts, budget, list(self._requests), packets, others_pct)
        return {one.probe: one for one in out}
