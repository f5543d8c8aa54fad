"""What is said where a probe shows nothing: what it does or why it cannot run, and what would help."""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.base import figure
from netconsole.base.errors import BadInput
from netconsole.probes.manifest import Manifest
from netconsole.profile import loader
from netconsole.tui.scene.scene import Scene, reason

_USUAL = "summary"
"""The profile that everybody starts with."""
_SHOWING = ("summary", "details")
"""Modes in which a probe fills its tables."""
OF_EVERY_PROGRAM = ("privileges", "bcc")
"""What the host must be able to do for any BPF probe."""
_known: dict[tuple[str, ...], dict[str, str]] = {}
"""A profile by the probe that it has, by all probes that there are. Read once: screens are drawn every second."""

STANDS_STILL = "counters alone: rows do not change"
"""Shown for the tables of a probe in mode counters."""


def why_silent(scene: Scene, probe: str, way_out: str = "; e starts it") -> str:
    """One sentence for a table without rows: what its probe does, or why it cannot run and what would help.

    ``way_out``: what starts it in a live session. In its own table the key e does.
    """
    state = scene.state.probes.get(probe)
    if state is None or state.status == "off":
        if why := why_no_program(scene, probe):
            return f"{probe}: {why}"
        why = why_absent(scene, probe) if state is None else reason(state) or "switched off"
        return f"{probe}: {why}{way_out if scene.replay is None else ''}"
    if state.measuring and state.mode == "counters":
        return STANDS_STILL
    if state.measuring:
        return "nothing seen yet" if not state.counters and not state.tables else "nothing so far"
    if not state.settled:
        return f"{probe}: {state.status}; first figures 1 s after it is attached"
    return f"{probe} {state.status}: {reason(state)}"


def why_no_program(scene: Scene, probe: str) -> str:
    """Why this host runs no BPF program for us, if the probe has any: no key starts it then."""
    manifest = scene.manifests.get(probe)
    if scene.replay is not None or manifest is None or manifest.source != "bpf":
        return ""
    found = (scene.state.capabilities.get(name) for name in OF_EVERY_PROGRAM)
    return next((figure.safe(one.why or "cannot run here") for one in found if one is not None and not one.ok), "")


def why_absent(scene: Scene, probe: str, profile: str = "") -> str:
    """Half a sentence. ``profile`` is one that has it; else we look for one."""
    if scene.replay is not None:
        return "not in this recording"
    choice = scene.profile.probes.get(probe)
    if choice is not None and choice.mode != "off":
        return "left out at the start"  # with --probe, or because it costs too much here
    has_it = profile or profile_with(probe, scene.manifests)
    found = f"; profile {has_it} has it" if has_it else ""
    return f"not in profile {figure.safe(scene.profile.name, 24)}{found}"


def profile_with(probe: str, manifests: Mapping[str, Manifest]) -> str:
    """A profile that runs this probe: the usual one, else that with the fewest others. Empty where none does."""
    names = tuple(sorted(manifests))
    if names not in _known:
        _known[names] = _profiles(manifests)
    return _known[names].get(probe, "")


def _profiles(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    found: list[tuple[str, list[str]]] = []
    for name in loader.available():
        try:
            profile = loader.load(name, manifests)
        except BadInput:
            continue  # netconsole profiles says what is wrong with it
        found.append((name, [probe for probe, choice in profile.probes.items() if choice.mode in _SHOWING]))
    best_last = sorted(found, key=lambda one: (one[0] == _USUAL, -len(one[1])))
    return {probe: name for name, probes in best_last for probe in probes}
