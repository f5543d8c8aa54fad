"""The facts of a host: the collector's package reads them (netconsole_collector/questions/facts), here or there."""

from __future__ import annotations

import struct
import sys

import msgspec

from netconsole.base.fact_keys import FactData, FactValue
from netconsole.base.figure import safe
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.sources.tc_facts import TcMessages, tc_facts

_TC = "tc"


class _Told(msgspec.Struct, frozen=True):
    """The answer. A fact: value, source, why, and whether it is volatile."""

    facts: dict[str, tuple[FactValue, str, str | None, bool]]
    tc: TcMessages | None


def collect(host: AnyHost = THIS_HOST) -> dict[str, FactData]:
    """The facts of a host, by key. Never raises: what could not be read is unknown, with the reason."""
    try:
        told = door.ask(host, "facts", None, _Told)
    except Unanswered as error:
        from netconsole_collector.questions.facts import AREAS

        return {area: FactData(None, "netconsole", error.strerror) for area in AREAS}
    found = {name: FactData(*fact) for name, fact in told.facts.items()}
    if told.tc is not None and told.tc.byteorder != sys.byteorder:
        found[_TC] = FactData(None, "rtnetlink", "the host's processors order bytes otherwise than those here")
    elif told.tc is not None:
        try:
            found |= tc_facts(told.tc)
        except (ValueError, LookupError, TypeError, struct.error) as error:  # the answer of another host
            found[_TC] = FactData(None, "rtnetlink", f"netconsole cannot read it: {safe(error, 120)}")
    return dict(sorted(found.items()))
