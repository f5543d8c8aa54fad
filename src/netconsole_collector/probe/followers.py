"""Runs a program behind another probe's program on the same hook, by a tail call.

A second attachment to one hook costs ten times as much as a tail call. A program that leads ends with
``nc_followers.call(ctx, 0)``. A program that follows may run twice for one event in the moment when it moves, and must
allow for that (docs/reference/probes.md).
"""

from typing import Dict, List, Sequence

from netconsole_collector.kernel import attach
from netconsole_collector.probe.attached_program import AttachedProgram

MAP = "nc_followers"
"""A BPF_PROG_ARRAY with room for one program."""


def settle(programs: Sequence[AttachedProgram]) -> List[AttachedProgram]:
    """Puts programs that follow behind programs that lead. A program without a leader is attached to its own point.

    ``programs`` are those of all probes. Call this when a probe has been loaded, and before one goes: then no event is
    missed in between. Returns programs that could not be attached again, and do not run any more.
    """
    leaders: Dict[str, AttachedProgram] = {}
    for program in programs:
        if program.leads and program.is_attached:
            leaders.setdefault(program.point, program)
    followers = [program for program in programs if program.follows]
    stopped = []
    for program in followers:
        leader = leaders.get(program.point)
        if program.leader is not None and program.leader is not leader and not _attach_by_itself(program):
            stopped.append(program)
        is_free = not any(other.leader is leader for other in followers)
        if leader is not None and is_free and program.is_attached:
            program.follow(leader)
    return stopped


def _attach_by_itself(program: AttachedProgram) -> bool:
    """Before it leaves its leader, so that no event is missed. False when it cannot be attached."""
    try:
        program.attach()
    except attach.CannotAttach as error:
        program.why_not = str(error)
    program.leave_leader()
    return program.is_attached
