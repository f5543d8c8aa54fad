"""Two hosts in one hypervisor: a bridge each, with a guest that has Python, and between the bridges a wire.

    vm0 ── vnet0 ── bra ── wa ═══ (namespace wire) ═══ wb ── brb ── vnet1 ── vm1

The wire's namespace is what lies between the hosts, as a switch does: what it delays, neither host sees.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.lab.kernels.fetch import Kernel, fetch
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Card, Guest, prepare_python
from tests.lab.network.testbed import CLOCK_OF_REAL_MACHINES

CARDS = (
    Card("vnet0", "52:54:00:00:00:10", "10.77.0.10/24", door="10.78.0.2/30"),
    Card("vnet1", "52:54:00:00:00:11", "10.77.0.11/24", door="10.78.1.2/30"),
)
WIRES = ("wa", "wb")
IN_THE_WIRE = ("ip", "netns", "exec", "wire")
# Nothing speaks by itself: no IPv6, no groups, fixed neighbours.
WIRE = """
ip netns add wire
ip netns exec wire sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
ip netns exec wire sh -c 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6'
ip -n wire link add middle type bridge mcast_snooping 0
ip -n wire link set middle up
for side in a b; do
    ip link add w$side type veth peer name to$side netns wire
    ip link add br$side type bridge mcast_snooping 0
    echo 1 >/proc/sys/net/ipv6/conf/w$side/disable_ipv6
    echo 1 >/proc/sys/net/ipv6/conf/br$side/disable_ipv6
    ip link set w$side master br$side up
    ip link set br$side up
    ip -n wire link set to$side master middle up
done
"""


class TwoHosts:
    """`guests` are the VM that pings and the one that is pinged."""

    def __init__(self, kernel: Kernel) -> None:
        prepare_python(fetch(kernel))
        # Else a watchdog may take the clock from the TSC amid a ping: with 6.12 it went wrong by 15 ms.
        self.hypervisor = Hypervisor(kernel, arguments=CLOCK_OF_REAL_MACHINES)
        try:
            self.hypervisor.run("modprobe", "-a", "bridge", "sch_tbf")
            self.guests = [Guest(self.hypervisor, f"vm{number}", card) for number, card in enumerate(CARDS)]
            with ThreadPoolExecutor() as pool:
                booting = [pool.submit(guest.start) for guest in self.guests]
                self.hypervisor.shell(WIRE)
                for boot in booting:
                    boot.result()
            for number, card in enumerate(CARDS):
                self.hypervisor.shell(f"""
                    ip link set {card.tap} master br{"ab"[number]}
                    ip address add 10.78.{number}.1/30 dev {card.door_tap}
                """)
                self.guests[number].know([CARDS[1 - number].at])
        except BaseException:
            self.hypervisor.close()
            raise

    def close(self) -> None:
        self.hypervisor.close()
