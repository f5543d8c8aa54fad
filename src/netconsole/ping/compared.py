"""Holds a case against another, and looks for causes in what differs."""

from __future__ import annotations

import msgspec

from netconsole.ping.analysis.advice import advice
from netconsole.ping.analysis.difference import compared
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.cases import PingCase


def against(case: PingCase, baseline: PingCase) -> Breakdown:
    """The breakdown of a case with its comparison, and advice on the segments that make the difference."""
    found = msgspec.structs.replace(
        case.breakdown, comparison=compared(case.breakdown, baseline.breakdown, baseline.name)
    )
    if not case.files:
        return found
    return msgspec.structs.replace(found, advice=advice(found, case.files, baseline.files))
