"""Bodies of `status` frames: the state of a probe, and why."""

from typing import Any, Dict, List, Optional, Sequence

from netconsole_collector.probe.running import RunningProbe

Json = Dict[str, Any]


def status(
    name: str,
    state: str,
    mode: str,
    knobs: Json,
    why: Optional[str] = None,
    help: Optional[str] = None,
    attached: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Json:
    """``attached``, ``missing``: attach points."""
    body: Json = {"kind": "status", "probe": name, "state": state, "mode": mode, "why": why, "help": help}
    body.update(attach=list(attached), missing=list(missing), knobs=knobs)
    return body


def of_running(probe: RunningProbe) -> Json:
    """A probe that is attached, and what of it is not."""
    missing = probe.missing
    why = "; ".join(_reasons(missing) + ([probe.note] if probe.note else []))
    points = [tried["point"] for one in missing for tried in one["tried"]]
    state = "degraded" if missing else "attached"
    return status(probe.name, state, probe.mode, probe.knobs, why or None, None, probe.attached, points)


def _reasons(missing: List[Json]) -> List[str]:
    """What is not measured, and why. Programs with the same reason are in one sentence."""
    measured: Dict[str, List[str]] = {}
    for one in missing:
        what = measured.setdefault("; ".join(tried["why"] for tried in one["tried"]), [])
        if one["measures"] not in what:
            what.append(one["measures"])
    verb = {True: "is", False: "are"}
    return ["{} {} not measured: {}".format(", ".join(w), verb[len(w) == 1], why) for why, w in measured.items()]
