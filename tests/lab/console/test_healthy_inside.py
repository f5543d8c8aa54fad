"""A healthy mix on a host of VMs, a bridge and a router of the lab: nothing of it is a fault."""

from __future__ import annotations

import sys

import pytest

from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from tests.lab.kernels.compiled import bring, shipped
from tests.lab.machine.hypervisor import on_a_still_checkout
from tests.lab.network.testbed import Testbed

pytestmark = [pytest.mark.booting, pytest.mark.long]

MINUTES = "1"
LIMIT_S = 600.0


@pytest.fixture(scope="module")
def host(testbed: Testbed) -> Testbed:
    """With the programs of the profile summary: to compile them inside takes minutes."""
    manifests = load_all()
    names = [one.name for one in plan(load("summary", manifests), manifests)]
    bring(testbed.hypervisor, shipped(names).values())
    return testbed


@pytest.mark.parametrize("path", ["switch", "bridge", "router"])
def test_nothing_of_a_healthy_mix_is_a_fault(path: str, host: Testbed) -> None:
    """The switch has the taps of two guests, which get what is for all."""
    command = on_a_still_checkout(sys.executable, "bench/healthy.py", MINUTES, path, "1")
    first, *incidents = host.hypervisor.run(*command, limit_s=LIMIT_S).text.splitlines()
    assert first.startswith(f"the mix by {path}, 1 times, {MINUTES} minutes: ")
    # Guests in an emulated machine of two CPUs do wait for them, beside the senders of the mix.
    assert [line for line in incidents if "  cpu-wait [" not in line] == []
