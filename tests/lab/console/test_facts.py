"""The facts of a hypervisor report what was configured: VM, switch, bond and traffic control."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.traffic import worker_pids

FACTS = """
import json
import msgspec
from netconsole.sources.facts import collect
print(json.dumps({name: msgspec.to_builtins(fact) for name, fact in collect().items()}))
"""
DEVICE = "facts0"


@pytest.fixture(scope="module")
def configured(testbed: Testbed) -> Iterator[Testbed]:
    """A bond, a classful qdisc with a filter, a policer, a worker of a real-time class on one CPU."""
    host, guest = testbed.hypervisor, testbed.guests[0]
    with ExitStack() as undo:
        remove = f"for one in bond9 {DEVICE}; do [ ! -e /sys/class/net/$one ] || ip link del $one; done"
        undo.callback(host.shell, remove)
        host.shell(f"""
            modprobe -a bonding sch_htb sch_ingress cls_u32 cls_matchall act_police
            ip link add {DEVICE} type veth peer name facts1
            ip link add bond9 type bond mode 802.3ad xmit_hash_policy layer3+4 miimon 100 lacp_rate fast
            ip link set facts1 master bond9
            tc qdisc add dev {DEVICE} root handle 1: htb
            tc class add dev {DEVICE} parent 1: classid 1:7 htb rate 10mbit
            tc filter add dev {DEVICE} parent 1: protocol ip prio 3 u32 match ip dst 10.0.0.1 classid 1:7
            tc qdisc add dev {DEVICE} clsact
            tc filter add dev {DEVICE} ingress prio 5 protocol all matchall action police rate 5mbit burst 10k drop
        """)
        undo.callback(testbed.ovs.vsctl, "remove", "Open_vSwitch", ".", "other_config", "max-idle")
        testbed.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=20000")
        for pid in worker_pids(host, guest):
            undo.callback(host.shell, f"chrt -o -p 0 {pid}; taskset -pc 0,1 {pid}")
            host.shell(f"taskset -pc 1 {pid}; chrt -f -p 5 {pid}")
        yield testbed


def facts(hypervisor: Hypervisor) -> dict[str, object]:
    """By key: the value, of an unknown one its reason. Each says where it is from."""
    read = json.loads(hypervisor.python("-c", FACTS))
    assert all(fact["source"] for fact in read.values())
    return {name: fact["value"] if fact["value"] is not None else fact["why"] for name, fact in read.items()}


def parameter(hypervisor: Hypervisor, path: str) -> str:
    return hypervisor.read_file(f"/sys/module/{path}").decode().strip()


def test_what_was_configured_is_what_they_say(configured: Testbed) -> None:
    host, guest = configured.hypervisor, configured.guests[0]
    known = facts(host)
    vm = f"vm/{guest.name}"
    expected = {
        "nic/bond9/bond/mode": "802.3ad 4",
        "nic/bond9/bond/xmit_hash_policy": "layer3+4 1",
        "nic/bond9/bond/lacp_rate": "fast 1",
        "nic/bond9/bond/slaves": "facts1",
        "nic/facts1/master": "bond9",
        f"tc/{DEVICE}/class/1:7": "htb rate=1250000 ceil=1250000",
        f"tc/{DEVICE}/filter/1:0/3/80000800": "u32 protocol=ip classid=1:7",
        f"tc/{DEVICE}/filter/ingress/5/1": "matchall protocol=all actions=police rate=625000",
        f"{vm}/vhost/0/cpus": "1",
        f"{vm}/vhost/0/scheduling": "fifo priority 5",
        f"{vm}/net/0/tap": guest.card.tap,
        f"{vm}/net/0/vhost": "on",
        f"{vm}/net/0/queues": 1,
        "module/vhost_net/loaded": True,
        "module/kvm/loaded": True,
        "module/vhost_net/experimental_zcopytx": parameter(host, "vhost_net/parameters/experimental_zcopytx"),
        "module/kvm/halt_poll_ns": parameter(host, "kvm/parameters/halt_poll_ns"),
        "ovs/other_config/max-idle": "20000",
        f"ovs/port/{guest.card.tap}/bridge": BRIDGE,
    }
    wrong = {
        name: (value, known.get(name, [one for one in known if one.startswith(name.rpartition("/")[0])]))
        for name, value in expected.items()
        if not str(known.get(name)).startswith(str(value))
    }
    assert not wrong


def test_reading_them_twice_gives_the_same(configured: Testbed) -> None:
    """What moves by itself is volatile, or every comparison would name it."""
    read = [json.loads(configured.hypervisor.python("-c", FACTS)) for _ in range(2)]
    settings = [{name: fact["value"] for name, fact in one.items() if not fact.get("volatile")} for one in read]
    assert settings[0] == settings[1]
