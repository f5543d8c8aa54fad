"""The model of a ping's way as data: its segments in order, and what they add up to (docs/subjects/ping.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.ping.capture import Role

PingSide: TypeAlias = Literal["sender", "receiver"]
Layer: TypeAlias = Literal["vm_internal_us", "host_internal_us", "virtualization_measured_us", "virtualization_kick_us"]
WIRE = "C+J"
REMAINDERS: dict[PingSide, str] = {"sender": "U_sender", "receiver": "U_receiver"}


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """A segment that a capture measures: of which role, in which part of the capture, and in which field of it."""

    name: str
    role: Role
    part: Literal["echo", "vhost_irq", "vhost_kick"]
    field: str
    what: str
    layer: Layer

    @property
    def side(self) -> PingSide:
        """The side whose remainder contains it when nobody measured it."""
        return "sender" if self.role in ("sender-vm", "sender-host", "host") else "receiver"

    @property
    def formula(self) -> str:
        """Where its time comes from."""
        return f"{self.role}: {'' if self.part == 'echo' else self.part + '.'}{self.field}"


_VM: Layer = "vm_internal_us"
_HOST: Layer = "host_internal_us"
_IRQ: Layer = "virtualization_measured_us"
_KICK: Layer = "virtualization_kick_us"
SEGMENTS = (
    SegmentSpec("A", "sender-vm", "echo", "request_us", "request: from the socket to the driver", _VM),
    SegmentSpec("I1", "sender-host", "vhost_kick", "total", "request: from the guest's kick to the tap", _KICK),
    SegmentSpec("B", "sender-host", "echo", "request_us", "request: from the tap to the wire", _HOST),
    SegmentSpec("D", "receiver-host", "echo", "request_us", "request: from the wire to the tap", _HOST),
    SegmentSpec("E", "receiver-host", "vhost_irq", "total", "request: from the tap to the guest's interrupt", _IRQ),
    SegmentSpec("F", "receiver-vm", "echo", "request_us", "request: from the driver to ICMP", _VM),
    SegmentSpec("G", "receiver-vm", "echo", "between_us", "the guest makes its reply", _VM),
    SegmentSpec("H", "receiver-vm", "echo", "reply_us", "reply: from ICMP to the driver", _VM),
    SegmentSpec("B1", "receiver-host", "vhost_kick", "total", "reply: from the guest's kick to the tap", _KICK),
    SegmentSpec("I", "receiver-host", "echo", "reply_us", "reply: from the tap to the wire", _HOST),
    SegmentSpec("K", "sender-host", "echo", "reply_us", "reply: from the wire to the tap", _HOST),
    SegmentSpec("L", "sender-host", "vhost_irq", "total", "reply: from the tap to the guest's interrupt", _IRQ),
    SegmentSpec("M", "sender-vm", "echo", "reply_us", "reply: from the driver to the socket", _VM),
)
"""In the order of the way, without the wire (C and J). I1 is the kick of the request, and B1 that of the reply."""
KICKS = ("B1", "I1")
"""Segments that a breakdown has only if a capture has them: old measurements keep their keys and sums."""

PATH = ("A", "U_sender", "I1", "B", WIRE, "D", "E", "U_receiver", "F", "G", "H", "B1", "I", "K", "L", "M")
"""The order in which a breakdown is drawn. A remainder lies on the request's way and on the reply's."""

LAYERS = (
    "vm_internal_us",
    "host_internal_us",
    "physical_network_us",
    "virtualization_measured_us",
    "virtualization_kick_us",
    "virtualization_unmeasured_us",
)
LAYER_WORDS = {
    "vm_internal_us": "inside the VMs",
    "host_internal_us": "inside the hosts",
    "physical_network_us": "the network between the hosts",
    "virtualization_measured_us": "from taps to guests' interrupts",
    "virtualization_kick_us": "from guests' kicks to taps",
    "virtualization_unmeasured_us": "virtualization that no probe saw",
}
PART_WORDS = {
    "sender_host_us": "sender's host, with its VM",
    "physical_network_us": "the network between the hosts",
    "receiver_host_us": "receiver's host, with its VM",
}
UNSEEN: dict[PingSide, str] = {
    "sender": "the sender's driver and kick on the way out; from the interrupt to netif_receive_skb on the way back",
    "receiver": "from the interrupt to netif_receive_skb on the way in; the receiver's driver and kick on the way back",
}
"""What a remainder consists of when all that can be measured was measured."""

STAGES = {
    "E": ("s1_s2", "s2_s3", "s3_s4", "s4_s5"),
    "L": ("s1_s2", "s2_s3", "s3_s4", "s4_s5"),
    "B1": ("k1_k2", "k2_k3", "k3_k4"),
    "I1": ("k1_k2", "k2_k3", "k3_k4"),
}
STAGE_WORDS = {
    "s1_s2": "S1→S2: vhost's worker wakes up and copies the packet to the guest",
    "s2_s3": "S2→S3: from vhost's signal to the eventfd",
    "s3_s4": "S3→S4: from the eventfd to KVM's irqfd",
    "s4_s5": "S4→S5: from irqfd to the vCPU",
    "k1_k2": "K1→K2: from the kick to vhost's worker",
    "k2_k3": "K2→K3: vhost's worker gives the packet to the tap",
    "k3_k4": "K3→K4: from the tap to the network stack",
    "rest": "not in any stage",
}


@dataclass(frozen=True, slots=True)
class CompositeSpec:
    """Several segments together, as one capture measures them and tickets quote them."""

    role: Role
    field: str
    what: str


COMPOSITES = {
    "external_sender_host_us": CompositeSpec("sender-host", "between_us", "beyond the sender's host (C to J)"),
    "receiver_total_us": CompositeSpec("receiver-host", "total_us", "the receiver's host with its VM (D to I)"),
    "external_receiver_host_us": CompositeSpec(
        "receiver-host", "between_us", "the receiver's VM and the virtualization around it (E to B1)"
    ),
    "receiver_vm_us": CompositeSpec("receiver-vm", "total_us", "inside the receiver's VM (F+G+H)"),
    "beyond_sender_vm_us": CompositeSpec("sender-vm", "between_us", "beyond the sender's VM"),
}
