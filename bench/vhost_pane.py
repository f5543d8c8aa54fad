"""Measures the cost of the vhost pane by the number of queues, and of queues that change.

Prints milliseconds for one interval: to rank all rows, and to make the visible rows. Checks nothing.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.probes import catalogue
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.vhost import pane as vhost
from netconsole.tui.scene.scene import Scene
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.vhost_scenes import Host

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path")
QUEUES_PER_VM = 8
IN_SIGHT = 40
ROUNDS = 9


def measured_ms(vms: int, active: int) -> tuple[float, float, float]:
    """Median ms for applying the frames of an interval, for ranking, and for writing out the rows in sight."""
    host, session = Host(vms, QUEUES_PER_VM), PlayedSession()
    session.play(host.interval(set()))
    manifests = {name: catalogue.shipped(name) for name in NAMES}
    busy = set(host.places[:active])
    pane = vhost.block()
    times: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        frames = host.interval(busy)
        start = time.process_time()
        session.play(frames)
        applied = time.process_time()
        scene = Scene(session.state, manifests, PROFILE, Connection("live"))
        rows, title = pane.rows(scene), pane.title(scene)
        ranked = time.process_time()
        for row in rows[:IN_SIGHT]:
            assert row.cells, title
        times.append((applied - start, ranked - applied, time.process_time() - ranked))
    return tuple(1000 * statistics.median(column) for column in zip(*times, strict=True))


def main() -> None:
    print("queues  active   frames ms   rank ms   in sight ms")
    for vms in (25, 50, 100, 200):
        for active in (8, 80, 200):
            applied, ranked, written = measured_ms(vms, active)
            print(f"{vms * QUEUES_PER_VM:6}  {active:6}   {applied:9.2f}  {ranked:8.2f}   {written:11.2f}")


if __name__ == "__main__":
    main()
