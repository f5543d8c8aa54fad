"""The capture document of a ping (`netconsole.ping-capture/1`): what one vantage point saw of each echo.

Four vantage points see a ping between two VMs: both VMs and both hosts. Each has a capture of its own, with its own
clock; only differences of times within one capture are used. docs/subjects/ping.md has the model.

Unknown keys are ignored, so that a later version can add some. All keys of version 1 stay.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from netconsole.base.documents import DocumentKind
from netconsole.base.fact_keys import FactData

SCHEMA = "netconsole.ping-capture/1"
MAX_BYTES = 128 * 1024 * 1024
"""A capture has about 150 bytes for each echo, and MAX_ECHOES of them at most."""
MAX_ECHOES = 500_000

Role: TypeAlias = Literal["sender-vm", "sender-host", "receiver-host", "receiver-vm", "host"]
"""The vantage point. ``host`` is the own ping of a host, through its bridge."""
ROLES: tuple[Role, ...] = get_args(Role)

Boundary: TypeAlias = Literal["before_driver", "after_driver"]
"""Where the way of a packet through a machine ends: before its device's driver gets it, or when the driver returns.

An end after the driver contains what follows: on a tap the wake-up of vhost, in a guest the kick.
"""

EchoOutcome: TypeAlias = Literal[
    "answered", "late", "request_lost_inside", "lost_outside", "reply_lost_inside", "timeout", "unfinished"
]
"""What became of an echo, as this vantage point saw it.

``late``: answered, but after the time limit. ``request_lost_inside``: the request came in and did not go out.
``lost_outside``: the request went out and no reply came. ``reply_lost_inside``: the reply came in and did not go out.
``timeout``: no answer within the limit, and nobody knows where it was lost. ``unfinished``: the capture ended first.
"""
LOST: tuple[EchoOutcome, ...] = ("request_lost_inside", "lost_outside", "reply_lost_inside", "timeout")

_COUNT_MOST = 2**63 - 1
EchoCount: TypeAlias = Annotated[int, Meta(ge=0, le=_COUNT_MOST)]
Us: TypeAlias = Annotated[float, Meta(ge=-1e12, le=1e12)]
"""Microseconds. They may be below zero: a clock that was set back is reported, not hidden."""
EchoId: TypeAlias = Annotated[int, Meta(ge=0, le=0xFFFF)]
ClockNs: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class TimeSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of several echoes, in microseconds. An old measurement may know their mean alone."""

    mean: Us
    n: EchoCount | None = None
    min: Us | None = None
    p50: Us | None = None
    p90: Us | None = None
    p99: Us | None = None
    max: Us | None = None
    stdev: Annotated[float, Meta(ge=0, le=1e12)] | None = None


class EchoTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """One echo: its request on the way in, what lies between, its reply on the way back, all in microseconds.

    ``id`` and ``seq`` are those of ICMP, in host order. ``at_ns`` is when the request was first seen, on the clock of
    this capture. ``duplicates`` counts further replies to the same request.
    """

    seq: EchoCount
    id: EchoId | None = None
    request_us: Us | None = None
    between_us: Us | None = None
    reply_us: Us | None = None
    total_us: Us | None = None
    outcome: EchoOutcome = "answered"
    duplicates: EchoCount = 0
    at_ns: ClockNs | None = None


class EchoSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The same times of all echoes together."""

    request_us: TimeSummary | None = None
    between_us: TimeSummary | None = None
    reply_us: TimeSummary | None = None
    total_us: TimeSummary | None = None


class IrqTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """From the tap to the guest's interrupt, for one echo, in microseconds. ``at_ns`` is the time of s1.

    s1: the tap takes the packet. s2: vhost signals the guest. s3: the eventfd is signalled. s4: KVM's irqfd wakes up.
    s5: the interrupt is given to the vCPU.
    """

    seq: EchoCount
    id: EchoId | None = None
    s1_s2: Us | None = None
    s2_s3: Us | None = None
    s3_s4: Us | None = None
    s4_s5: Us | None = None
    total: Us | None = None
    at_ns: ClockNs | None = None


class IrqSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stages of :class:`IrqTimes` of all echoes together."""

    s1_s2: TimeSummary | None = None
    s2_s3: TimeSummary | None = None
    s3_s4: TimeSummary | None = None
    s4_s5: TimeSummary | None = None
    total: TimeSummary | None = None


class VhostIrq(msgspec.Struct, frozen=True, omit_defaults=True):
    """From the tap to the guest's interrupt: on the receiver's host the request (E), on the sender's the reply (L)."""

    packets: Annotated[list[IrqTimes], Meta(max_length=MAX_ECHOES)] = []
    summary: IrqSummary | None = None


class KickTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """From the guest's kick to the tap, for one echo, in microseconds. ``at_ns`` is the time of k1.

    k1: KVM's ioeventfd takes the kick. k2: vhost's worker begins to work on it. k3: vhost gives the packet to the tap.
    k4: the host's network stack receives it.
    """

    seq: EchoCount
    id: EchoId | None = None
    k1_k2: Us | None = None
    k2_k3: Us | None = None
    k3_k4: Us | None = None
    total: Us | None = None
    at_ns: ClockNs | None = None


class KickSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stages of :class:`KickTimes` of all echoes together."""

    k1_k2: TimeSummary | None = None
    k2_k3: TimeSummary | None = None
    k3_k4: TimeSummary | None = None
    total: TimeSummary | None = None


class VhostKick(msgspec.Struct, frozen=True, omit_defaults=True):
    """From the guest's kick to the tap: on the sender's host the request (I1), on the receiver's the reply (B1)."""

    packets: Annotated[list[KickTimes], Meta(max_length=MAX_ECHOES)] = []
    summary: KickSummary | None = None


class TscPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The clock of a capture and the machine's time stamp counter (TSC), read at one moment.

    ``hz``: counts per second. ``accuracy_us``: how far apart the two readings can be.
    """

    ns: ClockNs
    tsc: Annotated[int, Meta(ge=0)]
    hz: Annotated[float, Meta(gt=0, le=1e12)]
    accuracy_us: Annotated[float, Meta(ge=0, le=1e9)]


class WallPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The clock of a capture and the time of day (UTC, since 1970), read one right after the other."""

    ns: ClockNs
    unix_ns: ClockNs


class CaptureClock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The clock of the times ``at_ns``, and how it is related to the TSC. Two points also give the drift.

    Captures with the same ``boot_id`` are of one kernel, and share one clock.
    """

    name: str = "monotonic"
    boot_id: str = ""
    tsc: Annotated[list[TscPoint], Meta(max_length=16)] = []
    wall: Annotated[list[WallPoint], Meta(max_length=16)] = []
    """At the beginning and at the end. A difference between the two is a time of day that was set."""


class GuestTsc(msgspec.Struct, frozen=True, omit_defaults=True):
    """What KVM adds to the host's TSC for a guest: guest = (host * ratio >> fraction_bits) + offset, modulo 2^64.

    Source: /sys/kernel/debug/kvm/PID-FD/vcpu0/tsc-offset, tsc-scaling-ratio, tsc-scaling-ratio-frac-bits.
    ``ratio`` 0 means that nothing is scaled.
    """

    offset: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    ratio: Annotated[int, Meta(ge=0)] = 0
    fraction_bits: Annotated[int, Meta(ge=0, le=64)] = 0
    vm: str = ""


class PingCapture(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one vantage point saw. ``packets`` or ``summary`` may be missing: old measurements know means alone.

    By role, ``request``, ``between`` and ``reply`` are: sender-vm A, everything between, M. sender-host B, External, K.
    receiver-host D, External, I. receiver-vm F, G, H. host: down to the wire, everything between, up from it.
    """

    schema: Annotated[str, Meta(extra_json_schema={"const": SCHEMA})]
    role: Role
    host: str = ""
    packets: Annotated[list[EchoTimes], Meta(max_length=MAX_ECHOES)] = []
    summary: EchoSummary | None = None
    vhost_irq: VhostIrq | None = None
    vhost_kick: VhostKick | None = None
    run: str | None = None
    """The name of the run. Captures of one run have the same."""
    created: str | None = None
    """When it began, in UTC."""
    netconsole: str | None = None
    """The version that made it."""
    source: str | None = None
    """What measured, when it was another tool."""
    kernel: str | None = None
    vm: str | None = None
    """On a host: the VM whose packets these are."""
    addresses: list[str] = []
    """Who pings, and who is pinged."""
    inside: list[str] = []
    """On a host: the devices on the VM's side."""
    outside: list[str] = []
    """The devices on the side of the wire."""
    one_host: bool = False
    """Both ends of the ping are on this host: ``outside`` is the tap of the other VM, and no wire lies between."""
    boundary: Boundary | None = None
    attach: list[str] = []
    error_us: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """How far each time of an echo can be off: the clock's resolution and what the probes cost themselves."""
    clock: CaptureClock | None = None
    guest_tsc: GuestTsc | None = None
    outcomes: dict[EchoOutcome, EchoCount] = {}
    """How many echoes ended how, where ``packets`` does not have all of them."""
    sent: dict[str, EchoCount] = {}
    """What the program that sent the echoes counted itself: ``sent``, ``answered``, ``refused``. Empty: not ours."""
    ledger: dict[str, EchoCount] = {}
    """What was missed, by name: records that had no room, packets that could not be read."""
    notes: list[str] = []
    facts: dict[str, FactData] = {}
    """The configuration of this vantage point (docs/reference/facts.md)."""


KIND = DocumentKind(PingCapture, SCHEMA, "ping capture", MAX_BYTES)
load, parse, encode = KIND.load, KIND.parse, KIND.encode
