"""What STANDS OUT says of a host on which nothing is wrong: nothing. First without load, then with the healthy mix.

usage: python bench/healthy.py [MINUTES [PATH [TIMES…]]]      (default 10 of each, wire, 0 1 5 20; needs root)

PATH is what lies between the two ends: wire, bridge, router, or switch (the bridge br0 of this host's Open vSwitch,
as on a host of VMs). The healthy mix (tests/support/live/healthy.toml) is played at three rates: as it is written,
5 and 20 times as much (1 400 connections a second). Prints every incident with its evidence; asserts nothing. What
others do on this host meanwhile is seen, too; what netconsole does to keep its budget is left out.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.findings.incident import Incident, told
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from tests.support.live.healthy import HealthyMix

DEFAULTS = ("10", "wire", "0", "1", "5", "20")


def observe(minutes: float) -> Sequence[Incident]:
    """The incidents of so many minutes under the profile summary."""
    manifests = load_all()
    profile = load("summary", manifests)
    session = session_of(RunPlan(profile, manifests, plan(profile, manifests)))
    incidents, lock = Incidents(manifests, profile.budget), threading.Lock()

    def note(_news: object) -> None:
        with lock, session.view() as state:
            incidents.update(state, session.connection())
            incidents.look_into(session)

    session.on_news(note)
    with closing(session):
        session.start()
        time.sleep(60 * minutes)
        with lock:
            return list(incidents.log)


def _line(one: Incident) -> str:
    return f"{one.level} {told(one)}  {one.cause} {[proof.probe for proof in one.evidence]}"


def main() -> None:
    given = sys.argv[1:]
    minutes, path, *times = given if len(given) > 2 else (*given, *DEFAULTS[len(given) :])
    for each in map(float, times):
        with ExitStack() as stack:
            if each:
                HealthyMix(stack, each, path)
            found = observe(float(minutes))
        name = f"the mix by {path}, {each:g} times" if each else "quiet"
        faults = [one for one in found if not one.is_ours]
        print(f"{name}, {minutes} minutes: {len(faults)} incidents", *map(_line, faults), sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
