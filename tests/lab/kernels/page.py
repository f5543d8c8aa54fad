"""Writes docs/reference/kernels.md from the references of the lab's kernels: what doctor said on each, running."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from netconsole.run.doctor import RUNNING
from netconsole_collector.doctor import WITHOUT_BPF
from tests.lab.machine.hypervisor import CHECKOUT

PAGE = CHECKOUT / "docs" / "reference" / "kernels.md"
REFERENCES = CHECKOUT / "tests" / "lab" / "console" / "references"
NO, NOT_TRIED = "no", "not tried"
_HEAD = """# What each probe can do on each kernel

A test wrote this page from what `netconsole doctor` said on each kernel of [the lab](../design/lab.md).
Do not edit it. A kernel has its name of `tests/lab/kernels/kernels.toml`.

| word | means |
|---|---|
| full | every program of the probe is attached, and nothing is known that this kernel hides from it |
| part | a program is missing or costs more, or this kernel hides something from it; the list below says why |
| no | the probe cannot run; the list says why |
| not tried | what it watches is not loaded in the lab's hypervisor |
| with types | the kernel's modules have no types (before 5.11); those that \
[`netconsole types make`](../design/kernel-types.md) makes were there, and the probe needs them |
| by types: … | `doctor` was not run there: the kernel's types (BTF) say what would be attached |

A probe that is read without BPF works on each kernel that was run, and is left out. Only Debian's builds were
tried. Other builds of these releases, and other releases (4.18, 5.14, 6.6), were not: `netconsole doctor` tells.

"""
_HOOKS = """
## How each program is attached

Programs on functions are attached by fentry or fexit where the kernel lets them be, and by kprobes elsewhere
([why, and what that saves](probes.md#functions-of-the-kernel)). A kernel that refuses fentry has `kprobe:F` where this
table has `fentry:F`, and `kretprobe:F` where it has `fexit:F`. `netconsole doctor --verbose` says what yours takes.
Where kernels differ, those are named. A program that none of these kernels attached is left out, and so is a kernel on
which none was.

"""
_ABSENT = "is not loaded"
WITH_TYPES = "with types"
_NO_TYPES = "this kernel has no types (BTF) of"


def references() -> dict[str, Any]:
    """By kernel, in the order of their releases."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in REFERENCES.glob("*.json")}
    return dict(sorted(found.items(), key=lambda one: ([int(n) for n in one[0].split("-")[1].split(".")], one[0])))


def page(kernels: Mapping[str, Any]) -> str:
    """The whole page."""
    found = [item for one in kernels.values() for item in one["probes"].items()]
    of_sources = {name for name, probe in found if probe["why"] == WITHOUT_BPF}
    probes = sorted({name for name, _ in found} - of_sources)
    lines = [f"| probe | {' | '.join(kernels)} |", "|---" * (len(kernels) + 1) + "|"]
    notes = []
    for name in probes:
        cells = []
        for kernel, one in kernels.items():
            probe = one["probes"][name]
            word = cell(probe)
            cells.append(f"by types: {word}" if one.get("by_types") else word)
            if word == NO or word.startswith("part"):
                notes.append(f"- `{name}` on {kernel}: {_why(probe)}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    text = _HEAD + "\n".join(lines) + "\n"
    return text + ("\n" + "\n".join(notes) + "\n" if notes else "") + _HOOKS + _hooks(kernels, probes)


def _hooks(kernels: Mapping[str, Any], probes: Sequence[str]) -> str:
    """A row for each program: its attach point, or its points and the kernels of each."""
    lines = ["| probe | program | attach point |", "|---|---|---|"]
    for name in probes:
        attached = {k: one["probes"][name]["attach"] for k, one in kernels.items() if not one.get("by_types")}
        for program in dict.fromkeys(program for points in attached.values() for program in points):
            at: dict[str, list[str]] = {}
            for kernel, points in attached.items():
                if points:  # a kernel on which the probe was not tried says nothing
                    at.setdefault(points.get(program) or "", []).append(kernel)
            lines.append(f"| `{name}` | `{program}` | {_points(at)} |")
    return "\n".join(lines) + "\n"


def _points(at: Mapping[str, Sequence[str]]) -> str:
    if len(at) == 1:
        return f"`{next(iter(at))}`"
    return ", ".join(f"{f'`{point}`' if point else 'none'} ({', '.join(on)})" for point, on in at.items())


def cell(probe: Mapping[str, Any]) -> str:
    """How much of a probe a kernel can have, in a word of the page."""
    if probe["state"] not in RUNNING:
        return NOT_TRIED if _ABSENT in (probe["why"] or "") else NO
    word = "part" if probe["why"] else "full"
    return f"{word}, {WITH_TYPES}" if any(_NO_TYPES in one["why"] for one in probe["tried"]) else word


def _why(probe: Mapping[str, Any]) -> str:
    """And what would help. That a module has no types is said by a word of the table."""
    attached = {point.partition(":")[2] for point in probe["attach"].values() if point}
    refused = [one for one in probe["tried"] if one["point"].partition(":")[2] not in attached]
    tried = "; ".join(sorted({f"{one['point']}: {one['why']}" for one in refused if _NO_TYPES not in one["why"]}))
    helps = f" What would help: {probe['help']}." if probe.get("help") else ""
    return f"{probe['why']}{f' ({tried})' if tried else ''}.{helps}"
