"""What STANDS OUT says of a host on which nothing is wrong: nothing. First without load, then with the healthy mix.

usage: python bench/healthy.py [MINUTES]      (default 10, of each; needs root)

The healthy mix (tests/support/live/healthy.toml) is played at three rates: as it is written, 5 and 20 times as much
(1 400 connections a second). Prints every incident with its evidence; asserts nothing. What others do on this host
meanwhile is seen, too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.findings.incident import told
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from tests.support.live.healthy import HealthyMix

TIMES = (1.0, 5.0, 20.0)


def observe(minutes: float) -> Sequence[str]:
    """The incidents of so many minutes under the profile summary."""
    manifests = load_all()
    profile = load("summary", manifests)
    session = session_of(plan(profile, manifests), profile, manifests)
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
            return [f"{one.level} {told(one)}  {one.cause} {[e.probe for e in one.evidence]}" for one in incidents.log]


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    for times in (0.0, *TIMES):
        with ExitStack() as stack:
            if times:
                HealthyMix(stack, times)
            found = observe(minutes)
        name = f"the mix, {times:g} times" if times else "quiet"
        print(f"{name}, {minutes:g} minutes: {len(found)} incidents", *found, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
