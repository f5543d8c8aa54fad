"""Compiles probes here for the kernel of another host, from that kernel's own types (BTF).

A compile takes a second of a CPU and over 100 MB, and BCC: all of it stays on this machine. What was compiled is kept
as for this machine's own kernel (netconsole_collector/compile/cache.py).
"""

from __future__ import annotations

import copy
import os
import platform
import threading
from collections.abc import Mapping
from typing import Any

from netconsole.base import paths
from netconsole.far.about import About
from netconsole.far.kernels import VMLINUX, Kernel
from netconsole_collector import capabilities
from netconsole_collector.compile import cache, received_programs
from netconsole_collector.compile.compiled import PLAIN
from netconsole_collector.compile.job import CompileJob
from netconsole_collector.compile.refused import BCC_HELP, NO_PERMISSION, NOT_LOADED
from netconsole_collector.compile.worker import Worker
from netconsole_collector.kernel import attach
from netconsole_collector.probe.spec import spec_problem
from netconsole_collector.types import copied_types

AT_ONCE = 2
"""As many compiles as the collector itself has, however many hosts they are for."""
_room = threading.Semaphore(AT_ONCE)
_turns: dict[str, threading.Lock] = {}
"""By the name that a compile is kept under: hosts of one kernel wait for the first one's."""
NOT_ROOT = (
    "compiling needs root on the console's machine: BCC makes BPF maps, and no sandbox (seccomp) can be set up there",
    "run netconsole with sudo (sudo -E keeps your ssh agent); a probe that is compiled once needs no root again",
)
COMPILED_FOR = ("x86_64", "aarch64")
"""Architectures whose programs can be compiled on another one (docs/design/kernel-types.md)."""
_RING = b"\0BPF_MAP_TYPE_RINGBUF\0"
"""The kernel has ring buffers (5.8), if its types name them."""


def cannot_compile_for(about: About) -> str | None:
    """Why nothing can be compiled here for that host; None when it can."""
    if about.machine != platform.machine() and about.machine not in COMPILED_FOR:
        return f"the host's architecture is {about.machine}, and this machine's is {platform.machine()}"
    if about.page != os.sysconf("SC_PAGE_SIZE"):
        return "the host's memory pages have another size than this machine's"
    if VMLINUX not in about.files:
        return "the host's kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"
    found = capabilities.bcc(_python(), is_thorough=False)
    return None if found["ok"] else f"this machine has no BCC ({found['why']})"


class FarCompiler:
    """Compiles for one kernel. Its methods may be called by several threads."""

    def __init__(self, about: About, kernel: Kernel) -> None:
        self._about = about
        self._kernel = kernel
        self._directory = str(paths.user_cache() / "compiled")
        self._has_ring = _RING in (kernel.directory / VMLINUX).read_bytes()

    def prepare(self, spec: Mapping[str, Any], source: str, is_plain: bool = False) -> dict[str, object]:
        """What a load command needs in place of the source. Compiles, unless that was done before.

        ``is_plain``: no BTF-typed programs, for kernels that refuse them.
        """
        job = self._job(spec, source, is_plain)
        problem = spec_problem(job["spec"])  # completes it, as the collector does
        if problem:
            return _failed("failed", problem, None)
        why = self._cannot_run(job["spec"])
        if why:
            return _failed("unsupported", why, None)
        folder = cache.open_folder(self._directory)
        if folder is None:
            return _failed(
                "failed", f"{self._directory} must belong to this user, and nobody else may write to it", None
            )
        try:
            name = cache.name_of(job, Worker(job).spec)
            if name is None:  # without BCC, or with types that must not be used: a compile says which, and the way out
                with _room:
                    answer = _compile(job)
                return _unkept() if answer["ok"] else _refused(answer)
            with _turns.setdefault(name, threading.Lock()):
                programs = cache.find(folder, name)
                if programs is None:
                    with _room:
                        answer = _compile(job)
                    if not answer["ok"]:
                        return _refused(answer)
                    programs = cache.find(folder, name)
            if programs is None:
                return _failed("failed", f"netconsole cannot keep compiled programs in {self._directory}", None)
        finally:
            os.close(folder)
        return {"source": "", "compiled": received_programs.pack(programs), "has_plain": programs.way != PLAIN}

    def _cannot_run(self, spec: Mapping[str, Any]) -> str | None:
        """Why the far end will refuse it whatever is compiled. It says so itself, in more words."""
        module = spec["probe"].get("module", "").replace("-", "_")
        if module and module not in self._about.modules:
            return NOT_LOADED.format(module)
        if not self._about.has_kprobes and attach.needing_kprobes(spec["programs"]):
            return attach.NO_KPROBES
        return None

    def _job(self, spec: Mapping[str, Any], source: str, is_plain: bool) -> dict[str, Any]:
        about = self._about
        return {
            "spec": copy.deepcopy(dict(spec)),
            "source": source,
            "cpus": about.cpus,
            "ring": self._has_ring,
            "btf": str(self._kernel.directory / VMLINUX),
            "btf_digest": self._kernel.digest,
            "modules": about.modules,
            "build_ids": about.build_ids,
            "carried": copied_types.DIRECTORY,
            "release": about.release,
            "compile_only": True,
            "keep_in": self._directory,
            **({"machine": about.machine, "page": about.page} if about.machine != platform.machine() else {}),
            **({"plain": True} if is_plain else {}),
        }


def _compile(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return CompileJob(job, _python()).wait()
    except OSError as error:
        return {"ok": False, "state": "failed", "why": f"the compiler cannot start: {error.strerror}", "help": None}


def _refused(answer: dict[str, Any]) -> dict[str, object]:
    """What the compiler says, and what to do about it on this machine."""
    if answer["why"] == NO_PERMISSION:
        return _failed("unsupported", *NOT_ROOT)
    return _failed(answer["state"], answer["why"], answer["help"])


def _unkept() -> dict[str, object]:
    """Its name would have to say with which BCC it was compiled."""
    return _failed("failed", "libbcc is in none of the places where distributions put it", BCC_HELP)


def _python() -> str:
    return os.environ.get("NETCONSOLE_PYTHON") or paths.SYSTEM_PYTHON


def _failed(state: str, why: str, help: str | None) -> dict[str, object]:
    return {"source": "", "compiled": {"state": state, "why": why, "help": help}}
