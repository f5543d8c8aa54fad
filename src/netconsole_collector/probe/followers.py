"""Runs a program behind another probe's on the same hook, by a tail call: a second attachment costs ten times that.

A program that leads ends with ``nc_followers.call(ctx, 0)``; one that follows must not mind to run twice for one event,
which happens in the moment when it moves (docs/probes.md).
"""

import os
import struct
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from netconsole_collector.kernel import attach, loading, syscalls

if TYPE_CHECKING:
    from netconsole_collector.probe.running import RunningProbe

MAP = "nc_followers"
"""A BPF_PROG_ARRAY with one place."""
_KEY = bytes(4)

Json = Dict[str, Any]


def settle(probes: "List[RunningProbe]") -> "List[RunningProbe]":
    """Puts programs that follow behind one that leads; one whose leader is not among ``probes`` is attached by itself.

    To be called when a probe has come, and before one goes: there is no moment in which an event is missed. Returns
    probes one of whose programs could not be attached again, and does not run any more.
    """
    leaders: Dict[str, Json] = {}
    for probe in probes:
        for program in _marked(probe, "leads"):
            if program["link"] >= 0:
                program["followers"] = probe.map(MAP)
                leaders.setdefault(program["attach"], program)
    followers = [(probe, program) for probe in probes for program in _marked(probe, "follows")]
    failed = []
    for probe, program in followers:
        leader = leaders.get(program["attach"])
        if program.get("leader") is not leader and not _stand_alone(probe, program):
            failed.append(probe)
        is_free = not any(other.get("leader") is leader for _, other in followers)
        if leader is not None and is_free and program["link"] >= 0:
            _follow(program, leader)
    return failed


def place(program: Json) -> str:
    """Where a program runs, for people: the kernel counts the runs and the time of one that follows as the leader's."""
    return "{}{}".format(program["attach"], " (behind another probe's)" if program.get("leader") is not None else "")


def missed(program: Json) -> Optional[int]:
    """Runs of a program that the kernel skipped in all: its own, and those of its leader while it ran behind that.

    None on kernels that do not tell.
    """
    own = syscalls.program_info(program["program"]).missed
    return None if own is None else own + _missed_behind(program)


def attach_alone(program: Json) -> None:
    """Attaches a loaded program to its own point, once more. Raises attach.NotHere."""
    is_typed = syscalls.program_info(program["program"]).type == loading.TRACING
    program["link"] = attach.attach(attach.parse(program["attach"]), program["program"], is_typed)


def leave(program: Json) -> None:
    """Ends a program that runs behind another."""
    if program.get("leader") is not None:
        program["leader"]["followers"].delete(_KEY)
        program["missed_behind"] = _missed_behind(program)
        del program["leader"]


def _missed_behind(program: Json) -> int:
    before = int(program.get("missed_behind", 0))
    if program.get("leader") is None:
        return before
    return before + _missed_by(program["leader"]) - int(program["missed_since"])


def _missed_by(program: Json) -> int:
    return syscalls.program_info(program["program"]).missed or 0


def _marked(probe: "RunningProbe", mark: str) -> List[Json]:
    names = {entry["name"] for entry in probe.spec["programs"] if entry.get(mark)}
    return [program for program in probe.programs if program["name"] in names]


def _follow(program: Json, leader: Json) -> None:
    try:
        leader["followers"].set(_KEY, struct.pack("=I", program["program"]))
    except OSError:
        return  # one of the two is BTF-typed and the other is not: both stay attached
    program["leader"], program["missed_since"] = leader, _missed_by(leader)
    os.close(program["link"])
    program["link"] = -1


def _stand_alone(probe: "RunningProbe", program: Json) -> bool:
    """False when it ran behind another and could not be attached by itself."""
    if program.get("leader") is None:
        return True
    try:
        attach_alone(program)
    except attach.NotHere as error:
        probe.miss(program, str(error))
    leave(program)
    return bool(program["link"] >= 0)
