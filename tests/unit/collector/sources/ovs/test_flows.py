"""The rows that ovs_flows makes of what Open vSwitch says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.ovs import flows
from netconsole_collector.sources.ovs.vswitchd import Answers, UserspaceDatapath, UserspacePort
from tests.support.sources import tables_of

PORTS = (
    UserspacePort("dpdk0", "dpdk", (71, 72, 4260, 4320, 1, 2, 3, 4)),
    UserspacePort("vhost-user-1", "dpdkvhostuserclient", (9, 8, 900, 800, None, None, 3, 4)),
)


class Switch:
    """An ovs-vswitchd with a datapath in user space."""

    pid = ended = None

    def __init__(self, directories: Sequence[str], host: Here) -> None:
        del directories, host

    def read(self) -> Answers:
        return Answers(1.0, {}, {}, (UserspaceDatapath("ovs-netdev", 0, 0, 0, 0, PORTS),))

    def bridges(self) -> dict[tuple[str, str], str]:
        return {("ovs-netdev", port.name): "br-dpdk" for port in PORTS}

    def close(self) -> None:
        pass


def no_kernel_module(host: Here) -> None:
    raise FileNotFoundError(2, "not loaded")


def test_what_a_port_does_not_count_is_unknown_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "Vswitchd", Switch)
    monkeypatch.setattr(flows, "OvsNetlink", no_kernel_module)
    source = flows.OvsFlows(where=[])
    (ports,) = (table for table in tables_of(source) if table.name == "ports")
    of_dpdk, of_guest = ports.rows
    assert of_dpdk.labels == {"datapath": "ovs-netdev", "port": "dpdk0", "type": "dpdk", "bridge": "br-dpdk"}
    assert set(of_dpdk.counts) == set(flows.PORT_COUNTS)
    assert set(flows.PORT_COUNTS) - set(of_guest.counts) == {"rx_errors", "tx_errors"}
