"""Writes docs/reference/kernels.md from the references of the lab's kernels: what doctor said on each, running."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.machine.hypervisor import CHECKOUT

PAGE = CHECKOUT / "docs" / "reference" / "kernels.md"
REFERENCES = CHECKOUT / "tests" / "lab" / "console" / "references"
_HEAD = """# What each probe can do on each kernel

A test wrote this page from what `netconsole doctor` said on each kernel of [the lab](../design/lab.md).
Do not edit it. A kernel has its name of `tests/lab/kernels/kernels.toml`.

| word | means |
|---|---|
| full | every program of the probe is attached |
| part | a program is missing; the list below the table says what it would measure, and why |
| no | the probe cannot run; the list says why |
| not tried | what it watches is not loaded in the lab's hypervisor |

A probe that the console reads without BPF works on each of them, and is left out.

"""
_HOOKS = """
## How each program is attached

Programs on functions are attached by fentry or fexit where the kernel lets them be, and by kprobes elsewhere
([why, and what that saves](probes.md#functions-of-the-kernel)). A kernel that refuses fentry has `kprobe:F` where this
table has `fentry:F`, and `kretprobe:F` where it has `fexit:F`. `netconsole doctor --verbose` says what yours takes.
Where kernels differ, those are named. A program that none of these kernels attached is left out.

"""
_ABSENT = "is not loaded"


def references() -> dict[str, Any]:
    """By kernel, in the order of their releases."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in REFERENCES.glob("*.json")}
    return dict(sorted(found.items(), key=lambda item: [int(n) for n in item[0].split("-")[1].split(".")]))


def page(kernels: Mapping[str, Any]) -> str:
    """The whole page."""
    probes = sorted({name for one in kernels.values() for name, probe in one["probes"].items() if "types" in probe})
    probes = [name for name in probes if any(one["probes"][name]["types"] for one in kernels.values())]
    lines = [f"| probe | {' | '.join(kernels)} |", "|---" * (len(kernels) + 1) + "|"]
    notes = []
    for name in probes:
        cells = []
        for kernel, one in kernels.items():
            probe = one["probes"][name]
            cells.append(_cell(probe))
            if cells[-1] in ("part", "no"):
                notes.append(f"- `{name}` on {kernel}: {_why(probe)}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    text = _HEAD + "\n".join(lines) + "\n"
    return text + ("\n" + "\n".join(notes) + "\n" if notes else "") + _HOOKS + _hooks(kernels, probes)


def _hooks(kernels: Mapping[str, Any], probes: Sequence[str]) -> str:
    """A row for each program: its attach point, or its points and the kernels of each."""
    lines = ["| probe | program | attach point |", "|---|---|---|"]
    for name in probes:
        attached = {kernel: one["probes"][name]["attach"] for kernel, one in kernels.items()}
        for program in dict.fromkeys(program for points in attached.values() for program in points):
            at: dict[str, list[str]] = {}
            for kernel, points in attached.items():
                if points:  # a kernel on which the probe was not tried says nothing
                    at.setdefault(points.get(program, ""), []).append(kernel)
            lines.append(f"| `{name}` | `{program}` | {_points(at)} |")
    return "\n".join(lines) + "\n"


def _points(at: Mapping[str, Sequence[str]]) -> str:
    if len(at) == 1:
        return f"`{next(iter(at))}`"
    return ", ".join(f"{f'`{point}`' if point else 'none'} ({', '.join(on)})" for point, on in at.items())


def _cell(probe: Mapping[str, Any]) -> str:
    if probe["state"] == "attached":
        return "full"
    if probe["state"] == "degraded":
        return "part"
    return "not tried" if _ABSENT in (probe["why"] or "") else "no"


def _why(probe: Mapping[str, Any]) -> str:
    tried = "; ".join(sorted({f"{one['point']}: {one['why']}" for one in probe["tried"]}))
    return f"{probe['why']}{f' ({tried})' if tried else ''}."
