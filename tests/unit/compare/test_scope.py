"""A measurement of one namespace is compared with that namespace alone; a baseline of another scope says what it is."""

from __future__ import annotations

from typing import Any

import msgspec

from netconsole.base.fact_keys import FactData
from netconsole.compare.baseline import Baseline, summary
from netconsole.compare.compare import compare
from netconsole.compare.reference import Reference
from netconsole.probes.catalogue import shipped
from netconsole.snapshot.document import Snapshot
from tests.support import made_up

MANIFESTS = {"link_rates": shipped("link_rates")}


def taken(scope: dict[str, str] | None = None, **packets: int) -> Snapshot:
    """Links with so many packets, each in the namespace of its name."""
    document: dict[str, Any] = made_up.document(1, devices=1)
    link = document["probes"]["link_rates"]
    rows = [{"device": "eth0", "netns": netns, "rx_packets": count} for netns, count in packets.items()]
    columns = {"labels": ["device", "netns"], "values": {"rx_packets": {"unit": "packets", "kind": "sum"}}}
    link |= {"tables": {"links": rows}, "columns": {"links": columns}}
    link["row_history"] = {"links.rx_packets": [[count / 10.0] for count in packets.values()]}
    document["probes"] = {"link_rates": link}
    document["profile"]["scope"] = scope or {}
    facts = {"value": 1500, "source": "x"}
    document["facts"] = {"kernel/release": facts, **({} if scope else {"nic/eth0/mtu": facts})}
    return msgspec.convert(document, Snapshot)


def test_a_baseline_of_the_whole_host_is_narrowed_to_the_scope() -> None:
    """Else each namespace that the scope leaves out is listed as one that is gone."""
    found = compare(taken({"netns": "uxb"}, uxb=1000), [taken(uxb=1000, mfa=5000, mfb=3000)], manifests=MANIFESTS)
    assert (found.verdict, found.findings, found.compared) == ("same", [], 1)
    assert not [one for one in found.not_comparable if "mf" in one.metric]
    assert [one.fact for one in found.facts_changed] == []


def test_a_baseline_of_a_scope_is_not_compared_with_the_whole_host() -> None:
    found = compare(taken(uxb=1000, mfa=5000), [taken({"netns": "uxb"}, uxb=1000)], manifests=MANIFESTS)
    assert found.verdict == "unknown"
    assert found.not_comparable[0].why == "the baseline is of netns uxb only"
    device = compare(taken({"device": "eth0"}, uxb=1), [taken({"netns": "uxb"}, uxb=1)], manifests=MANIFESTS)
    assert device.not_comparable[0].why == "the baseline is of netns uxb only, this is of device eth0"


def test_a_live_comparison_says_that_all_runs_are_of_another_scope() -> None:
    runs = [taken({"netns": "uxb"}, uxb=1000)]
    assert Reference("quiet", runs, {}, MANIFESTS).other_scope == "the baseline is of netns uxb only"
    assert Reference("quiet", runs, {}, MANIFESTS, {"netns": "uxb"}).other_scope is None
    assert Reference("quiet", [*runs, taken(uxb=1)], {}, MANIFESTS).other_scope is None, "one run may be compared"


def test_the_list_of_baselines_says_the_scope_before_one_chooses() -> None:
    made = Baseline("netconsole.baseline/1", "quiet", "", ["a"], [taken({"netns": "uxb"}, uxb=1)])
    assert "of netns uxb only" in summary(made, None, None).notes
    whole = Baseline("netconsole.baseline/1", "quiet", "", ["a"], [taken(uxb=1)])
    assert not [note for note in summary(whole, None, None).notes if "only" in note]


def test_a_route_of_a_namespace_is_a_changed_setting_and_a_new_namespace_is_one_change() -> None:
    def with_facts(**hashes: str) -> Snapshot:
        facts = {
            f"namespace/{name}/{what}": FactData(text, "x") for name, text in hashes.items() for what in ("a", "b")
        }
        return msgspec.structs.replace(taken(uxb=1000), facts=facts)

    found = compare(with_facts(host="1", web="3", new="4"), [with_facts(host="1", web="2")], manifests=MANIFESTS)
    changes = {one.fact: (one.baseline, one.current) for one in found.facts_changed}
    assert changes == {"namespace/web/a": ("2", "3"), "namespace/web/b": ("2", "3"), "namespace/new": (None, "there")}
