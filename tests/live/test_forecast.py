"""A forecast counts what passes a hook now, leaves nothing there, and keeps what is too dear from starting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from netconsole.calibrate import hooks
from netconsole.forecast import forecast, said
from netconsole.governing import Governing
from netconsole.live import session_of
from netconsole.probes import load_all
from netconsole.profiles import Budget, Choice, Profile, plan

from .network import Namespace
from .storm import Storm

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

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
    passing = hooks.measure([manifest])
    print(passing)
    hook = passing.hooks[POINT]
    assert sum(hook.per_s.values()) > PER_S / 10, "the sender is slow where the machine is busy"
    assert hook.counting_ns and hook.counting_ns > 0
    one = forecast(manifest, "details", passing, None)
    assert one.kernel_cpu_pct > 0 and set(one.by_cpu) == set(hook.per_s) and "at least" in said(one)
    names = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not [name for name in names if "netconsole_collector" in name]


def test_what_is_too_dear_is_refused_before_it_starts(storm: Storm, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(f'[budget]\nkernel_cpu_pct = 0.00001\n[probes.{PROBE}]\nmode = "details"\n')
    code = "import sys; from netconsole.cli import run; sys.exit(run(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "snapshot", "--profile", str(path), "--duration", "1s"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (3, "")
    forecast_said, refused = done.stderr.splitlines()
    assert f"{PROBE} in details: at least" in forecast_said and "of CPU" in forecast_said
    assert "over its budget from the start" in refused and "--force" in refused


def test_a_running_probe_is_forecast_by_what_it_takes_now(storm: Storm) -> None:
    manifests = load_all()
    profile = Profile("x", budget=Budget(kernel_cpu_pct=0.00001, action="warn"), probes={PROBE: Choice()})
    session = session_of(plan(profile, manifests), profile, every_s=1.0)
    governing = Governing(session, profile, manifests)
    changed = threading.Condition()

    def notify(_: object) -> None:
        with changed:
            changed.notify_all()

    def until(true: Callable[[], bool]) -> None:
        with changed:
            assert changed.wait_for(true, LIMIT_S), "did not come to pass"

    def has_run() -> bool:
        with session.view() as state:
            probe = state.probes.get(PROBE)
            return probe is not None and any(one.ns_per_run for one in probe.cost.programs.values())

    session.on_news(notify)
    session.start()
    try:
        until(has_run)
        text, above = governing.look_ahead(manifests[PROBE], "details")
    finally:
        session.close()
    print(text)
    assert "measured now in another mode" in text or "calibrated" in text
    assert above is not None and "the budget is 1e-05 %" in above
