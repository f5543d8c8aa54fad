"""What the sources of all probes hold to: one way out for events, and the circuit breaker before it."""

from __future__ import annotations

import re

import pytest

from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest

SHIPPED = catalogue.load_all()
BPF = [manifest for manifest in SHIPPED.values() if manifest.source == "bpf"]
DETAILS = [manifest for manifest in BPF if "details" in manifest.modes]
STORMS = [manifest for manifest in DETAILS if manifest.cost == "per drop"]


def own_source(manifest: Manifest) -> str:
    """A probe's source with the headers that not every probe includes, without comments."""
    source = manifest.code()
    own = source[source.index("#endif /* NETCONSOLE_H */") :]
    return re.sub(r"/\*.*?\*/", "", own, flags=re.DOTALL)


def asks_for_flags(source: str) -> bool:
    return "nc_flags(config)" in source and "nc_leave(config)" in source


def names(manifests: list[Manifest]) -> list[str]:
    return [manifest.name for manifest in manifests]


@pytest.mark.parametrize("manifest", BPF, ids=names(BPF))
def test_a_source_is_ascii(manifest: Manifest) -> None:
    """One other character in a header, and Python keeps the texts of all probes with two bytes for each character."""
    assert manifest.code().isascii()


@pytest.mark.parametrize("manifest", BPF, ids=names(BPF))
def test_events_leave_in_one_place_only(manifest: Manifest) -> None:
    source = own_source(manifest)
    assert not re.search(r"ringbuf_output|ringbuf_reserve|perf_submit|trace_printk", source)
    assert bool(manifest.events) == ("nc_submit(" in source)


@pytest.mark.parametrize("manifest", DETAILS, ids=names(DETAILS))
def test_details_ask_the_circuit_breaker_first(manifest: Manifest) -> None:
    source = own_source(manifest)
    assert "nc_event_allowed(config" in source or ("NC_BREAKER" in source and asks_for_flags(source))


@pytest.mark.parametrize("manifest", DETAILS, ids=names(DETAILS))
def test_fewer_details_can_be_had_than_all(manifest: Manifest) -> None:
    """A rung of the governor's ladder between fewer events and none."""
    has_threshold, has_flows = ("threshold_us" in manifest.knobs, "flows_one_in" in manifest.knobs)
    assert has_threshold or has_flows
    source = own_source(manifest)
    assert has_flows == ("nc_flow_sampled(config" in source)
    assert has_threshold == ("NC_F_THRESHOLD" in source)


BOUNDED_BY_NUMBER = ("softirq_health", "mirror")
"""Probes that time so many runs, or fill so many samples: that is a bound of time as well (docs/design/governor.md)."""


@pytest.mark.parametrize("manifest", DETAILS, ids=names(DETAILS))
def test_what_details_take_is_timed(manifest: Manifest) -> None:
    source = own_source(manifest)
    lists = "nc_may_list(config)" in source and "nc_listed(config)" in source
    measures = "nc_may_measure(config)" in source and "nc_measured(config)" in source
    assert lists or measures or asks_for_flags(source) or manifest.name in BOUNDED_BY_NUMBER


@pytest.mark.parametrize("manifest", STORMS, ids=names(STORMS))
def test_what_a_storm_of_drops_multiplies_is_bounded_with_its_rows(manifest: Manifest) -> None:
    source = own_source(manifest)
    makes_rows_if_it_may = "nc_may_list(config)" in source and "nc_listed(config)" in source
    assert makes_rows_if_it_may or ("NC_UNLISTED" in source and asks_for_flags(source))
