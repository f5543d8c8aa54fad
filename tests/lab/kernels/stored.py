"""What probes read of the types of those kernels that `make test` does not fetch: the files in `types`.

To compile for a kernel takes its types and nothing else of it. They have 300 kB; the packages have up to 900 MB. Who
names other types in a probe makes the files anew, from the packages: `.venv/bin/python -m tests.lab.kernels.stored`.

Types keep the kernel's own numbers, so that programs are the same, byte by byte. What is left out is an empty
declaration.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from netconsole.probes import catalogue
from netconsole.probes.type_pruning import Types, name_offsets, names_read, written
from netconsole_collector.types import btf
from tests.lab.kernels.btf import KernelBtf, btf_files
from tests.lab.kernels.fetch import Kernel, all_kernels, fetch
from tests.lab.kernels.image import write_whole

DIRECTORY = Path(__file__).with_name("types")
SUFFIX = ".tar.xz"
ABOUT = ("version", "names")
"""Members of a file beside the types: the kernel's release, and all names whose types were to be kept."""
_ASKED_FOR = {"bpf_rdonly_cast"}
"""By the compiler itself (Compiler.ways)."""
_EMPTY = bytearray(4) + (btf.FWD << 24).to_bytes(4, "little") + bytearray(4)
"""A declaration of a struct without a name."""


def kernels() -> list[Kernel]:
    """Those that only `make test-lab` fetches; not one that is an earlier one in another configuration."""
    return [kernel for kernel in all_kernels() if kernel.long and kernel.share == "9p"]


def file_of(kernel: str) -> Path:
    return DIRECTORY / f"{kernel}{SUFFIX}"


def kernel_of(file: Path) -> str:
    return file.name.removesuffix(SUFFIX)


def unpacked(file: Path, directory: Path) -> KernelBtf:
    """What this file has, as files in ``directory``."""
    members = members_of(file)
    for name in members.keys() - set(ABOUT):
        (directory / name).write_bytes(members[name])
    modules = {name: directory / name for name in members if name not in ("vmlinux", *ABOUT)}
    kernel, version = kernel_of(file), members["version"].decode()
    return KernelBtf(kernel, version, directory / "vmlinux", modules, stored=True)


def names_in(file: Path) -> set[str]:
    """All names whose types were to be kept, when it was made."""
    return set(members_of(file)["names"].decode().splitlines())


def members_of(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as packed:
        return {member.name: packed.extractfile(member).read() for member in packed}  # type: ignore[union-attr]


def names_to_keep() -> set[str]:
    """What shipped probes may read."""
    return names_read(catalogue.load_all().values()) | _ASKED_FOR


def without_the_rest(files: KernelBtf, names: set[str]) -> dict[str, bytes]:
    """The types that have one of these names, and all that they need: of vmlinux and of each module."""
    whole = files.vmlinux.read_bytes()
    left: dict[str, bytes] = {}
    needed: set[int] = set()
    named: set[int] = set()
    for module, path in files.modules.items():
        types = Types(whole, _unsealed(path.read_bytes()))
        kept, below = types.needed(types.with_names(names))
        needed |= below
        named.update(offset for number in kept for offset in name_offsets(types.types[number]))
        left[module] = _with_empty(types, kept, set())
    types = Types(None, whole)
    kept, _ = types.needed(types.with_names(names) | {identifier - types.first_id for identifier in needed})
    return {"vmlinux": _with_empty(types, kept, named), **left}


def _with_empty(types: Types, kept: set[int], named: set[int]) -> bytes:
    """All types in their places: those that are not kept are empty, and so are names that nobody uses.

    ``named`` are offsets of names that others use.
    """
    strings = bytearray(len(types.strings))
    for offset in named.union(*(name_offsets(types.types[number]) for number in kept)):
        at = offset - types.first_name
        if 0 <= at < len(strings):
            end = types.strings.index(b"\0", at)
            strings[at:end] = types.strings[at:end]
    return written((one if number in kept else _EMPTY for number, one in enumerate(types.types)), bytes(strings))


def _unsealed(content: bytes) -> bytes:
    return content.partition(b"\n")[2] if content.startswith(btf.SEAL) else content


def _packed(members: Mapping[str, bytes]) -> bytes:
    """The same members are the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def store(whole: KernelBtf, file: Path) -> None:
    """Writes what probes may read of these types."""
    names = names_to_keep()
    about = {"version": whole.version.encode(), "names": "\n".join(sorted(names)).encode()}
    write_whole(file, _packed({**about, **without_the_rest(whole, names)}))


if __name__ == "__main__":
    for one in kernels():
        store(btf_files(fetch(one)), file_of(one.name))
        print(f"{file_of(one.name).name}: {file_of(one.name).stat().st_size / 1000:.0f} kB")
