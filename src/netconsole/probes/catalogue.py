"""The probes that there are: each directory with a manifest, read and checked (docs/reference/probes.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from netconsole.base import paths
from netconsole.base.checker import Checker, close
from netconsole.base.errors import BadInput, Problem, bad
from netconsole.base.readers import read_toml
from netconsole.probes.includes import COMMON
from netconsole.probes.manifest import CODE, Manifest
from netconsole.probes.manifest_reader import manifest_of
from netconsole_collector.probe.spec import typed_modules as modules_of

MANIFEST = "probe.toml"


class Catalogue(dict[str, Manifest]):
    """Probes by name. One that is broken does not keep the others from running: it is refused when it is asked for."""

    def __init__(self, manifests: Mapping[str, Manifest], broken: Mapping[str, BadInput]) -> None:
        super().__init__(manifests)
        self.broken = dict(broken)

    def require_whole(self) -> None:
        """Raises BadInput with the mistakes of all broken probes, if there are any."""
        problems = [problem for error in self.broken.values() for problem in error.problems]
        if problems:
            raise BadInput(problems)


def load(directory: Path) -> Manifest:
    """The manifest in a probe's directory. Raises BadInput with all its mistakes."""
    path = directory / MANIFEST
    document = read_toml(path)
    checker = Checker(str(path), document)
    manifest = manifest_of(checker, directory, document)
    if manifest.source == "bpf" and not (directory / CODE).is_file():
        checker.problems.append(
            Problem(str(directory / CODE), "", "missing: a probe with source bpf needs its code here")
        )
    if checker.problems:
        raise BadInput(checker.problems)
    return manifest


def load_all(directories: Sequence[Path] | None = None) -> Catalogue:
    """All probes by name, in the order of their names. Raises BadInput when there is none at all."""
    found: dict[str, Manifest] = {}
    broken: dict[str, BadInput] = {}
    for directory in paths.probe_directories() if directories is None else directories:
        for name, path in directories_in(directory).items():
            if name in found or name in broken:
                continue
            try:
                found[name] = load(path)
            except BadInput as error:
                broken[name] = error
    if not found and not broken:
        raise bad(paths.data("probes"), "", "no probes here: the installation is incomplete")
    return Catalogue(dict(sorted(found.items())), broken)


def typed_modules(manifests: Mapping[str, Manifest]) -> list[str]:
    """The kernel modules whose types these probes name."""
    specs = [dict(manifest.raw) for manifest in manifests.values() if manifest.source == "bpf"]
    return sorted({module.replace("-", "_") for spec in specs for module in modules_of(spec)})


def shipped(name: str) -> Manifest:
    """A probe that comes with the program, by its name."""
    return load(directories_in(paths.data("probes"))[name])


def directories_in(root: Path) -> dict[str, Path]:
    """The directories of the probes in a tree, by name. A directory without a manifest is a family of probes."""
    found: dict[str, Path] = {}
    for entry in _entries(root):
        if entry.name == COMMON:
            continue
        for path in [entry] if (entry / MANIFEST).is_file() else _entries(entry):
            if (path / MANIFEST).is_file():
                found.setdefault(path.name, path)
    return found


def pick(manifests: Mapping[str, Manifest], name: str, where: str = "--probe") -> Manifest:
    """A probe by name. Raises BadInput that says what is wrong with it, or names what is close."""
    if name in manifests:
        return manifests[name]
    if isinstance(manifests, Catalogue) and name in manifests.broken:
        raise manifests.broken[name]
    raise bad(where, name, f"unknown probe{close(name, manifests) or '; netconsole probes lists all'}")


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
