"""The latest packet of a row: what is known of it, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.base import figure
from netconsole.telemetry.frames import Int, Labels
from netconsole.telemetry.saved import SavedValues

TIME = "mono_ns"
"""The field of a frame's example that says when the packet came."""
_PART = 64


class Example(SavedValues):
    """When the packet came (wall clock), and what is known of it, by the names of the probe's manifest.

    The usual names: source, target, source_port, target_port, protocol, ethertype, vlan, source_mac, target_mac,
    came_in_by, length_bytes, syn (of TCP: 1: it opens a connection; 2: it goes on with one; 3: it resets one).
    """

    wall_ns: Int
    fields: Labels

    def text(self, name: str) -> str:
        """A field as text; empty where it is not known."""
        value = self.fields.get(name)
        return "" if value is None else str(value)


def received(fields: Labels, mono_ns: int, wall_ns: int) -> Example:
    """The example of a row whose frame was read at that moment of both clocks."""
    came_ns = fields.get(TIME)
    age_ns = mono_ns - came_ns if isinstance(came_ns, int) and 0 <= came_ns <= mono_ns else 0
    return Example(max(0, wall_ns - age_ns), {name: value for name, value in fields.items() if name != TIME})


def example_text(fields: Mapping[str, object], when: str) -> str:
    """``UDP 192.0.2.1:40000 → 192.0.2.2:9, from 02:…:01 to 02:…:02, came in by vethB, 98 bytes, 3 s ago``.

    Unknown parts are left out; ``when`` is the last one. Safe to show.
    """
    flow = flow_text(fields)
    macs = " ".join(f"{word} {_safe(fields[name])}" for word, name in _MACS if fields.get(name))
    device = f"came in by {_safe(fields['came_in_by'])}" if fields.get("came_in_by") else ""
    length = fields.get("length_bytes")
    size = figure.things(length, "bytes") if isinstance(length, int) else ""
    known = [part for part in (flow if flow != figure.UNKNOWN else "", macs, device, size) if part]
    return ", ".join([*known, when] if known else [])


_MACS = (("from", "source_mac"), ("to", "target_mac"))


def _safe(value: object) -> str:
    return figure.safe(value, _PART)


def ago(wall_ns: int, now_ns: int) -> str:
    """How long before a moment a packet came: ``3 s ago``."""
    return f"{figure.lasted(max(0, now_ns - wall_ns) / 1e9)} ago"


MAX_PART = 64
NOT_IP = "not IP"
"""What the collector says for the protocol of what has none (netconsole_collector/names/labels.py)."""


def flow_text(labels: Mapping[str, object]) -> str:
    """Protocol, ends and tag, as far as they are known; safe to show. A flow without addresses is its ethertype."""
    protocol = labels.get("protocol")
    ends = [_end(labels, "source"), _end(labels, "target")]
    known = [end for end in ends if end]
    what = protocol if protocol not in (None, "", "none") else labels.get("ethertype")
    if what == NOT_IP and labels.get("ethertype") not in (None, "", "none"):
        what = labels["ethertype"]
    parts = [figure.safe(what, MAX_PART) if what not in (None, "") else "", " → ".join(known)]
    if labels.get("vlan"):
        parts.append(f"vlan {figure.safe(labels['vlan'], 12)}")
    return " ".join(part for part in parts if part) or figure.UNKNOWN


def _end(labels: Mapping[str, object], name: str) -> str:
    address, port = labels.get(name), labels.get(f"{name}_port")
    if address in (None, "", "::"):
        return ""
    written = figure.safe(address, MAX_PART)
    if not port:
        return written
    return f"[{written}]:{figure.safe(port, 12)}" if ":" in written else f"{written}:{figure.safe(port, 12)}"
