"""`netconsole doctor`: finds out what this host can do by trying it, and says what would help where it fails.

The collector tries everything once (`--doctor`, docs/design/collector.md). This module finds out why the collector
itself cannot run. Nothing stays behind on the host.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

import netconsole
from netconsole.base.errors import UNREADABLE, BadInput
from netconsole.base.figure import safe
from netconsole.far.compiling import FarCompiler
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.far.program import Gone, ProgramProcess
from netconsole.host import identity
from netconsole.probes.catalogue import Catalogue, load_all
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.words import probe_state
from netconsole_collector.doctor import BY_HELPERS
from netconsole_collector.types.header_tree import version_code

SCHEMA = "netconsole.doctor/1"
LIMIT_S = 600.0
"""Enough to compile all probes one after another on a busy machine without hardware virtualisation."""
RUNNING = ("attached", "degraded")
"""Of a probe that has no program in the kernel."""
_AT_LO = {"device": "lo"}
"""Where XDP programs are tried: nothing is lost there, and no driver is changed."""
_PROGRESS = b'{"tr'
"""How a line of progress begins."""
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


class _ProgressLine(msgspec.Struct, frozen=True):
    """A line of the collector's progress."""

    trying: str | None = None
    tried: str | None = None
    state: str = ""


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


class DoctorProgress:
    """Says which probes are being tried, and each result as it comes. Thread-safe."""

    def __init__(self, count: int, say: Callable[[str], None]) -> None:
        """``count``: how many probes there are in all."""
        self._count = count
        self._say = say
        self._lock = threading.Lock()
        self._begun: set[str] = set()

    def trying(self, name: str) -> None:
        """A probe is compiled or loaded. What is only tried again is not told again."""
        with self._lock:
            if name not in self._begun:
                self._begun.add(name)
                self._say(f"trying {len(self._begun)} of {self._count}: {safe(name, 40)}")

    def tried(self, name: str, state: str) -> None:
        """The result of a probe: one of the words of the state, as everywhere."""
        self._say(f"{safe(name, 40)}: {safe(probe_state(state), 40)}")


def _in_silence(_text: str) -> None:
    """Says nothing."""


def examine(
    manifests: Catalogue | None = None, host: AnyHost = THIS_HOST, say: Callable[[str], None] = _in_silence
) -> Report:
    """Try everything once. ``say`` hears of the progress. Raises BadInput only when the probes are not installed."""
    manifests = load_all() if manifests is None else manifests
    progress = DoctorProgress(sum(manifest.source == "bpf" for manifest in manifests.values()), say)
    broken = [str(problem) for error in manifests.broken.values() for problem in error.problems]
    answer, why = _ask_collector(manifests, host, progress)
    own = {
        "console": CapabilityCheck(True, f"Python {sys.version.split()[0]}"),
        "collector": CapabilityCheck(why is None, why),
    }
    probes = dict(answer.probes)
    for manifest in manifests.values():
        if manifest.name not in probes:
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


def _ask_collector(manifests: Catalogue, host: AnyHost, progress: DoctorProgress) -> tuple[_Answer, str | None]:
    """The collector's answer; if there is none, why."""
    commands: dict[str, dict[str, Any]] = {}
    for manifest in manifests.values():
        try:
            knobs = {**manifest.knobs, **(_AT_LO if manifest.is_of_one_device else {})}
            command = {"probe": manifest.name, "spec": manifest.raw, "source": manifest.code(),
                       "mode": "summary", "knobs": knobs}  # fmt: skip
        except BadInput as error:
            return _Answer(), str(error)
        commands[manifest.name] = command
    if host.compiler is None:
        return _try(list(commands.values()), host, progress)
    sources = [one for name, one in commands.items() if manifests[name].source != "bpf"]
    typed = [
        *_compiled(host.compiler, (one for one in commands.values() if one not in sources), progress),
        *sources,
    ]
    answer, why = _try(typed, host, progress)
    # Kernels that refuse BTF-typed programs get others.
    refused = [one["probe"] for one in typed if one.get("has_plain") and _has_failed(answer, one["probe"])]
    if refused:
        others_too = _compiled(host.compiler, (commands[name] for name in refused), progress, is_plain=True)
        plain, silent = _try(others_too, host, progress)
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
    compiler: FarCompiler, commands: Iterable[dict[str, Any]], progress: DoctorProgress, is_plain: bool = False
) -> list[dict[str, Any]]:
    def compiled(one: dict[str, Any]) -> dict[str, Any]:
        progress.trying(one["probe"])
        return compiler.prepare(one["spec"], one["source"], is_plain)

    with ThreadPoolExecutor() as pool:
        compiling = [(one, pool.submit(compiled, one)) for one in commands]
        return [{**command, **programs.result()} for command, programs in compiling]


def _try(commands: Sequence[dict[str, Any]], host: AnyHost, progress: DoctorProgress) -> tuple[_Answer, str | None]:
    """What a collector says of these commands; if it says nothing, why."""
    try:
        program = ProgramProcess(host.collector("--doctor", "--progress"), "the collector")
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
            said = _without_progress((said + chunk)[: _MAX_OUTPUT + 1], progress)
        return msgspec.json.decode(said[:_MAX_OUTPUT], type=_Answer), None
    except (Gone, *UNREADABLE):
        return _Answer(), program.why()
    finally:
        limit.cancel()
        program.close()


def _without_progress(said: bytes, progress: DoctorProgress) -> bytes:
    """The output without its leading lines of progress, which are told. The document begins with a brace alone."""
    while said.startswith(_PROGRESS) and b"\n" in said:
        line, _, said = said.partition(b"\n")
        step = msgspec.json.decode(line, type=_ProgressLine)
        if step.tried is not None:
            progress.tried(step.tried, step.state)
        elif step.trying is not None:
            progress.trying(step.trying)
    return said
