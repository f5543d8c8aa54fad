"""Probes of the hypervisor under a budget: the console's session and its governor out here, the collector inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from unittest import mock

from netconsole.budget.enforcer import Enforcer
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.session import live
from netconsole.telemetry.action import describe
from netconsole.telemetry.frames import Scalar
from netconsole_collector.probe.config import SEEN_PCT
from tests.lab.collector import InsideProcess
from tests.lab.kernels.compiled import bring
from tests.lab.machine.hypervisor import Hypervisor
from tests.support.commanded_host import CommandedHost
from tests.support.session_news import SessionNews

ATTACH_LIMIT_S = 240.0
LOAD_S = 60.0
"""The governor acts for some seconds, and the sampler's periods are long here."""

Setting = tuple[str, int]
"""How a probe runs: its mode, and for how many percent of the time. ``off``: it is detached."""


def found_by_governor(
    hypervisor: Hypervisor, probes: Mapping[str, Mapping[str, Scalar]], load_once: Callable[[], object]
) -> dict[str, Setting]:
    """How these probes (with their knobs) run after a minute of a load, with the kernel's part of the summary profile's
    budget. Prints what the governor did.

    The session ends then: the collector's Python is emulated, and costs more than on a real machine.
    """
    manifests = load_all()
    budget = Budget(kernel_cpu_pct=load("summary", manifests).budget.kernel_cpu_pct, action="degrade")
    chosen = {name: ProbeChoice("summary", knobs=knobs) for name, knobs in probes.items()}
    profile = Profile("governed", budget=budget, probes=chosen)
    bring(hypervisor, [{"spec": manifests[name].raw, "source": manifests[name].code()} for name in probes])
    with mock.patch.object(live, "CollectorProcess", lambda *_: InsideProcess(hypervisor)):
        session = live.LiveSession(CommandedHost(()), plan(profile, manifests))
        enforcer = Enforcer(session, profile, manifests)
        enforcer.start()
        until = SessionNews(session, ATTACH_LIMIT_S).until
        session.start()
        try:
            until(lambda state: all(state.probes[name].measuring for name in probes))
            end_s = time.monotonic() + LOAD_S
            while time.monotonic() < end_s:
                load_once()
            with session.view() as state:
                found = {name: state.probes[name] for name in probes}
                for name, one in found.items():
                    print(f"{name}: {one.kernel_cpu_pct or 0.0:.1f} % of a core, calls included")
                return {name: _setting(one.measuring, one.mode, one.knobs) for name, one in found.items()}
        finally:
            session.close()
            print(*(f"{one.probe}: {describe(one)}" for one in enforcer.actions), sep="\n", flush=True)


def _setting(is_measuring: bool, mode: str, knobs: Mapping[str, Scalar]) -> Setting:
    seen_pct = knobs.get(SEEN_PCT, 100)
    assert isinstance(seen_pct, int)
    return (mode, seen_pct) if is_measuring else ("off", 0)
