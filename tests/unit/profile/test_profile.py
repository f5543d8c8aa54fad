"""What a profile is made of: the highest value of each limit, and which profile chose a probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.profile.loader import load_file
from netconsole.profile.profile import LIMITS, Budget, ProbeChoice, Profile, chosen_by

MOST = {
    "kernel_cpu_pct": 100_000,
    "ns_per_packet": 10**9,
    "user_cpu_pct": 100_000,
    "memory_mb": 10**6,
    "events_per_s": 10**9,
    "record_mb_per_min": 10**6,
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_taken_up_to_its_highest_value(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[budget]\n{name} = {MOST[name]}\n")
    assert getattr(load_file(path, {}).budget, name) == MOST[name]
    path.write_text(f"[budget]\n{name} = {MOST[name] + 1}\n")
    with pytest.raises(BadInput, match=name):
        load_file(path, {})


def test_the_nearest_profile_that_names_a_probe_chose_it() -> None:
    base = Profile("base", stated=frozenset({"probes.softnet.mode", "probes.kernel_drops.mode"}))
    mine = Profile("mine", base=base, stated=frozenset({"budget.memory_mb", "probes.kernel_drops.port"}))
    assert [chosen_by(mine, one) for one in ("kernel_drops", "softnet", "soft", "unknown")] == [
        "mine", "base", None, None,
    ]  # fmt: skip


def test_what_a_profile_does_not_say() -> None:
    assert ProbeChoice() == ProbeChoice("summary", False, None, {})
    assert Budget().as_dict() == {**dict.fromkeys(MOST), "action": "warn"}
