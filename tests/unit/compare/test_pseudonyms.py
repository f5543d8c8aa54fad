"""A redacted snapshot against one that is not: what has a name has another one on the other side."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.base.fact_keys import FactData
from netconsole.compare.compare import compare
from netconsole.compare.pseudonyms import NAMES, WHY
from netconsole.snapshot.document import Snapshot
from netconsole.snapshot.redact import Redactor
from tests.support import made_up

COLUMNS = {
    "labels": ["process", "address", "reason"],
    "values": {"count": {"unit": "packets", "kind": "sum", "worse": "up"}},
}


def plain(lost: int = 5000, **more: Any) -> Snapshot:
    """A full socket of python3 loses packets, and some of a reason that names nothing."""
    rows = [{"process": "python3/7", "address": "192.0.2.1", "reason": "full", "count": lost}]
    rows.append({"process": None, "address": None, "reason": more.pop("reason", "other"), "count": 900})
    probe = {
        "status": "attached", "tables": {"sockets": rows}, "columns": {"sockets": COLUMNS},
        "counters": {"lost": {"total": lost + 900, "unit": "packets", "worse": "up"}},
    }  # fmt: skip
    facts = {
        "nic/eth0/mtu": {"value": 1500}, "nic/eth0/master": {"value": "br0"}, "cpu/governor": {"value": "x"},
        "kernel/cmdline": {"value": "root=UUID=0b0d63ba-7a1c-4b1c-8f5e-5a0d1c2b3a49"},
    }  # fmt: skip
    place = {"level": "!!", "stage": "socket", "where": "python3/7 UDP", "why": "full", "total": lost, "per_s": 500.0}
    places = [place | {"probes": ["p"]}]
    return made_up.changed(made_up.EMPTY, probes={"p": probe}, facts=facts, drop_places=places, **more)


def redacted(snapshot: Snapshot) -> Snapshot:
    return Redactor(b"k" * 32).snapshot(snapshot)


@pytest.mark.parametrize(
    ("now", "before", "side"),
    [
        (redacted(plain()), [plain()], "the current snapshot"),
        (plain(), [redacted(plain())], "the baseline"),
        (plain(), [redacted(plain()), plain()], "a part of them"),
        (redacted(plain()), [redacted(plain()), plain()], "a part of them"),
    ],
)
def test_what_has_a_pseudonym_on_one_side_only_is_no_change(now: Snapshot, before: list[Snapshot], side: str) -> None:
    found = compare(now, before)
    assert (found.verdict, found.findings, found.facts_changed) == ("same", [], [])
    first, *others = found.not_comparable
    assert (first.metric, first.why.partition(" is redacted, ")[0]) == (NAMES, f"only {side}")
    assert {one.why for one in others} == {WHY} and len(others) == 2
    places = {one.where: (one.baseline_per_s, one.current_per_s) for one in found.drop_places or ()}
    assert len(places) == 2 and not any(0.0 in rates for rates in places.values())


def test_what_names_nothing_and_the_sum_of_what_does_are_still_compared() -> None:
    found = compare(redacted(plain(90_000)), [plain()])
    assert (found.verdict, [one.metric for one in found.findings if one.significant]) == (
        "regressed",
        ["p/counter/lost"],
    )
    found = compare(redacted(plain(reason="new")), [plain()])
    assert {one.metric for one in found.findings} == {"p/table/sockets/reason=new", "p/table/sockets/reason=other"}


def test_snapshots_that_are_all_redacted_or_none_are_compared_with_their_names() -> None:
    for now, before in ((plain(90_000), plain()), (redacted(plain(90_000)), redacted(plain()))):
        found = compare(now, [before])
        assert "p/table/sockets/process=" in found.findings[0].metric
        assert not [one for one in found.not_comparable if one.metric == NAMES]


def test_a_host_that_is_called_localhost_is_redacted_by_its_devices() -> None:
    host = {"name": "localhost", "kernel": "6.1"}
    found = compare(redacted(plain(host=host)), [plain(host=host)])
    assert found.not_comparable[0].metric == NAMES
    facts = msgspec.convert({"nic/device-": {"value": 1}, "nic/": {"value": 1}}, dict[str, FactData])
    odd = msgspec.structs.replace(plain(host=host), facts=facts)
    assert compare(odd, [odd]).not_comparable == []
