"""The ledger of a probe: its slots are those of the C, and events that were kept out count as seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from netconsole_collector.probe.reading import ledger

HEADER = Path(__file__).parents[4] / "probes/common/accounting.h"


class Slots:
    """A map that has counted 100 in its first slot, 101 in the next."""

    def sum_of(self, slot: int) -> int:
        return 100 + slot


def test_the_slots_are_those_of_the_programs() -> None:
    (body,) = re.findall(r"enum nc_ledger_slot \{(.*?)\}", HEADER.read_text(), re.DOTALL)
    names = [
        name.lower()
        for name in re.findall(r"NC_(\w+)\s*(?:=\s*0\s*)?,", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))
    ]
    assert tuple(names[: len(ledger.SLOTS)]) == ledger.SLOTS


def test_a_probe_without_a_ledger_has_lost_nothing() -> None:
    assert ledger.read(None) == dict.fromkeys(ledger.SLOTS, 0)


def test_what_the_breaker_and_the_choice_of_flows_keep_out_was_seen_and_suppressed() -> None:
    slots: Any = Slots()
    found = ledger.read(slots)
    plain = {name: 100 + slot for slot, name in enumerate(ledger.SLOTS)}
    kept_out = plain["breaker"] + plain["unsampled"]
    assert found == {**plain, "seen": 100 + kept_out, "suppressed": plain["suppressed"] + kept_out}


def test_events_that_were_submitted_are_no_loss() -> None:
    assert ledger.EVENTS == ("seen", "submitted", "suppressed", "lost")
    assert set(ledger.SLOTS) - set(ledger.LOSSES) == {"seen", "submitted", "scatter"}
