"""The lab's standard setup: a hypervisor, Open vSwitch with a bridge, and two guests."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.lab.kernels.fetch import Kernel
from tests.lab.machine.errors import CommandTimeout, MachineDied
from tests.lab.machine.hypervisor import CHECKOUT, LIFETIME_S, Hypervisor
from tests.lab.machine.l2 import Address, Card, Guest
from tests.lab.network.ovs import OpenVSwitch

BRIDGE = "br0"
BRIDGE_IP = "10.77.0.1"
PREFIX_LENGTH = 24
SYSTEM_PYTHON = "/usr/bin/python3"  # runs the collector
# The second one has two queues, so that the multi-queue path is always there.
CARDS = (
    Card("vnet0", "52:54:00:00:00:10", f"10.77.0.10/{PREFIX_LENGTH}"),
    Card("vnet1", "52:54:00:00:00:11", f"10.77.0.11/{PREFIX_LENGTH}", queues=2),
)

BOOT_TRIES = 2
CLOCK_OF_REAL_MACHINES = "tsc=reliable"
"""For `arguments`: reading the clock is an instruction then. A reading of the emulated HPET costs microseconds."""


def boot(kernel: Kernel, **options: Any) -> Testbed:
    """A Testbed (same options), started over once when the machine dies while it is built up.

    Nested KVM without hardware help brings the hypervisor down about once in fifty starts; a warning tells of it.
    """
    for _ in range(BOOT_TRIES - 1):
        try:
            return Testbed(kernel, **options)
        except MachineDied as error:
            warnings.warn(f"the lab is booted again: {error}", stacklevel=2)
    return Testbed(kernel, **options)


class Testbed:
    """`hypervisor` is L1; its `ovs` joins it and the `guests` by the bridge br0."""

    __test__ = False  # not a test class, whatever its name begins with

    def __init__(
        self,
        kernel: Kernel,
        *,
        guests: int = len(CARDS),
        lose_all_upcalls: bool = False,
        lifetime_s: float = LIFETIME_S,
        ports: tuple[str, ...] = (),
        arguments: str = "",
        counts_instructions: bool = False,
    ) -> None:
        """Boots it. `lose_all_upcalls`: see OpenVSwitch; the options after it: see Hypervisor."""
        self.hypervisor = Hypervisor(
            kernel,
            lifetime_s=lifetime_s,
            ports=ports,
            arguments=arguments,
            counts_instructions=counts_instructions,
        )
        try:
            self.guests = [Guest(self.hypervisor, f"vm{number}", card) for number, card in enumerate(CARDS[:guests])]
            with ThreadPoolExecutor() as pool:
                pool.submit(compile_project)
                if lose_all_upcalls:
                    self.ovs = self._switch(lose_all_upcalls=True)
                booting = [pool.submit(guest.start) for guest in self.guests]
                if not lose_all_upcalls:
                    # It has to wait for the machine's age: the guests boot meanwhile.
                    self.ovs = self._switch()
                for boot in booting:
                    boot.result()
            for guest in self.guests:
                self.ovs.add_port(BRIDGE, guest.card.tap)
            self._introduce()
        except BaseException:
            self.hypervisor.close()
            raise

    def _switch(self, *, lose_all_upcalls: bool = False) -> OpenVSwitch:
        ovs = OpenVSwitch(self.hypervisor, lose_all_upcalls=lose_all_upcalls)
        ovs.add_bridge(BRIDGE, f"{BRIDGE_IP}/{PREFIX_LENGTH}")
        return ovs

    @property
    def bridge(self) -> Address:
        """The hypervisor's own address on the bridge, as a target of packets."""
        return self.hypervisor.address_of(BRIDGE, BRIDGE_IP)

    def rest(self) -> None:
        """Stops the guests if a test does not need them (docs/design/lab.md says why). `revive` starts them."""
        for guest in self.guests:
            guest.stop()

    def _introduce(self) -> None:
        """Everybody knows everybody's address: what is counted is what a test sends, without ARP."""
        cards = [guest.card.at for guest in self.guests]
        for card in cards:
            self.hypervisor.shell(f"ip neighbour replace {card.ip} lladdr {card.mac} dev {BRIDGE} nud permanent")
        for guest in self.guests:
            try:
                guest.know([self.bridge, *(card for card in cards if card.mac != guest.card.mac)])
            except CommandTimeout:  # it has lost an interrupt, as when it boots (l2.py)
                guest.restart()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.hypervisor.close()


def compile_project() -> None:
    """Byte code beside the sources: inside, where they are read-only, each process would spend seconds on it."""
    for python in {Path(program).resolve() for program in (sys.executable, SYSTEM_PYTHON)}:
        subprocess.run([python, "-m", "compileall", "-q", CHECKOUT / "src"], stdout=subprocess.DEVNULL, check=False)
