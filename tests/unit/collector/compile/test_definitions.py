"""What is defined before a probe's source: names and numbers of the manifest, and nothing else of it."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole_collector.compile.compiler import definitions
from netconsole_collector.compile.refused import ProbeRefused


def test_knobs_and_sets_have_their_numbers_by_name() -> None:
    knobs = {"events_per_s": 5, "inside_devices": "", "late_ms": 1, "deep": True, "outside_devices": "eth0"}
    found = definitions({"knobs": knobs, "events": {"drop": {}}})
    assert found == {
        "NC_EVENTS": 1,
        "NC_KNOB_late_ms": 0,
        "NC_KNOB_deep": 1,
        "NC_SET_inside_devices": 1,
        "NC_SET_outside_devices": 2,
    }


def test_bounds_are_those_of_the_manifest_or_the_usual_ones() -> None:
    found = definitions({"tables": {"a": {"max_rows": 7}, "b": {}}, "histograms": {"c": {}}})
    assert found == {"NC_EVENTS": 0, "NC_ROWS_a": 7, "NC_ROWS_b": 1024, "NC_ROWS_c": 8192}


@pytest.mark.parametrize("name", ["a b", "a\n#define x", "a(b)", "", "é", "a;"])
@pytest.mark.parametrize("section", ["knobs", "tables", "histograms"])
def test_what_is_no_name_in_c_is_refused(section: str, name: str) -> None:
    entry: Any = 1 if section == "knobs" else {}
    with pytest.raises(ProbeRefused, match="not a name"):
        definitions({section: {name: entry}})
    if section == "knobs":
        with pytest.raises(ProbeRefused, match="not a name"):
            definitions({section: {f"{name} _devices": ""}})
