"""A flow of a row or a sample in few characters: ``UDP 10.9.0.1 → 10.9.0.2:53 vlan 7``."""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.base import figure

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
