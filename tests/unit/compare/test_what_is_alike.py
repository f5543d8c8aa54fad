"""What is compared with what: devices, processes, namespaces and hosts that have other names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from netconsole.compare.compare import compare
from netconsole.compare.facts import changed_facts
from netconsole.compare.metrics import Metric, flatten, metric_key
from netconsole.probes.catalogue import load_all, shipped
from netconsole.probes.manifest import GovernedSpec
from netconsole.snapshot.document import Snapshot
from tests.support import made_up
from tests.support.made_up import EMPTY, changed


def keys(snapshot: Snapshot) -> dict[str, Metric]:
    """The metrics of a snapshot by their keys."""
    return {metric.key: metric for metric in flatten(snapshot).by_identity.values()}


def test_a_device_that_came_is_one_change_and_unknown_facts_are_none(five: list[Snapshot]) -> None:
    facts = {f"nic/veth{n}/{name}": 1 for n in (1,) for name in ("mtu", "tx_queue_len", "kind")}
    current = made_up.snapshot(77, facts={**facts, "cpu/governor": None})
    baseline = made_up.snapshot(1, facts={"cpu/governor": "performance"})
    [change] = changed_facts(flatten(current), [flatten(baseline)])
    assert (change.fact, change.baseline, change.current) == ("nic/veth1", None, "there")


def test_taps_are_compared_by_vm_not_by_number(five: list[Snapshot]) -> None:
    def renumbered(first: int) -> Snapshot:
        text = json.dumps(made_up.document(7))
        for number in range(4):
            text = text.replace(f'"vnet{number}"', f'"vnet{first + number}"')
        document = json.loads(text)
        document["facts"] = {
            f"vm/web-{number}/net/0/tap": {"value": f"vnet{first + number}", "source": "", "volatile": True}
            for number in range(4)
        }
        return msgspec.convert(document, Snapshot)

    found = compare(renumbered(40), [renumbered(10)])
    assert found.verdict == "same"
    assert "tx_queue_latency/histogram/wait/device=web-3 net0,queue=1" in keys(renumbered(10))


def test_rows_that_become_one_are_added_up() -> None:
    document = made_up.document(1)
    rows = [{"process": f"nginx/{pid}", "netns": pid, "count": 5} for pid in (10, 11)]
    document["probes"]["kernel_drops"]["tables"] = {"by_process": rows}
    document["probes"]["kernel_drops"]["columns"] = {
        "by_process": {"labels": ["process", "netns"], "values": {"count": {"unit": "packets"}}}
    }
    metrics = keys(msgspec.convert(document, Snapshot))
    assert metrics["kernel_drops/table/by_process/process=nginx,netns=other"].count == 10


def test_a_probe_or_device_of_one_side_alone_is_not_a_change_from_nothing(five: list[Snapshot]) -> None:
    document = made_up.document(77)
    document["probes"]["new"] = document["probes"]["kernel_drops"]
    document["facts"] |= {f"nic/vnet{n}/mtu": {"value": 1500} for n in range(4)} | {"nic/eth9/mtu": {"value": 1500}}
    document["probes"]["link_rates"]["tables"]["links"].append({"device": "eth9", "rx_packets": 10**6, "rx_errors": 0})
    baseline = [made_up.snapshot(seed, facts={f"nic/vnet{n}/mtu": 1500 for n in range(4)}) for seed in range(3)]
    found = compare(msgspec.convert(document, Snapshot), baseline)
    reasons = {one.metric: one.why for one in found.not_comparable}
    assert reasons["new"] == "not in the baseline"
    assert reasons["link_rates/table/links.rx_packets/device=eth9"] == "no such device on the baseline side"


def test_a_network_namespace_that_came_is_no_change_from_nothing_and_has_its_name() -> None:
    def run(namespaces: dict[str, str], *rows: tuple[str, int]) -> Snapshot:
        cells = [{"device": "eth0", "netns": namespace, "count": count} for namespace, count in rows]
        columns = {"drops": {"labels": ["device", "netns"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        probe = {"status": "attached", "tables": {"drops": cells}, "columns": columns}
        facts: dict[str, object] = {"netns_count": len(namespaces)}
        facts |= {f"netns/{inode}/process": name for inode, name in namespaces.items()}
        described = {name: {"value": value, "volatile": True} for name, value in facts.items()}
        return changed(EMPTY, probes={"p": probe}, facts=described)

    before = run({"4026532001": "nginx"})
    found = compare(run({"4026532005": "nginx"}, ("4026532005", 5000)), [before])
    assert [one.metric for one in found.findings] == ["p/table/drops/device=eth0,netns=of nginx"]
    assert found.verdict == "regressed"
    found = compare(run({"4026532001": "nginx", "4026532009": "runner"}, ("4026532009", 5000)), [before])
    assert found.verdict == "unknown"
    [left_out] = found.not_comparable
    assert left_out.metric == "p/table/drops/device=eth0,netns=of runner"
    assert left_out.why == "no such network namespace on the baseline side"
    # The facts of an older snapshot say nothing of namespaces: what is not there is then a 0.
    older = msgspec.structs.replace(before, facts={})
    assert compare(run({}, ("blue", 5000)), [older]).verdict == "regressed"


def test_links_from_before_they_named_their_namespace_are_those_of_the_host() -> None:
    def run(probe: str, *rows: tuple[str | None, int], labels: Sequence[str] = ("device", "netns")) -> Snapshot:
        cells = [{"device": "eth0", "count": count} | ({"netns": netns} if netns else {}) for netns, count in rows]
        columns = {"links": {"labels": list(labels), "values": {"count": {"unit": "packets", "worse": "up"}}}}
        return changed(EMPTY, probes={probe: {"status": "attached", "tables": {"links": cells}, "columns": columns}})

    manifests = load_all()
    for before in (run("link_rates", (None, 5000), labels=["device"]), run("link_rates", (None, 5000))):
        found = compare(run("link_rates", ("host", 50_000), ("blue", 5000)), [before], (), manifests)
        assert {one.metric for one in found.findings} == {
            "link_rates/table/links/device=eth0",
            "link_rates/table/links/device=eth0,netns=blue",
        }
        assert compare(run("link_rates", ("host", 5000)), [before], (), manifests).findings == []
    found = compare(run("other", ("host", 50_000)), [run("other", ("host", 5000))], (), manifests)
    assert [one.metric for one in found.findings] == ["other/table/links/device=eth0,netns=host"]


def test_two_hosts_are_compared_by_what_is_alike_and_their_settings_are_told(five: list[Snapshot]) -> None:
    """Taps, threads, MACs and namespaces of the one are none of the other's: VMs and roles are what is held."""

    def of(name: str, first_tap: int, first_pid: int, seed: int, governor: str) -> Snapshot:
        text = json.dumps(made_up.document(seed))
        for number in range(4):
            text = text.replace(f'"vnet{number}"', f'"vnet{first_tap + number}"')
        document = json.loads(text)
        facts: dict[str, Any] = {"cpu/governor": {"value": governor}}
        for number in range(4):
            tap = f"vnet{first_tap + number}"
            facts |= {
                f"vm/web-{number}/net/0/tap": {"value": tap, "volatile": True},
                f"vm/web-{number}/vhost/0/tid": {"value": first_pid + number, "volatile": True},
                f"nic/{tap}/mac": {"value": f"fe:54:00:00:{seed:02x}:{number:02x}"},
                f"nic/{tap}/mtu": {"value": 1500},
            }
        workers = [{"worker": f"vhost-77/{first_pid + number}", "runs": 5000} for number in range(4)]
        columns = {"workers": {"labels": ["worker"], "values": {"runs": {"unit": "runs"}}}}
        document["probes"]["w"] = {"status": "attached", "tables": {"workers": workers}, "columns": columns}
        host = {"name": name, "kernel": "6.1.0", "boot_id": name}
        return changed(document, host=host, facts=facts)

    found = compare(of("hv-2", 40, 9000, 8, "powersave"), [of("hv-1", 10, 700, 7, "performance")])
    assert found.verdict == "changed" and not [one for one in found.findings if one.significant]
    assert {one.why for one in found.not_comparable} == {"fewer than three runs of the baseline have this figure"}
    assert [change.fact for change in found.facts_changed] == ["cpu/governor"]
    assert (found.current and found.current.host, found.baseline[0].host) == ("hv-2", "hv-1")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_keys_of_hostile_labels_stay_apart(labels: dict[str, str]) -> None:
    key = metric_key("p", "table", "t", labels.items())
    assert key.count("/") == 2 + bool(labels) + key.count("\\/")
    assert not any(ord(character) < 32 for character in key)


def test_a_manifest_says_what_a_label_stands_for_and_which_facts_govern() -> None:
    manifest = shipped("softnet")
    spec = manifest.tables["cpus"]
    [cpu] = spec.key
    owner = replace(cpu, name="owner", stands_for="process")
    mine = replace(
        manifest,
        name="mine",
        tables={"cpus": replace(spec, key=(owner,))},
        governed_by=(GovernedSpec(("ovs/*",), ("cpus",)),),
    )

    def run(owner: str, count: int, limit: int) -> Snapshot:
        rows = [{"owner": owner, "processed": count}]
        columns = {"cpus": {"labels": ["owner"], "values": {"processed": {"unit": "packets", "kind": "sum"}}}}
        probe = {"status": "attached", "tables": {"cpus": rows}, "columns": columns}
        return changed(EMPTY, probes={"mine": probe}, facts={"ovs/limit": {"value": limit}})

    now, before = run("nginx (4711)", 90_000, 2), run("nginx (23)", 10, 1)
    for manifests, metric, facts in (
        ({"mine": mine}, "mine/table/cpus/owner=nginx", ["ovs/limit"]),
        ({}, "mine/table/cpus/owner=nginx (4711)", []),
    ):
        finding = compare(now, [before], (), manifests).findings[0]
        assert (finding.metric, finding.facts) == (metric, facts)
