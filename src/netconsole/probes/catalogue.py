"""The probes that there are: each directory with a manifest, read and checked (docs/reference/probes.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Catalogue(Mapping[str, Manifest]):
    """Probes by name, in the order of their names. Each manifest is read when it is asked for: a run needs half.

    One that is broken does not keep the others from running: it is refused when it is asked for.
    """

    def __init__(self, places: Mapping[str, Path]) -> None:
        """``places``: the directory of each probe, by its name."""
        self.names = sorted(places)
        """Those of broken ones, too."""
        self._places = places
        self._known: dict[str, Manifest | BadInput] = {}

    def __getitem__(self, name: str) -> Manifest:
        found = self._read(name)
        if isinstance(found, BadInput):
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name in self)

    def __len__(self) -> int:
        return len(self.names) - len(self.broken)

    @property
    def broken(self) -> dict[str, BadInput]:
        """What is wrong with those that are broken."""
        known = {name: self._read(name) for name in self.names}
        return {name: error for name, error in known.items() if isinstance(error, BadInput)}

    def require(self, name: str) -> Manifest | None:
        """One probe; None: there is none of this name. Raises BadInput with all its mistakes."""
        found = self._read(name) if name in self._places else None
        if isinstance(found, BadInput):
            raise found
        return found

    def require_whole(self) -> None:
        """Raises BadInput with the mistakes of all broken probes, if there are any."""
        problems = [problem for error in self.broken.values() for problem in error.problems]
        if problems:
            raise BadInput(problems)

    def _read(self, name: str) -> Manifest | BadInput:
        if name not in self._known:
            try:
                self._known[name] = load(self._places[name])
            except BadInput as error:
                self._known[name] = error
        return self._known[name]


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
    """All probes by name. Raises BadInput when there is none at all."""
    places: dict[str, Path] = {}
    for directory in paths.probe_directories() if directories is None else directories:
        places = {**directories_in(directory), **places}  # the first that has a name wins
    if not places:
        raise bad(paths.data("probes"), "", "no probes here: the installation is incomplete")
    return Catalogue(places)


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
    found = manifests.require(name) if isinstance(manifests, Catalogue) else manifests.get(name)
    if found is not None:
        return found
    raise bad(where, name, f"unknown probe{close(name, manifests) or '; netconsole probes lists all'}")


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
