"""Controls vhost_peer.py, which runs on the hypervisor and plays the guest's side of vhost-net exactly as told."""

from __future__ import annotations

from pathlib import Path

from tests.lab.machine.hypervisor import CHECKOUT, Hypervisor

PROGRAM = Path(__file__).with_name("vhost_peer.py")
DEVICE = "peer0"
MAC = "02:52:54:00:00:01"
NEAR, FAR = "10.79.0.1", "10.79.0.2"
RING_BUFFERS = 1024
ANSWER_LIMIT_S = 60.0


class Peer:
    """A tap with vhost and nobody behind it. Context manager; the device goes with it.

    `options`: "event-index", "legacy-lines" (vhost_peer.py says what they mean).
    """

    def __init__(self, hypervisor: Hypervisor, *options: str) -> None:
        program = PROGRAM.relative_to(CHECKOUT)
        self._process = hypervisor.start("/usr/bin/python3", program, DEVICE, *options, cwd=CHECKOUT)
        self._process.wait_for(b"ready\n", ANSWER_LIMIT_S)
        hypervisor.shell(f"""
            echo 1 >/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6
            ip address add {NEAR}/24 dev {DEVICE}; ip link set {DEVICE} up
            ip neighbour replace {FAR} lladdr {MAC} dev {DEVICE} nud permanent
        """)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def offer(self, buffers: int) -> None:
        """Gives vhost so many more buffers for what it receives, at most a ring full."""
        self._ask("offer", buffers)

    def refill(self, wanted: bool) -> None:
        """Keeps all its buffers offered from now on, or no more."""
        self._ask("refill", int(wanted))

    def used(self) -> int:
        """Buffers that vhost has given back."""
        return self._ask("used")

    def send(self, packets: int) -> int:
        """Sends as fast as vhost takes them; returns the time that it took in ns."""
        return self._ask("send", packets)

    def want_interrupts(self, wanted: bool) -> None:
        """As the flag in both rings says."""
        self._ask("interrupts", int(wanted))

    def want_event(self, buffers: int) -> None:
        """Wants an interrupt when so many more buffers of what it receives are used; option "event-index"."""
        self._ask("event", buffers)

    def take_segments(self, taken: bool) -> None:
        """Takes TCP packets of many segments whole, or has the host's stack cut them."""
        self._ask("segment", int(taken))

    def attach(self, attached: bool) -> None:
        """Gives the tap to vhost or takes it away, as QEMU does when a machine goes on or stops."""
        self._ask("attach", int(attached))

    def _ask(self, command: str, argument: int = 0) -> int:
        self._process.write(f"{command} {argument}\n".encode())
        answer = self._process.wait_for(b"\n", ANSWER_LIMIT_S).strip()
        return int(answer) if answer.isdigit() else 0
