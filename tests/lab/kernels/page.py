"""Writes docs/reference/kernels.md from the references of the lab's kernels: what doctor said on each, running."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    return text + ("\n" + "\n".join(notes) + "\n" if notes else "")


def _cell(probe: Mapping[str, Any]) -> str:
    if probe["state"] == "attached":
        return "full"
    if probe["state"] == "degraded":
        return "part"
    return "not tried" if _ABSENT in (probe["why"] or "") else "no"


def _why(probe: Mapping[str, Any]) -> str:
    tried = "; ".join(sorted({f"{one['point']}: {one['why']}" for one in probe["tried"]}))
    return f"{probe['why']}{f' ({tried})' if tried else ''}."
