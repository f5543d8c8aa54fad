"""A forecast counts what passes a hook now, leaves nothing there, and keeps what is too dear from starting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from netconsole.budget import forecaster
from netconsole.budget.enforcer import Enforcer
from netconsole.budget.forecast import describe, forecast
from netconsole.probes.catalogue import load_all
from netconsole.profile.plan import plan
from netconsole.profile.profile import Budget, ProbeChoice, Profile
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.state import State
from tests.support.live.network import Namespace
from tests.support.live.storm import Storm
from tests.support.session_news import SessionNews

PROBE = "kernel_drops"
POINT = "raw_tracepoint:kfree_skb"
PER_S = 3000
LIMIT_S = 120.0


@pytest.fixture
def storm(namespace: Namespace) -> Iterator[Storm]:
    with Storm(namespace, PER_S) as one:
        yield one


def test_a_hook_that_is_passed_is_counted_and_nothing_is_left(storm: Storm) -> None:
    manifest = load_all()[PROBE]
    measured = forecaster.measure_hooks([manifest])
    print(measured)
    hook = measured.hooks[POINT]
    assert sum(hook.per_s.values()) > PER_S / 10, "the sender is slow where the machine is busy"
    assert hook.counting_ns and hook.counting_ns > 0
    one = forecast(manifest, "details", measured, None)
    assert one.kernel_cpu_pct > 0 and set(one.by_cpu) == set(hook.per_s) and "at least" in describe(one)
    names = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not [name for name in names if "netconsole_collector" in name]


def test_what_is_too_dear_is_refused_before_it_starts(storm: Storm, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(f'[budget]\nkernel_cpu_pct = 0.00001\n[probes.{PROBE}]\nmode = "details"\n')
    code = "import sys; from netconsole.cli.main import run; sys.exit(run(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "snapshot", "--profile", str(path), "--duration", "1s"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (3, "")
    forecast_said, refused = done.stderr.splitlines()
    assert f"{PROBE} in details: at least" in forecast_said and "of CPU" in forecast_said
    assert "over its budget from the start" in refused and "--force" in refused


class Following:
    """A governed session, and waiting for what becomes of it."""

    def __init__(self, profile: Profile) -> None:
        self.manifests = load_all()
        self.session = session_of(RunPlan(profile, self.manifests, plan(profile, self.manifests), duration_s=10.0))
        self.enforcer = Enforcer(self.session, profile, self.manifests)
        self.until = SessionNews(self.session, LIMIT_S).until
        self.enforcer.start()
        self.session.start()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()


@pytest.mark.parametrize("first", ["link_rates", "socket_drops"])
def test_a_probe_that_the_session_lacks_is_started_and_governed(first: str, namespace: Namespace) -> None:
    """Whether a collector runs already or not; and beside it what the console measures itself."""
    budget = Budget(kernel_cpu_pct=0.001, action="degrade")
    filters: dict[str, Scalar] = {"netns": namespace.inode}
    with Following(Profile("x", budget=budget, filters=filters, probes={first: ProbeChoice()})) as one:
        one.until(lambda state: first in state.probes and state.probes[first].measuring)
        one.enforcer.begin(one.manifests[PROBE], ProbeChoice()).result(LIMIT_S)
        one.enforcer.begin(one.manifests["softnet"], ProbeChoice()).result(LIMIT_S)
        one.until(
            lambda state: all(name in state.probes and state.probes[name].measuring for name in (PROBE, "softnet"))
        )
        with one.session.view() as state:
            assert state.probes[PROBE].knobs["netns"] == namespace.inode
        with Storm(namespace, PER_S):
            one.until(lambda _: PROBE in one.enforcer.lowered)
        started = [action for action in one.enforcer.actions if action.because == "the user asked for it"]
        assert [(action.probe, action.action) for action in started] == [
            (PROBE, "started in mode summary"),
            ("softnet", "started in mode summary"),
        ]


def test_a_running_probe_is_forecast_by_what_it_takes_now(storm: Storm) -> None:
    def has_run(state: State) -> bool:
        probe = state.probes.get(PROBE)
        return probe is not None and any(one.ns_per_run for one in probe.cost.programs.values())

    profile = Profile("x", budget=Budget(kernel_cpu_pct=0.00001, action="warn"), probes={PROBE: ProbeChoice()})
    with Following(profile) as one:
        one.until(has_run)
        text, above = one.enforcer.forecast_now(one.manifests[PROBE], "details")
    print(text)
    assert "measured now in another mode" in text or "calibrated" in text
    assert above is not None and "the budget is 1e-05 %" in above
