"""Probes compiled on this machine for a kernel of the lab, where a compile takes twenty times as long.

The collector keeps compiled programs. The file name is a digest of all that a compile reads (docs/design/collector.md).
All of that is known here for the lab's kernels. The collector inside asks for that name, so what it finds is what it
would have compiled. If it finds nothing, it compiles.
"""

from __future__ import annotations

import copy
import io
import os
import tarfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netconsole.base.paths import SYSTEM_PYTHON
from netconsole.probes import catalogue
from netconsole_collector.compile import cache
from netconsole_collector.compile.compiled import DIRECT, Compiled
from netconsole_collector.compile.job import CompileJob
from netconsole_collector.compile.worker import Worker
from netconsole_collector.probe.spec import spec_problem
from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.kernels.btf import KernelBtf, btf_files
from tests.lab.kernels.fetch import KernelTree, kernel_named
from tests.lab.machine.errors import LabError, LabUnavailable
from tests.lab.machine.hypervisor import CHECKOUT, CPUS, Hypervisor

PAGE_BYTES = 4096
"""Of Debian's kernels for other architectures."""
AT_ONCE = 2
"""As many compiles as the collector itself has."""
KEPT_INSIDE = "/run/cache/netconsole/compiled"
"""Where the collector looks inside: XDG_CACHE_HOME of l1_init.sh."""

Load = Mapping[str, Any]
"""A `load` command, as far as a compile is concerned: spec and source."""


class DoesNotCompile(LabError):
    """The message is what the collector would say, with the compiler's own words below."""


@dataclass(frozen=True)
class Kept:
    """What a compile has left, and the name under which it is asked for."""

    name: str
    programs: Compiled


def shipped(only: Container[str] | None = None) -> dict[str, Load]:
    """For each shipped probe that has programs (of those that are named) the command that loads it."""
    found = catalogue.load_all([CHECKOUT / "probes"])
    return {
        name: {"spec": probe.raw, "source": probe.code()}
        for name, probe in found.items()
        if probe.source == "bpf" and (only is None or name in only)
    }


def bring(hypervisor: Hypervisor, commands: Iterable[Load]) -> list[str]:
    """Has what these commands load compiled where the collector inside looks for it; returns the files' names.

    What cannot be compiled is left out: the collector inside will tell why.
    """
    return bring_files(hypervisor, compile_all(hypervisor.tree, commands))


def bring_files(hypervisor: Hypervisor, files: Sequence[Path]) -> list[str]:
    """Puts files of compiled programs where the collector inside looks for them; returns their names."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        for file in files:
            packed.add(file, file.name)
    # Not by the shared root: a cache below /tmp is not seen inside.
    unpack = f"mkdir -p -m 700 {KEPT_INSIDE} && tar -x --no-same-owner -C {KEPT_INSIDE}"
    hypervisor.run("sh", "-c", unpack, input=archive.getvalue())
    return [file.name for file in files]


def kept_inside(hypervisor: Hypervisor) -> dict[str, str]:
    """The compiled programs inside, by name the number of the file: what is compiled there gets a new one."""
    listed = hypervisor.shell(f"mkdir -p -m 700 {KEPT_INSIDE}; ls -i1 {KEPT_INSIDE}")
    return {name: number for number, name in (line.split() for line in listed.splitlines())}


def compile_all(tree: KernelTree, commands: Iterable[Load]) -> list[Path]:
    """The files of those that can be compiled."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files = pool.map(lambda command: _loadable(tree, command), commands)
        return [file for file in files if file is not None]


def compile_for(types: KernelBtf, command: Load, *, plain: bool = False) -> Kept:
    """Compiles it, unless that has been done before: with BTF-typed programs if it can have them and is not `plain`.

    Safe when several test runs do it at once: one of them compiles. Raises DoesNotCompile, and LabUnavailable.
    """
    directory = _kept("stored" if types.stored else "compiled", types.version)
    job = _job(types, command, directory, plain=plain)
    name = cache.name_of(job, Worker(job).spec)
    if name is None:
        raise LabUnavailable("BCC is missing (Debian package python3-bpfcc)")
    locks = cache_dir() / "compiling"
    locks.mkdir(exist_ok=True)
    with locked(locks / f"{types.version}-{job['spec']['probe']['name']}"), _folder(directory) as folder:
        programs = cache.find(folder, name)
        if programs is None:
            _compile(job)
            programs = cache.find(folder, name)
    if programs is None:
        raise LabUnavailable(f"nothing can be kept in {directory}")
    return Kept(name, programs)


def compile_by(python: str, tree: KernelTree, command: Load, into: Path) -> list[Path]:
    """Compiles it with this interpreter and its BCC; the files are what a collector with the same BCC asks for.

    Raises DoesNotCompile.
    """
    _compile(_job(btf_files(tree), command, into, plain=False), python)
    return sorted(into.iterdir())


def _job(types: KernelBtf, command: Load, keep_in: Path, *, plain: bool) -> dict[str, Any]:
    machine = kernel_named(types.kernel).machine
    spec = copy.deepcopy(dict(command["spec"]))
    spec_problem(spec)  # completes it, as the collector does before it hands it to the worker
    return {
        "spec": spec,
        "source": command["source"],
        "cpus": CPUS,
        "ring": True,
        "btf": str(types.vmlinux),
        "release": types.version,
        "compile_only": True,
        "keep_in": str(keep_in),
        **({"machine": machine, "page": PAGE_BYTES} if machine else {}),
        **({"plain": True} if plain else {}),
    }


def _compile(job: Mapping[str, Any], python: str = SYSTEM_PYTHON) -> None:
    answer = CompileJob(dict(job), python).wait()
    if not answer["ok"]:
        raise DoesNotCompile(f"{job['release']}: {answer['why']}\n{answer['detail']}")


def _loadable(tree: KernelTree, command: Load) -> Path | None:
    """The file of what this kernel takes, under the name of what the collector tries first."""
    try:
        types = btf_files(tree)
        first = compile_for(types, command)
        if first.programs.way != DIRECT or command["spec"]["probe"]["name"] not in tree.kernel.untyped:
            return _kept("compiled", tree.version) / first.name
        plain = compile_for(types, command, plain=True)
    except LabError:
        return None
    directory = _kept("untyped", tree.version)
    with _folder(directory) as folder:
        cache.keep(folder, first.name, plain.programs)
    return directory / first.name


def _kept(kind: str, version: str) -> Path:
    """Each kernel has its own: only so many files are kept (cache.MAX_FILES), and no kernel may push out another's."""
    return cache_dir() / kind / version


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    folder = cache.open_folder(str(path))
    if folder is None:
        raise LabUnavailable(f"{path} must belong to this user, and nobody else may write to it")
    try:
        yield folder
    finally:
        os.close(folder)
