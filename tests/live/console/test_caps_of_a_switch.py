"""What holds a real virtual machine back in Open vSwitch's user space, made on purpose: `netconsole vm` names it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.live.dpdk_switch import dpdk_switch
from tests.support.live.pmd_switch import PmdSwitch
from tests.support.live.tiny_guest import HALTS, Card, TinyGuest
from tests.support.live.vm_page import Caps, caps, first, only
from tests.support.live.vswitchd import BRIDGE, Vswitchd

pytestmark = pytest.mark.costs

FRAME = bytes.fromhex("02000000000b 020000000001 88b5") + bytes(986)
"""1 000 bytes of an EtherType for local experiments (IEEE 802, 88b5)."""
PAUSE_S = 0.01
PER_S = 1000
SOURCES = ("vm_states", "thread_waits", "link_rates", "io_limits", "ovs_pmd", "ovs_drops")


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[PmdSwitch]:
    with closing(PmdSwitch(tmp_path)) as one:
        yield one


@contextmanager
def plugged_in(switch: Vswitchd) -> Iterator[TinyGuest]:
    """A machine whose tap is a port of the switch. It sends PER_S frames a second, as a guest would."""
    ended = threading.Event()
    with closing(TinyGuest(HALTS, Card.HUB, inside=switch.switch)) as one:
        switch.vsctl("add-port", BRIDGE, one.tap)

        def send() -> None:
            while not ended.wait(PAUSE_S):
                for _ in range(int(PER_S * PAUSE_S)):
                    one.send(FRAME)

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield one
        finally:
            ended.set()
            sending.join()
            switch.vsctl("del-port", BRIDGE, one.tap)


def seen(switch: Vswitchd, one: TinyGuest) -> Caps:
    """On a host where this switch is the one that its tools find."""
    there = 'mkdir -p /run/openvswitch && mount --bind "$0" /run/openvswitch && exec "$@"'
    where = ["ip", "netns", "exec", switch.switch.name, "sh", "-c", there, str(switch.directory)]
    return caps(one, SOURCES, where=where, environment=switch.environment)


def test_a_meter_of_user_space_is_told_of_the_port_whose_packets_it_sheds(switch: PmdSwitch) -> None:
    switch.ofctl("add-meter", "meter=7,pktps,band=type=drop,rate=100")
    with plugged_in(switch) as one:
        switch.rules(f"priority=9,in_port={one.tap},actions=meter:7,output:p1\npriority=1,actions=NORMAL")
        text = first(seen(switch, one), "a meter of Open vSwitch")
    assert text.startswith("Open vSwitch: ") and "are over the rate of a meter" in text
    assert f"meter 7 of {BRIDGE} lets no more through of {one.tap} (table 0, rule in_port" in text


def test_a_policer_of_its_port(switch: PmdSwitch) -> None:
    """What it is set to holds also where this kernel has no policer of its own: its guest sends so much."""
    with plugged_in(switch) as one:
        switch.vsctl("set", "Interface", one.tap, "ingress_policing_rate=2000")
        text = first(seen(switch, one), "a policer of Open vSwitch")
        switch.vsctl("set", "Interface", one.tap, "ingress_policing_rate=80000")
        free = seen(switch, one)["a policer of Open vSwitch"]
    assert text.startswith(f"Open vSwitch polices {one.tap} to 2.00Mbit/s; it sends ")
    assert free["state"] == "free" and free["text"].startswith(f"Open vSwitch polices {one.tap} to 80.0Mbit/s; it")


@pytest.mark.long
def test_the_thread_that_polls_its_port_is_full(tmp_path: Path) -> None:
    """The port is that of a machine (vhost-user), and others bring the thread more than it can take."""
    directory, pages = tmp_path / "dpdk", tmp_path / "pages"
    directory.mkdir()
    pages.mkdir()
    with dpdk_switch(directory, pages) as switch:
        path = f"{directory}/vhost"
        kind = ("type=dpdkvhostuserclient", f"options:vhost-server-path={path}")
        switch.vsctl("add-port", BRIDGE, "vhost0", "--", "set", "Interface", "vhost0", *kind)
        words = ["-chardev", f"socket,id=vhost,path={path},server=on", "-netdev", "vhost-user,id=net,chardev=vhost"]
        words += ["-device", "virtio-net-pci,netdev=net,romfile="]
        with closing(TinyGuest(HALTS, more=words)) as one:
            text = only(seen(switch, one), "the PMD thread of its port")
    assert text.startswith("the PMD thread on core ") and text.endswith(" of its time")
