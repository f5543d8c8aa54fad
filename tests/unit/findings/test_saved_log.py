"""Incidents as recordings keep them: each figure as it was, and no more than there is room for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from netconsole.findings import saved_log
from netconsole.findings.incident import Incident
from netconsole.findings.match import Evidence


def test_an_incident_is_told_as_it_was_saved() -> None:
    """Each figure of it is another one. JSON has no infinity: a weight is 10^18 at most."""
    one = Incident(
        number=1, level="!!", cause="c", sentence="s", since_ns=2, ended_ns=3, blind_since_ns=4,
        evidence=(Evidence("table", "p", "t", (("device", "eth0"),)), Evidence("collector", "")), where={"device": "x"},
        weight=math.inf, total=5, peak=6.5, at_least=True, share_pct=7.5, unit="packets", next=("look", "act"),
        commands=("ip a",), history=(),
    )  # fmt: skip
    kept = saved_log.saved(one, last_ns=8, shown=False, is_small=False)
    [found] = saved_log.decode(saved_log.encode([kept]))
    assert found == kept and (found.last_ns, found.shown, found.is_small) == (8, False, False)
    assert found.told() == replace(one, weight=1e18)
    ended = replace(one, ended_ns=None, blind_since_ns=None, total=None, peak=None, share_pct=None, at_least=False)
    [found] = saved_log.decode(saved_log.encode([saved_log.saved(ended, last_ns=8)]))
    assert found.told() == replace(ended, weight=1e18) and (found.shown, found.is_small) == (True, True)


def test_a_log_that_is_too_long_or_none_is_refused() -> None:
    """Up to 4 MiB, and 400 incidents: twice what is saved."""
    assert saved_log.MAX_LOG_BYTES == 4 * 1024 * 1024 and saved_log.MAX_SAVED == 200
    empty = b"[" + b" " * (saved_log.MAX_LOG_BYTES - 2) + b"]"
    assert saved_log.decode(empty) == []
    for content, said in ((empty + b" ", "longer than 4194304 bytes"), (b"{", "not a log"), (b"[7]", "not a log")):
        with pytest.raises(saved_log.LogError, match=said):
            saved_log.decode(content)


def test_saved_incidents_are_short_lists_and_no_more_than_twice_what_is_kept() -> None:
    one = Incident(
        number=1, level="!", cause="c", sentence="x" * 1000, since_ns=2, ended_ns=3, blind_since_ns=None,
        evidence=(Evidence("collector", ""),), where={}, weight=1.0, total=5, peak=None, at_least=False, share_pct=None,
        unit="", next=(), commands=(), history=(),
    )  # fmt: skip
    tally = saved_log.SavedTally("p", "t", "v", "c", "u", 1.5, [saved_log.SavedRow([("device", "e")], 1, 2, 3)])
    kept = saved_log.saved(one, 8, tallies=[tally])
    written = saved_log.encode([kept])
    assert (
        b'[["p","t","v","c","u",1.5,[[[["device","e"]],1,2,3]]]]' in written and b'[["collector","","",[]]]' in written
    )
    assert saved_log.decode(written)[0].told().sentence == "x" * 1000
    assert len(saved_log.decode(saved_log.encode([kept] * 400))) == 400
    with pytest.raises(saved_log.LogError):
        saved_log.decode(saved_log.encode([kept] * 401))
