"""What a profile comes to: the probes that run, in which mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole.base.errors import BadInput
from netconsole.probes.catalogue import load_all
from netconsole.profile import loader
from netconsole.profile.plan import plan


def test_the_probe_option_runs_only_these_and_adds_what_the_profile_lacks(tmp_path: Path) -> None:
    catalogue = load_all([paths.data("probes")])
    (tmp_path / "base.toml").write_text('[profile]\n[probes.kernel_drops]\nmode = "details"\n[probes.link_rates]\n')
    profile = loader.load("base", catalogue, [tmp_path])
    requests = plan(profile, catalogue, ["softnet", "kernel_drops", "softnet"])
    assert [(request.name, request.mode) for request in requests] == [
        ("softnet", "summary"),
        ("kernel_drops", "details"),
    ]
    with pytest.raises(BadInput, match="did you mean"):
        plan(profile, catalogue, ["kernel_drop"])
