"""`netconsole doctor`: finds out what this host can do by trying it, and says what would help where it fails.

The collector tries everything once (`--doctor`, docs/design/collector.md). This module finds out why the collector
itself cannot run. Nothing stays behind on the host.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

import netconsole
from netconsole.base.errors import UNREADABLE, BadInput
from netconsole.far.compiling import FarCompiler
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.far.program import Gone, ProgramProcess
from netconsole.host import identity
from netconsole.probes.catalogue import Catalogue, load_all
from netconsole.probes.manifest import Manifest
from netconsole_collector.doctor import BY_HELPERS
from netconsole_collector.types.header_tree import version_code

SCHEMA = "netconsole.doctor/1"
LIMIT_S = 600.0
"""Enough to compile all probes one after another on a busy machine without hardware virtualisation."""
RUNNING = ("attached", "degraded")
BY_CONSOLE = "read by the console, without BPF"
"""Of a probe that has no program in the kernel."""
_MAX_OUTPUT = 4 * 1024 * 1024


class ProgramCheck(msgspec.Struct, frozen=True):
    """A program: its attach point, or all points that failed."""

    name: str
    attach: str | None = None
    tried: list[Any] = []


class ProbeResult(msgspec.Struct, frozen=True):
    """The result of trying a probe."""

    state: str
    why: str | None = None
    help: str | None = None
    types: str | None = None
    programs: list[ProgramCheck] = []
    notes: list[str] = []
    """What ``why`` says beside programs that are missing."""


class CapabilityCheck(msgspec.Struct, frozen=True):
    """Whether the host can do something, why not, and what would help."""

    ok: bool
    why: str | None = None
    help: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    capabilities: dict[str, CapabilityCheck] = {}
    probes: dict[str, ProbeResult] = {}
    host: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Report:
    """All results."""

    host: Mapping[str, Any]
    capabilities: Mapping[str, CapabilityCheck]
    probes: Mapping[str, ProbeResult]
    broken: Sequence[str] = field(default_factory=list)
    is_far: bool = False
    """Whether it is of another host than the console's."""

    @property
    def running(self) -> list[str]:
        """The probes that measure, wholly or partly."""
        return [name for name, probe in self.probes.items() if probe.state in RUNNING]

    @property
    def ok(self) -> bool:
        """Whether the console can be used here: the collector runs, and at least one BPF probe does."""
        running = any(probe.programs and probe.state in RUNNING for probe in self.probes.values())
        return running and not self.broken

    def as_json(self) -> dict[str, Any]:
        """The report as JSON, for scripts."""
        return {
            "schema": SCHEMA,
            "netconsole": netconsole.__version__,
            "ok": self.ok,
            "host": dict(self.host),
            "capabilities": msgspec.to_builtins(dict(self.capabilities)),
            "probes": msgspec.to_builtins(dict(self.probes)),
            "broken": list(self.broken),
        }


def examine(manifests: Catalogue | None = None, host: AnyHost = THIS_HOST) -> Report:
    """Try everything once. Raises BadInput only when the probes are not installed."""
    manifests = load_all() if manifests is None else manifests
    broken = [str(problem) for error in manifests.broken.values() for problem in error.problems]
    answer, why = _ask_collector(manifests, host)
    own = {
        "console": CapabilityCheck(True, f"Python {sys.version.split()[0]}"),
        "collector": CapabilityCheck(why is None, why),
    }
    probes = dict(answer.probes)
    for manifest in manifests.values():
        if manifest.source != "bpf":
            probes[manifest.name] = _try_source(manifest.source, host)
        elif manifest.name not in probes:
            probes[manifest.name] = ProbeResult("unsupported", why or "the collector gave no answer for this probe")
    about = answer.host or msgspec.to_builtins(identity.describe())
    for name, manifest in manifests.items():
        if probes[name].state in RUNNING:
            probes[name] = _with_notes(probes[name], limits_on(manifest, str(about.get("kernel", ""))))
    return Report(about, {**own, **answer.capabilities}, dict(sorted(probes.items())), broken, host.about is not None)


def limits_on(manifest: Manifest, release: str) -> list[str]:
    """What the probe cannot see on the kernel of this release (`uname -r`), and would on another.

    By number: a distribution may have changed its kernel since.
    """
    code = version_code(release)
    holding = [one for one in manifest.limits if code and (code < version_code(one.kernel)) is one.before]
    return [f"{one.when} it cannot see {one.says}" for one in holding]


def _with_notes(result: ProbeResult, notes: Sequence[str]) -> ProbeResult:
    why = "; ".join(filter(None, [result.why, *notes])) or None
    return msgspec.structs.replace(result, why=why, notes=[*result.notes, *notes])


def _ask_collector(manifests: Catalogue, host: AnyHost) -> tuple[_Answer, str | None]:
    """The collector's answer; if there is none, why."""
    commands: dict[str, dict[str, Any]] = {}
    for manifest in manifests.values():
        if manifest.source != "bpf":
            continue
        try:
            command = {"probe": manifest.name, "spec": manifest.raw, "source": manifest.code(),
                       "mode": "summary", "knobs": dict(manifest.knobs)}  # fmt: skip
        except BadInput as error:
            return _Answer(), str(error)
        commands[manifest.name] = command
    if host.compiler is None:
        return _try(list(commands.values()), host)
    typed = _compiled(host.compiler, commands.values())
    answer, why = _try(typed, host)
    # Kernels that refuse BTF-typed programs get others.
    refused = [one["probe"] for one in typed if one.get("has_plain") and _has_failed(answer, one["probe"])]
    if refused:
        plain, silent = _try(_compiled(host.compiler, (commands[name] for name in refused), is_plain=True), host)
        unanswered = {} if silent is None else {name: ProbeResult("failed", silent) for name in refused}
        others = {name: _by_helpers(one, answer.probes.get(name)) for name, one in plain.probes.items()}
        answer = msgspec.structs.replace(answer, probes={**answer.probes, **unanswered, **others})
    return answer, why


def _has_failed(answer: _Answer, probe: str) -> bool:
    return probe in answer.probes and answer.probes[probe].state == "failed"


def _by_helpers(plain: ProbeResult, typed: ProbeResult | None) -> ProbeResult:
    """The result of plain programs, with the reason why the kernel refused the typed ones before them."""
    if typed is None or plain.state not in RUNNING:
        return plain
    tried = [one for program in typed.programs for one in program.tried if isinstance(one, Mapping)]
    of_verifier = [one.get("why") for one in tried if one.get("detail")]
    return _with_notes(plain, [BY_HELPERS.format(of_verifier[-1] if of_verifier else typed.why)])


def _compiled(
    compiler: FarCompiler, commands: Iterable[dict[str, Any]], is_plain: bool = False
) -> list[dict[str, Any]]:
    with ThreadPoolExecutor() as pool:
        compiling = [(one, pool.submit(compiler.prepare, one["spec"], one["source"], is_plain)) for one in commands]
        return [{**command, **programs.result()} for command, programs in compiling]


def _try(commands: Sequence[dict[str, Any]], host: AnyHost) -> tuple[_Answer, str | None]:
    """What a collector says of these commands; if it says nothing, why."""
    try:
        program = ProgramProcess(host.collector("--doctor"), "the collector")
    except Gone as error:
        return _Answer(), str(error)
    limit = threading.Timer(LIMIT_S, program.close)
    limit.start()
    try:
        program.send(json.dumps(commands).encode() + b"\n")
        if host.about is None:
            program.end_input()
        said = b""
        for chunk in program.chunks():
            said = (said + chunk)[: _MAX_OUTPUT + 1]
        return msgspec.json.decode(said[:_MAX_OUTPUT], type=_Answer), None
    except (Gone, *UNREADABLE):
        return _Answer(), program.why()
    finally:
        limit.cancel()
        program.close()


def _try_source(name: str, host: AnyHost) -> ProbeResult:
    """Open one of the console's own sources, and close it again."""
    from netconsole.host.reach import target_of
    from netconsole.sources.base import SourceError
    from netconsole.sources.runner import FACTORIES

    target = target_of(host)
    source = FACTORIES[name](target)
    try:
        source.open()
    except SourceError as error:
        return ProbeResult(error.state, str(error), error.help)
    finally:
        source.close()
        target.close()
    return ProbeResult("attached", BY_CONSOLE)
