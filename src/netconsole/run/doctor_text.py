"""What `netconsole doctor` found, as text of 80 columns: on one screen, each reason once; or everything."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from netconsole.base.figure import safe
from netconsole.run.doctor import ProbeResult, Report
from netconsole.telemetry.words import probe_state
from netconsole_collector.compile.type_files import COMMAND

COLUMNS = 80
_NAME_WIDTH = 18
_HEAD_WIDTH = 13
_MAX_HELP = 2000
MORE = "netconsole doctor --verbose shows every attach point."


def brief(report: Report) -> str:
    """What works, what does not and why, each reason once, and what would help."""
    about = report.host
    lines = _paragraph("host", f"{about.get('name')}, kernel {about.get('kernel')}, {about.get('os')}")
    lines += _of_host(report)
    works = [name for name, probe in report.probes.items() if probe.state == "attached"]
    lines += _paragraph(
        "ok", f"{len(works)} of {len(report.probes)} probes: {', '.join(works)}" if works else "nothing"
    )
    notes: dict[str, list[str]] = {}
    for name in report.running:
        for note in report.probes[name].notes:
            notes.setdefault(note, []).append(name)
    for note, names in notes.items():
        lines += _paragraph("but", f"{', '.join(names)}: {note}")
    for state in sorted({probe.state for probe in report.probes.values()} - {"attached"}):
        of_state = {name: probe for name, probe in report.probes.items() if probe.state == state}
        for why, (names, helps) in _by_reason(of_state).items():
            lines += _paragraph(probe_state(state), f"{', '.join(names)}: {why}")
            lines += [line for help_ in helps for line in _help(help_, _paragraph)]
    for problem in report.broken:
        lines += _paragraph("broken", problem)
    return "\n".join([*lines, "", *textwrap.wrap(f"{_verdict(report)} {MORE}", COLUMNS)])


def _of_host(report: Report) -> Iterator[str]:
    """The capabilities: those that are there in a line, each that is not with its reason."""
    fine = [name.replace("_", " ") for name, one in report.capabilities.items() if one.ok]
    yield from _paragraph("can", ", ".join(fine) or "nothing")
    for name, one in report.capabilities.items():
        if not one.ok:
            yield from _paragraph("cannot", f"{name.replace('_', ' ')}: {one.why or 'no reason known'}")
            yield from _help(one.help, _paragraph) if one.help else ()


def _by_reason(probes: Mapping[str, ProbeResult]) -> dict[str, tuple[list[str], list[str]]]:
    """The names of these probes, and what would help them, by why."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for name, probe in probes.items():
        names, helps = found.setdefault(_reason(probe), ([], []))
        names.append(name)
        if probe.help and probe.help not in helps:
            helps.append(probe.help)
    return dict(sorted(found.items(), key=lambda one: -len(one[1][0])))


def _reason(probe: ProbeResult) -> str:
    """The one reason why all its missing programs could not be attached; where there are several, what it says."""
    reasons = {
        str(one["why"])
        for program in probe.programs
        if not program.attach
        for one in program.tried
        if isinstance(one, Mapping) and one.get("why")
    }
    # Notes are told by themselves.
    missing = (probe.why or "").removesuffix("; ".join(probe.notes)).removesuffix("; ")
    return reasons.pop() if len(reasons) == 1 else missing or "no reason known"


def _paragraph(head: str, what: str) -> list[str]:
    return textwrap.wrap(
        safe(what, 2000),
        COLUMNS,
        initial_indent=f"{safe(head, 40):{_HEAD_WIDTH}} ",
        subsequent_indent=" " * (_HEAD_WIDTH + 1 + 2 * bool(head)),
        break_on_hyphens=False,
    )


def _help(what: str, written: Callable[[str, str], list[str]]) -> list[str]:
    """What would help. Its commands are indented: each stays one line, however long, so that it can be pasted."""
    lines: list[str] = []
    for line in what[:_MAX_HELP].splitlines():
        if line.startswith(COMMAND):
            lines.append(COMMAND + safe(line.strip(), _MAX_HELP))
        else:
            lines += written("", f"→ {line}" if not lines else line)
    return lines


def verbose(report: Report) -> str:
    """Every capability, every probe, and every attach point."""
    about = report.host
    lines = _entry("host", f"{about.get('name')}, kernel {about.get('kernel')}, {about.get('os')}")
    lines += ["", "This host"]
    for name, capability in report.capabilities.items():
        words = [capability.why or ""] if capability.why else []
        lines += _entry(name.replace("_", " "), " ".join([_word(capability.ok), *words]))
        if capability.help and not capability.ok:
            lines += _help(capability.help, _entry)
    lines += ["", "Probes"]
    for name, probe in report.probes.items():
        lines += _entry(name, ": ".join(filter(None, [probe_state(probe.state), probe.why])))
        for program in probe.programs:
            if program.attach:
                refused = f"; not {_tried(program.tried)}" if program.tried else ""
                lines += _entry("", f"{program.name}: {program.attach}{refused}")
            else:
                lines += _entry("", f"{program.name}: not attached; tried {_tried(program.tried) or 'nothing'}")
        if probe.help:
            lines += _help(probe.help, _entry)
    for problem in report.broken:
        lines += _entry("broken", problem)
    lines += ["", *textwrap.wrap(_verdict(report), COLUMNS)]
    return "\n".join(lines)


def _verdict(report: Report) -> str:
    verdict = f"{len(report.running)} of {len(report.probes)} probes run here."
    if report.ok:
        return verdict
    if not report.is_far and os.geteuid() != 0:
        return f"{verdict} Probes in the kernel need root: run netconsole doctor with sudo to see which of them run."
    return f"{verdict} The reasons are above."


def _entry(name: str, what: str) -> list[str]:
    return textwrap.wrap(
        safe(what, 600),
        COLUMNS,
        initial_indent=f"  {safe(name):{_NAME_WIDTH}} ",
        subsequent_indent=" " * (_NAME_WIDTH + 5),
        break_on_hyphens=False,
    )


def _word(ok: bool) -> str:
    return "ok" if ok else "missing:"


def _tried(tried: Sequence[Any]) -> str:
    """The points that failed. The collector sends texts, or pairs of point and reason."""
    return ", ".join(one if isinstance(one, str) else ": ".join(map(str, _values(one))) for one in tried)


def _values(one: object) -> Sequence[object]:
    if isinstance(one, Mapping):
        return [value for value in one.values() if value]
    return list(one) if isinstance(one, (list, tuple)) else [one]
