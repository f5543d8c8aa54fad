"""What host_path remembers of devices (probes/common/devices.h): by address, name and settings, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import Ways

Load = Callable[..., UnattachedProbe]


class Watched(Ways):
    """Tells whether a device is in a set: then what comes in there is counted."""

    def add(self, name: str, number: int, kind: str, elsewhere: bool = False) -> str:
        """A device; what it is called here."""
        called = f"{name}/{number}"
        self.index[called] = number
        self.devices[called] = self.link(name, self.nets[elsewhere], number, kind)
        return called

    def rename(self, called: str, name: str) -> None:
        self.memory.change("net_device", self.devices[called], {"name": name.encode()})

    def is_in_a_set(self, called: str) -> bool:
        (before,) = self.counted("received")
        self.ran("receive", self.come(Flow(), called))
        (after,) = self.counted("received")
        return after > before


def test_devices_of_one_name_are_told_apart(load: Load) -> None:
    host = Watched(load("host_path"))
    tap, wire = host.add("same0", 20, "tun"), host.add("same0", 21, "veth", elsewhere=True)
    assert [host.is_in_a_set(one) for one in (tap, wire, tap, wire)] == [True, False, True, False]


@pytest.mark.parametrize("other", ["a-long-name-2", "b-long-name-1", "a-long-name-"])
def test_a_device_with_another_name_is_looked_at_anew(load: Load, other: str) -> None:
    host = Watched(load("host_path"))
    host.probe.set(inside_devices="a-long-name-1", outside_devices="eth0")
    device = host.add("a-long-name-1", 20, "veth")
    assert host.is_in_a_set(device)
    host.rename(device, other)
    assert not host.is_in_a_set(device)
    host.rename(device, "a-long-name-1")
    assert host.is_in_a_set(device)


def test_a_device_is_remembered_until_a_setting_changes(load: Load) -> None:
    """Its kind cannot change on a kernel. Here it does, to show when it is read."""
    host = Watched(load("host_path"))
    tap, wire = host.add("a-long-name-1", 20, "tun"), host.add("wire0", 21, "veth")
    assert host.is_in_a_set(tap)
    (ops,) = host.memory.pointers("net_device", host.devices[wire], "rtnl_link_ops")
    host.memory.change("net_device", host.devices[tap], {"rtnl_link_ops": ops})
    assert host.is_in_a_set(tap)
    host.probe.set(inside_devices="kind:tun", outside_devices="eth1")
    assert not host.is_in_a_set(tap)
