"""A collector that names its rows by the current time, twice a second: shows how old a screen is."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.support.fake_collector import Scenario
from tests.support.tui.scenes import attached

INTERVAL_S = 0.5
ROWS = 60


def main() -> None:
    """Frames until the end of standard input."""
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    seq = 0
    for line in attached(Scenario()).lines:
        if "kind" in line:
            seq = send(seq, line)
    tick = 0
    while not ended.wait(INTERVAL_S):
        tick += 1
        now_ms = time.time_ns() // 1_000_000
        rows = [
            {
                "labels": {"location": f"read_{now_ms}_{place:02}", "reason": f"r{tick * 7919 * place % 99991}"},
                "counts": {"count": {"delta": tick * 31 + place, "total": tick * 977 + place}},
            }
            for place in range(ROWS)
        ]
        interval_ns = int(INTERVAL_S * 1e9)
        table = {"probe": "kernel_drops", "name": "drops", "full": True, "interval_ns": interval_ns, "rows": rows}
        seq = send(seq, {"kind": "table", **table})
        seq = send(seq, {"kind": "cost", "probe": None, "interval_ns": interval_ns})


def send(seq: int, frame: dict[str, object]) -> int:
    """Write one frame; returns its number."""
    head = {"v": 1, "probe": None, "seq": seq + 1, "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
    sys.stdout.write(json.dumps({**head, **frame}) + "\n")
    sys.stdout.flush()
    return seq + 1


if __name__ == "__main__":
    main()
