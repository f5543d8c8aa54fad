"""calibrate over tap and vhost, and over Open vSwitch: each probe of that has a cost, and nothing is left."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.machine.hypervisor import CHECKOUT, Hypervisor
from tests.lab.network.testbed import Testbed

pytestmark = pytest.mark.long

PROBES = ("vhost_queues", "tun_queues", "irq_path", "kvm_irqs")
OF_SWITCH = ("ovs_upcalls", "ovs_drops")
LIMIT_S = 900.0
CALIBRATE = """
import json, msgspec, sys
from netconsole.calibrate import plan, tool
from netconsole.calibrate.summary import entry
from netconsole.cli.calibrate import _treatments
from netconsole.probes.catalogue import load_all
PAIRS, WINDOW_S = 2, 1.0
tool.LIMIT_S = 600.0  # the empty programs are compiled there
manifests = load_all()
treatments = _treatments(manifests, sys.argv[1:], None)
say = lambda line: print(line, file=sys.stderr)
of = [manifests[name] for name in sys.argv[1:]]
found = plan.run(treatments, of, PAIRS, WINDOW_S, say, True, [])
entries = {one.name: entry(one, found, manifests, PAIRS, WINDOW_S) for one in treatments}
print(json.dumps(msgspec.to_builtins(entries)))
"""
HELD = """
import os, signal
from netconsole.calibrate.load import LoadEnds
with LoadEnds() as load:
    print(load.open_guest() or load.open_switch() or "there", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def left(hypervisor: Hypervisor) -> str:
    """How many namespaces have a device of the load."""
    named = "cat /proc/[0-9]*/net/dev 2>/dev/null | grep -cE 'nc-(guest|bridge|port|behind)' || true"
    return hypervisor.run("sh", "-c", named).text.strip()


def calibrated(testbed: Testbed, probes: tuple[str, ...]) -> dict[str, Any]:
    bring(testbed.hypervisor, shipped(probes).values())
    said = testbed.hypervisor.python("-c", CALIBRATE, *probes, limit_s=LIMIT_S).splitlines()
    answer: dict[str, Any] = json.loads(said[-1])
    return answer


@pytest.fixture(scope="module")
def found(testbed: Testbed) -> dict[str, Any]:
    return calibrated(testbed, PROBES)


@pytest.mark.parametrize("probe", PROBES)
def test_each_probe_of_the_path_has_a_cost(found: dict[str, Any], probe: str) -> None:
    entry = found[f"{probe}:summary"]
    changes = {one["metric"]: one for one in entry["changes"]}
    assert set(changes) == {"to_guest.per_s", "to_guest.cpu_ns", "from_guest.per_s"}
    for one in changes.values():
        assert one["before"] > 0 and one["during"] > 0 and one["floor_pct"] >= 0
        assert one["change_pct"]["low"] <= one["change_pct"]["value"] <= one["change_pct"]["high"]
    runs = {one["workload"]: one["runs"] for one in entry["kernel"]}
    print(probe, runs, {name: round(one["before"]) for name, one in changes.items()})
    assert runs["to_guest"] > 0
    if probe == "tun_queues":
        assert runs["to_guest"] >= 0.9, "a run for each packet that comes"
    if probe == "vhost_queues":
        assert runs["from_guest"] > 0


def test_each_probe_of_open_vswitch_has_a_cost(testbed: Testbed) -> None:
    of_switch = calibrated(testbed, OF_SWITCH)
    for probe in OF_SWITCH:
        entry = of_switch[f"{probe}:summary"]
        changes = {one["metric"]: one for one in entry["changes"]}
        assert {"upcalls.cpu_ns", "dropped_by_flow.cpu_ns", "over_small.per_s", "over_tcp_round_trip.max_us"} <= set(
            changes
        )
        assert all(one["before"] > 0 and one["during"] > 0 and one["floor_pct"] >= 0 for one in changes.values())
        runs = {one["workload"]: one["runs"] for one in entry["kernel"]}
        print(probe, runs, {name: round(one["before"]) for name, one in changes.items()})
        assert runs["upcalls" if probe == "ovs_upcalls" else "dropped_by_flow"] > 0.5, "a run for most packets"


def test_nothing_is_left_however_it_dies(testbed: Testbed, found: dict[str, Any]) -> None:
    hypervisor = testbed.hypervisor
    assert left(hypervisor) == "0"
    process = hypervisor.start(sys.executable, "-c", HELD, cwd=CHECKOUT)
    process.wait_for(b"there\n", 60.0)
    for _ in range(50):
        if left(hypervisor) == "0":
            return
        hypervisor.run("sleep", "0.2")
    raise AssertionError("a device of the load is left")
