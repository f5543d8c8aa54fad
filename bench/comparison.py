"""Measures how often a comparison reports a change by chance, or misses one, on made-up runs with known faults."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.compare.compare import compare, compare_metrics
from netconsole.compare.metrics import flatten
from tests.support import made_up

TRIALS = 50
LOSS_TRIALS = 400
SHARES = (0.01, 0.002)
FAULTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "waits ×1.5": {"wait_us": 30},
    "waits ×3": {"wait_us": 60},
    "drops 2/s": {"drops_per_s": 2},
    "drops 10/s": {"drops_per_s": 10},
}


def losses(trials: int = LOSS_TRIALS, snapshots: int = 3) -> dict[tuple[bool, float, str], Counter[str]]:
    """The verdicts, by whether there are bursts on the host, the share that is lost, and by what ("": nothing)."""
    found: dict[tuple[bool, float, str], Counter[str]] = {}
    for bursts in (False, True):
        for trial in range(trials):
            seeds = range(100 * trial, 100 * trial + snapshots)
            baseline = [flatten(made_up.with_losses(seed, bursts=bursts, samples=100)) for seed in seeds]
            cases = [(0.0, ""), *((share, by) for share in SHARES for by in made_up.LOSSES)]
            for share, by in cases:
                current = made_up.with_losses(100 * trial + 99, by=by, share=share, bursts=bursts, samples=100)
                verdict = compare_metrics(flatten(current), baseline).verdict
                found.setdefault((bursts, share, by), Counter())[verdict] += 1
    return found


def main() -> None:
    """Print one line per noise, baseline and fault."""
    print(f"steady losses, 10 s, 1000 packets/s, baseline of three: verdicts of {LOSS_TRIALS} trials")
    for (bursts, share, by), seen in losses().items():
        what = f"{share:.1%} lost by {by}" if by else "the same again"
        told = ", ".join(f"{one} {seen[one] / LOSS_TRIALS:.1%}" for one in ("same", "changed", "regressed"))
        print(f"  {'bursts' if bursts else 'calm  '}, {what:27}: {told}")
    print(f"comparison: share of {TRIALS} trials with each verdict (metrics per trial: about 30)")
    for day in (0.1, 0.3):
        for snapshots in (1, 3, 5):
            for name, fault in FAULTS.items():
                verdicts = []
                for trial in range(TRIALS):
                    baseline = [
                        made_up.with_losses(100 * trial + number, day=day, samples=400) for number in range(snapshots)
                    ]
                    current = made_up.with_losses(100 * trial + 99, day=day, samples=400, **fault)
                    verdicts.append(compare(current, baseline).verdict)
                shares = ", ".join(
                    f"{one} {verdicts.count(one) / TRIALS:.0%}" for one in ("same", "changed", "regressed")
                )
                print(f"  run-to-run variation {day:.0%}, baseline of {snapshots}, {name:10}: {shares}")


if __name__ == "__main__":
    main()
