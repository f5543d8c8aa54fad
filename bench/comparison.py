"""How often a comparison sees a change where there is none, and misses one: made-up runs of known noise and faults."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.compare.compare import compare
from netconsole.snapshot.document import Snapshot
from tests.support import made_up

TRIALS = 50
FAULTS: dict[str, dict[str, float]] = {
    "nothing": {},
    "waits ×1.5": {"wait_us": 30},
    "waits ×3": {"wait_us": 60},
    "drops 2/s": {"drops_per_s": 2},
    "drops 10/s": {"drops_per_s": 10},
}


def run(seed: int, **options: Any) -> Snapshot:
    """A run of ten seconds whose drops come one by one, with the history that every real snapshot has."""
    document = made_up.document(seed, samples=400, **options)
    drops, chance = document["probes"]["kernel_drops"], random.Random(-seed)
    seconds = Counter(chance.randrange(10) for _ in range(drops["counters"]["drops"]["total"]))
    drops["history"] = {"drops": [float(seconds[second]) for second in range(10)]}
    return msgspec.convert(document, Snapshot)


def main() -> None:
    """Print one line per noise, baseline and fault."""
    print(f"comparison: share of {TRIALS} trials with each verdict (metrics per trial: about 30)")
    for day in (0.1, 0.3):
        for snapshots in (1, 3, 5):
            for name, fault in FAULTS.items():
                verdicts = []
                for trial in range(TRIALS):
                    baseline = [run(100 * trial + number, day=day) for number in range(snapshots)]
                    current = run(100 * trial + 99, day=day, **fault)
                    verdicts.append(compare(current, baseline).verdict)
                shares = ", ".join(
                    f"{one} {verdicts.count(one) / TRIALS:.0%}" for one in ("same", "changed", "regressed")
                )
                print(f"  run-to-run variation {day:.0%}, baseline of {snapshots}, {name:10}: {shares}")


if __name__ == "__main__":
    main()
