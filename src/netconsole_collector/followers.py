"""Runs a program behind another probe's on the same hook, by a tail call: a second attachment costs ten times that.

A program that leads ends with ``nc_followers.call(ctx, 0)``; one that follows must not mind to run twice for one event,
which happens in the moment when it moves (docs/probes.md).
"""

import os
import struct
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from netconsole_collector import attach, bpf, programs

if TYPE_CHECKING:
    from netconsole_collector.running_probe import RunningProbe

MAP = "nc_followers"
"""A BPF_PROG_ARRAY with one place."""
_KEY = bytes(4)

Json = Dict[str, Any]


def settle(probes: "List[RunningProbe]") -> None:
    """Puts programs that follow behind one that leads; one whose leader is not among ``probes`` is attached by itself.

    To be called when a probe has come, and before one goes: there is no moment in which an event is missed.
    """
    leaders: Dict[str, bpf.Map] = {}
    for probe in probes:
        for program in _marked(probe, "leads"):
            if program["link"] >= 0:
                leaders.setdefault(program["attach"], probe.map(MAP))
    followers = [program for probe in probes for program in _marked(probe, "follows")]
    for program in followers:
        leader = leaders.get(program["attach"])
        if program.get("leader") is not leader:
            _stand_alone(program)
        is_free = not any(other.get("leader") is leader for other in followers)
        if leader is not None and is_free and program["link"] >= 0:
            _follow(program, leader)


def place(program: Json) -> str:
    """Where a program runs, for people: the kernel counts the runs and the time of one that follows as the leader's."""
    return "{}{}".format(program["attach"], " (behind another probe's)" if program.get("leader") is not None else "")


def attach_alone(program: Json) -> None:
    """Attaches a loaded program to its own point, once more. Raises attach.NotHere."""
    is_typed = bpf.program_info(program["program"]).type == programs.TRACING
    program["link"] = attach.attach(attach.parse(program["attach"]), program["program"], is_typed)


def leave(program: Json) -> None:
    """Ends a program that runs behind another."""
    leader: Optional[bpf.Map] = program.pop("leader", None)
    if leader is not None:
        leader.delete(_KEY)


def _marked(probe: "RunningProbe", mark: str) -> List[Json]:
    names = {entry["name"] for entry in probe.spec["programs"] if entry.get(mark)}
    return [program for program in probe.programs if program["name"] in names]


def _follow(program: Json, leader: bpf.Map) -> None:
    try:
        leader.set(_KEY, struct.pack("=I", program["program"]))
    except OSError:
        return  # one of the two is BTF-typed and the other is not: both stay attached
    program["leader"] = leader
    os.close(program["link"])
    program["link"] = -1


def _stand_alone(program: Json) -> None:
    if program.get("leader") is not None:
        attach_alone(program)
        leave(program)
