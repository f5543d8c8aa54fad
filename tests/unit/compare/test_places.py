"""Places where packets died, then and now: only what both sides could have seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.compare.compare import compare
from netconsole.compare.labels import Names
from netconsole.compare.places import changed_machines, changed_places, stable
from netconsole.snapshot.document import Snapshot
from tests.support import made_up

PORT = {"level": "!", "stage": "port", "where": "eth0", "why": "nobody listens, UDP", "total": 30, "per_s": 3.0}
QDISC = {"level": "!!", "stage": "qdisc", "where": "eth0", "why": "shed by its qdisc", "total": 70, "per_s": 7.0}


def snapshot(filters: dict[str, Any] | None, *places: dict[str, Any]) -> Snapshot:
    document = made_up.document(1, samples=20)
    document["probes"]["kernel_drops"]["filters"] = filters
    return msgspec.convert({**document, "drop_places": list(places)}, Snapshot)


def changes(now: dict[str, Any] | None, before: dict[str, Any] | None) -> list[tuple[str, float | None, float | None]]:
    """Of a place that kernel_drops alone saw, and of one that the qdisc counts, too, on both sides."""
    places = {**PORT, "probes": ["kernel_drops"]}, {**QDISC, "probes": ["kernel_drops", "link_rates"]}
    found = changed_places(snapshot(now, *places), [snapshot(before, places[1])], {})
    return sorted((one.stage, one.baseline_per_s, one.current_per_s) for one in found)


def test_what_only_a_probe_with_other_filters_saw_is_no_change() -> None:
    both = [("port", 0.0, 3.0), ("qdisc", 7.0, 7.0)]
    assert changes({}, {}) == changes(None, {"reason": "XDP"}) == changes({"port": 1}, {"port": 1}) == both
    assert changes({"reason": "NO_SOCKET"}, {"reason": "not:NO_SOCKET"}) == both[1:]
    assert changes({}, {"reason": "XDP"}) == both[1:]


@pytest.mark.parametrize("standing", [None, {"status": "failed"}, {"status": "off"}, {"mode": "counters"}])
def test_nothing_is_known_of_a_place_where_its_probe_did_not_look(standing: dict[str, str] | None) -> None:
    """Not attached, or in the mode that lists no places: that is no 0, and no run of the mean."""
    seen = snapshot({}, {**PORT, "probes": ["kernel_drops"]})
    blind = msgspec.to_builtins(snapshot({}))
    probe = blind["probes"].pop("kernel_drops")
    if standing is not None:
        blind["probes"]["kernel_drops"] = probe | standing
    other = msgspec.convert(blind, Snapshot)
    looked = snapshot({})

    def of(now: Snapshot, *before: Snapshot) -> tuple[float | None, float | None]:
        (one,) = changed_places(now, before, {})
        return one.baseline_per_s, one.current_per_s

    assert of(other, seen) == (3.0, None)
    assert of(seen, other) == (None, 3.0)
    assert of(seen, other, seen, looked) == (1.5, 3.0)
    assert of(looked, seen) == (3.0, 0.0)


def test_a_coarser_probe_alone_does_not_know_that_none_died() -> None:
    """It has the packets that the finer one told of in other words, if there are any."""
    both = snapshot({}, {**QDISC, "probes": ["kernel_drops", "link_rates"]})
    document = msgspec.to_builtins(snapshot({}))
    del document["probes"]["kernel_drops"]
    coarse = msgspec.convert(document, Snapshot)
    (one,) = changed_places(coarse, [both], {})
    assert (one.baseline_per_s, one.current_per_s) == (7.0, None)
    (one,) = changed_places(snapshot({}), [both, snapshot({}, {**QDISC, "probes": ["kernel_drops"]})], {})
    assert one.current_per_s == 0.0


def test_what_nobody_wants_is_first_and_then_what_has_grown_most() -> None:
    now = [{**QDISC, "where": name, "per_s": per_s} for name, per_s in (("a", 9.0), ("b", 1.0), ("c", 5.0))]
    then = [{**QDISC, "where": name, "per_s": per_s} for name, per_s in (("a", 8.0), ("b", 4.0), ("gone", 6.0))]
    fine = {**QDISC, "level": "ok", "where": "z", "per_s": 99.0}
    found = changed_places(snapshot({}, fine, *now), [snapshot({}, *then)], {})
    assert [one.where for one in found] == ["c", "a", "b", "gone", "z"]
    assert (found[3].baseline_per_s, found[3].current_per_s) == (6.0, 0.0)


def test_rates_are_means_of_the_baseline_to_a_thousandth() -> None:
    def at(per_s: float | None, total: int = 30) -> Snapshot:
        return snapshot({}, {**QDISC, "per_s": per_s, "total": total})

    (one,) = changed_places(at(1.23456), [at(2.0), at(3.0), at(3.00037)], {})
    assert (one.baseline_per_s, one.current_per_s) == (2.667, 1.235)


def test_a_place_without_a_rate_has_that_of_its_total() -> None:
    one = snapshot({}, {**QDISC, "per_s": None, "total": 30})
    rate = round(30 / one.duration_s, 3)
    assert [place.current_per_s for place in changed_places(one, [one], {})] == [rate]
    brief = msgspec.structs.replace(one, duration_s=0.0)
    assert [place.current_per_s for place in changed_places(brief, [brief], {})] == [0.0]


def test_a_place_is_the_same_after_another_boot() -> None:
    names = Names(snapshot({}).facts)
    assert stable("UDP port 53 of dnsmasq/123", names) == "UDP port 53 of dnsmasq"
    assert stable("nginx (77) here", names) == "nginx here"
    assert stable("port 53 (netns blue)", names) == "port 53 (netns blue)"


def of_machine(created: str, **vms: bool) -> Snapshot:
    """A snapshot with these VMs; some are stopped."""
    rows = [{"vm": name, "process": name, "stopped": int(stopped), "cpu_ns": 0} for name, stopped in vms.items()]
    probe = {"status": "attached", "tables": {"machines": rows}}
    document = made_up.document(1, samples=20)
    document["probes"]["vm_states"] = probe
    return msgspec.convert({**document, "created": created}, Snapshot)


def test_a_vm_that_something_else_caps_than_before_is_told_with_both() -> None:
    old, newer = of_machine("2026-11-01T00:00:00Z", web=True), of_machine("2026-11-02T00:00:00Z", web=False, db=True)
    now = of_machine("2026-11-03T00:00:00Z", web=True, db=False, new=True)
    stopped = "it is stopped: its QEMU process gets no CPU (SIGSTOP)"
    web, db = changed_machines(now, [newer, old])
    assert (web.vm, web.is_capped, web.current) == ("web", True, stopped)
    assert (db.vm, db.is_capped, db.baseline) == ("db", False, stopped)
    assert web.baseline.startswith("nothing that was measured caps it") and db.current == web.baseline
    assert not changed_machines(now, [old]), "what capped it caps it still"
    assert [one.vm for one in compare(now, [newer]).machines] == ["web", "db"]
