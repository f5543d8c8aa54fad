"""The ledger's entries are the same in the kernel, in the collector and here."""

from __future__ import annotations

import re

from netconsole.base import paths
from netconsole.telemetry.ledger import LEDGER, LEDGER_COUNTS, LEDGER_FAULTS, LEDGER_SAMPLES, ROWS_LOST
from netconsole_collector.probe.reading.ledger import LOSSES, SLOTS


def test_the_collector_has_the_slots_of_the_kernel_in_their_order() -> None:
    text = (paths.data("probes") / "common/accounting.h").read_text()
    names = re.findall(
        r"\bNC_(\w+)", re.sub(r"/\*.*?\*/", "", text.partition("enum nc_ledger_slot {")[2].partition("}")[0])
    )
    assert tuple(name.lower() for name in names) == (*SLOTS, "ledger_slots")


def test_every_loss_is_explained() -> None:
    assert set(LOSSES) <= set(LEDGER)
    assert not set(LEDGER_COUNTS) & set(LEDGER_SAMPLES)
    assert set(LEDGER_FAULTS) <= set(LEDGER_COUNTS)
    assert set(ROWS_LOST) - {"omitted"} <= set(LEDGER_COUNTS)  # which only a snapshot has
