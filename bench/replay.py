"""Measures a seek in a recording of one hour: the CPU time until all figures and histories of the target are there.

Two hosts: the shipped recording `drops`, repeated, and a made-up host whose tables have thousands of rows.
usage: replay.py [--check]   with --check, it ends with 1 when a seek takes more than 0.5 s
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from netconsole.probes import catalogue  # noqa: E402
from netconsole.profile.profile import Budget  # noqa: E402
from netconsole.recording.player import Player  # noqa: E402
from netconsole.recording.reader import Recording  # noqa: E402
from netconsole.telemetry import frames  # noqa: E402
from netconsole.telemetry.frames import AnyFrame  # noqa: E402
from tests.support.recorded import HEADER, Stream, record  # noqa: E402

HOUR_S = 3600
LIMIT_S = 0.5
SEEKS = 12
ROWS = 3000
SECOND = 1_000_000_000


def repeated(path: Path) -> Iterator[list[AnyFrame]]:
    """The frames of a recording for an hour, one interval at a time."""
    recording = Recording(path)
    once = [frame for number in range(len(recording.blocks)) for frame in recording.frames(number)]
    begun = [frame for frame in once if isinstance(frame, (frames.Hello, frames.Status))]
    going = [frame for frame in once if not isinstance(frame, (frames.Hello, frames.Status, frames.Bye, frames.Reply))]
    span_ns = going[-1].mono_ns - going[0].mono_ns + SECOND
    number = {"collector": 0, "console": 0}
    batch: list[AnyFrame] = []
    for turn in range(HOUR_S * SECOND // span_ns + 1):
        for frame in [*begun, *going] if turn == 0 else going:
            number[frame.source] += 1
            late_ns = turn * span_ns
            moved = replace(
                frame, seq=number[frame.source], mono_ns=frame.mono_ns + late_ns, wall_ns=frame.wall_ns + late_ns
            )
            batch.append(moved)
            if isinstance(frame, (frames.Hello, frames.Status)) or (
                isinstance(frame, frames.Cost) and frame.probe is None
            ):
                yield batch
                batch = []


def measure(name: str, path: Path, batches: Iterable[Iterable[AnyFrame]]) -> float:
    """Print one line; the longest seek in seconds."""
    record(path, (list(batch) for batch in batches))
    started = time.process_time()
    player = Player(Recording(path), catalogue.load_all(), Budget())
    opened_s = time.process_time() - started
    chance = random.Random(1)
    took = []
    for at_s in [player.length_s, 1.0, *(chance.uniform(0, player.length_s) for _ in range(SEEKS))]:
        started = time.process_time()
        player.seek(at_s)
        took.append(time.process_time() - started)
        assert abs(player.at_s - at_s) < 3, (player.at_s, at_s)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    middle, longest, said = sorted(took)[len(took) // 2], max(took), "over the limit" if max(took) > LIMIT_S else "ok"
    print(f"  {name}: {path.stat().st_size / 1e6:.1f} MB of {player.length_s / 60:.0f} min, open {opened_s:.2f} s")
    print(f"    seek {middle:.2f} s, at most {longest:.2f} s of {LIMIT_S:g} s, peak {peak_mb:.0f} MB: {said}")
    return max(took)


def main() -> int:
    """Both hosts; 1 when a limit is broken and that matters."""
    print("replay: a jump to anywhere in an hour")
    assert HEADER.leads == "collector"
    with tempfile.TemporaryDirectory() as folder:
        real = measure("the shipped recording", Path(folder, "real.ncrec"), repeated(ROOT / "recordings/drops.ncrec"))
        made = measure(f"{ROWS} rows", Path(folder, "made.ncrec"), Stream(rows=ROWS).batches(HOUR_S))
    return 1 if max(real, made) > LIMIT_S and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
