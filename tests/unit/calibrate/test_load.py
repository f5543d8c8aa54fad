"""The figures of a stretch over tap and vhost, of what its two ends answer; and a path that nothing passes is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netconsole.base.errors import Unable
from netconsole.calibrate import plan
from netconsole.calibrate.load import GUEST_WORKLOADS, METRICS, SWITCH_WORKLOADS, WORKLOADS, LoadEnds
from netconsole.probes.catalogue import load_all

TO, FROM = GUEST_WORKLOADS
SENT = {"units": 1000, "units_in_all": 1100, "seconds": 0.5, "cpu_ns": 2_000_000}


class End:
    """Answers by the command; ``received`` grows by so much each time that it is asked."""

    def __init__(self, comes: int, error: str = "") -> None:
        self.comes, self.error = comes, error
        self.received = 0

    def ask(self, command: Mapping[str, Any], seconds: float = 0.0) -> dict[str, Any]:
        if command["do"] in ("guest", "switch") and self.error:
            raise Unable(self.error)
        if command["do"] == "received":
            self.received += self.comes
            return {"units": self.received}
        if command["do"] == "from_guest":
            return {"units": 300, "units_in_all": 360, "seconds": 0.5}
        spread = {"units": 9, "units_in_all": 9, **dict.fromkeys(("min", "mean", "p50", "p90", "p99", "max"), 1000)}
        answers: dict[str, dict[str, Any]] = {
            "used": {"cpu_ns": 0}, "datagrams": dict(SENT), "hello": {"pid": 7}, "round_trips": spread,
            "stream": dict(SENT),
        }  # fmt: skip
        return answers.get(command["do"], {})

    def close(self) -> None:
        pass


def ends(comes: int, error: str = "") -> LoadEnds:
    made = LoadEnds()
    made._ends = [End(0, error), End(comes, error)]  # type: ignore[list-item]
    return made


def test_what_comes_to_a_guest_is_the_rate_and_what_is_sent_costs_the_sender() -> None:
    found = ends(550).run(TO, 0.5)
    assert found.figures == {"to_guest.per_s": 1000.0, "to_guest.cpu_ns": 2000.0}
    assert found.units_in_all == 550


def test_what_a_guest_sends_is_what_vhost_takes() -> None:
    found = ends(0).run(FROM, 0.5)
    assert (found.figures, found.units_in_all) == ({"from_guest.per_s": 600.0}, 360)
    assert {one.name for one in METRICS if "guest" in one.name} == {*found.figures, "to_guest.per_s", "to_guest.cpu_ns"}


@pytest.mark.parametrize(
    ("comes", "error", "said"), [(9, "", ""), (0, "", "no packet came through"), (9, "no vhost", "no vhost")]
)
def test_a_path_that_nothing_passes_is_left_out_with_its_reason(comes: int, error: str, said: str) -> None:
    told: list[str] = []
    manifests = load_all()
    workloads = plan._more(ends(comes, error), [manifests["vhost_queues"]], told.append)
    assert list(workloads) == ([] if said else list(GUEST_WORKLOADS))
    assert [one for one in told if said not in one] == [] and bool(told) == bool(said)
    assert plan._more(ends(0), [manifests["softirq_health"]], told.append) == []


@pytest.mark.parametrize("error", ["", "no Open vSwitch"])
def test_probes_of_open_vswitch_are_measured_over_a_bridge_of_it(error: str) -> None:
    told: list[str] = []
    of = [load_all()["ovs_drops"]]
    workloads = plan._more(ends(9, error), of, told.append)
    assert workloads == ([] if error else list(SWITCH_WORKLOADS))
    assert told == ([f"left out: the load over Open vSwitch: {error}"] if error else [])
    assert plan.workloads_of(of) == (*WORKLOADS, *SWITCH_WORKLOADS)
    assert all(one.command["to"] for one in SWITCH_WORKLOADS)
