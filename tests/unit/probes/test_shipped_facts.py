"""Facts of NICs that manifests name as explanations are facts that are collected."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from netconsole.probes.catalogue import load_all

COLLECTED = (
    *("mtu", "gro_flush_timeout", "offload/rx-gro", "channels/combined_count", "ring/rx", "coalesce/rx_coalesce_usecs"),
    *("link/speed", "rss_hash/udp4", "rss_indirection", "rx-0/rps_cpus", "irq/eth0-rx-0/cpus"),
)
"""One of each group, as questions/facts/nics.py and ethtool.py name them below nic/DEVICE."""
NAMED = {
    pattern
    for manifest in load_all().values()
    for spec in manifest.governed_by
    for pattern in spec.facts
    if pattern.startswith("nic/")
}


@pytest.mark.parametrize("pattern", sorted(NAMED))
def test_what_may_explain_a_figure_is_collected(pattern: str) -> None:
    assert any(fnmatchcase(f"nic/eth0/{one}", pattern) for one in COLLECTED)
