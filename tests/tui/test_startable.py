"""Only probes that may run on this host are offered to be started."""

from __future__ import annotations

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.telemetry.frames import Capability
from netconsole.telemetry.state import ProbeState, State
from netconsole.tui.host_view import LOOK_AGAIN_S, SourcesHere, startable
from netconsole_collector.kernel import modules
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.ovs.flows import OvsFlows
from netconsole_collector.sources.ovs.pmd import OvsPmd
from netconsole_collector.sources.vm.io_limits import IoLimits
from netconsole_collector.sources.vm.thread_waits import ThreadWaits
from netconsole_collector.sources.vm.vm_states import VmStates

MANIFESTS = load_all()
OF_VHOST = {name for name, one in MANIFESTS.items() if one.module == "vhost_net"}


OWN = {one.source for one in MANIFESTS.values()} - {"bpf"}


def offered(state: State, is_far: bool = False) -> set[str]:
    return set(startable(state, MANIFESTS, None if is_far else SourcesHere().find(OWN)))


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> State:
    """Of a host on which every module is loaded, and Open vSwitch with a PMD thread and a VM run."""
    monkeypatch.setattr(modules, "is_loaded", lambda name: True)
    monkeypatch.setattr(OvsFlows, "open", lambda self: None)
    monkeypatch.setattr(OvsPmd, "open", lambda self: None)
    monkeypatch.setattr(OvsPmd, "finds_any", lambda self: True)
    monkeypatch.setattr(VmStates, "finds_any", lambda self: True)
    monkeypatch.setattr(ThreadWaits, "finds_any", lambda self: True)
    monkeypatch.setattr(IoLimits, "finds_any", lambda self: True)
    return State()


def test_all_that_the_session_lacks_is_offered(state: State) -> None:
    state.probes["kernel_drops"] = ProbeState("kernel_drops", "collector")
    assert offered(state) == MANIFESTS.keys() - {"kernel_drops"}


@pytest.mark.parametrize("lacking", ["privileges", "bcc"])
def test_no_bpf_is_offered_where_it_cannot_be_loaded(state: State, lacking: str) -> None:
    state.capabilities[lacking] = Capability(False, "why")
    assert {MANIFESTS[name].source for name in offered(state)}.isdisjoint({"bpf"})
    assert "link_rates" in offered(state)


def test_what_needs_kprobes_is_not_offered_without_them(state: State) -> None:
    state.capabilities["kprobe"] = Capability(False, "why")
    assert {"kernel_drops", "link_rates"} <= offered(state)
    assert not {"tun_queues", "tx_kick_path"} & offered(state)


def test_nothing_is_offered_of_a_module_that_is_not_loaded(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_loaded", lambda name: name != "vhost_net")
    assert not offered(state) & OF_VHOST
    assert offered(state, is_far=True) >= OF_VHOST, "files of this machine say nothing of another"
    refused = state.probes["vhost_queues"] = ProbeState("vhost_queues", "collector")
    refused.status, refused.why = "unsupported", "the kernel module vhost_net is not loaded"
    assert not offered(state, is_far=True) & OF_VHOST
    refused.status = "attached"
    assert offered(state) >= OF_VHOST - {"vhost_queues"}, "loaded since"


def test_a_source_that_finds_nothing_to_read_is_not_offered(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: object) -> None:
        raise SourceError("no Open vSwitch here", state="unsupported")

    assert "link_rates" in offered(state)
    monkeypatch.setattr(OvsFlows, "open", nothing)
    assert "ovs_flows" not in offered(state) and "link_rates" in offered(state)
    assert "ovs_flows" in offered(state, is_far=True), "what is here says nothing of another host"


def test_the_states_of_vms_are_offered_where_a_vm_runs(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "vm_states" in offered(state)
    monkeypatch.setattr(VmStates, "finds_any", lambda self: False)
    assert "vm_states" not in offered(state) and "vm_states" in offered(state, is_far=True)


def test_sources_are_asked_now_and_then_alone(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[OvsFlows] = []
    monkeypatch.setattr(OvsFlows, "open", lambda self: asked.append(self))
    times_s = [1000.0]
    here = SourcesHere(lambda: times_s[-1])
    for later_s, times in ((0.0, 1), (LOOK_AGAIN_S - 0.1, 1), (LOOK_AGAIN_S, 2)):
        times_s.append(1000.0 + later_s)
        assert "ovs" in here.find(OWN) and len(asked) == times
