"""Makes types of a kernel or a module from debug information, pruned to what probes read.

For kernels without types, and for those whose modules have none of their own (before 5.11). pahole makes BTF, of a
module split BTF on top of the kernel's. What no shipped probe names is left out, and the file is bound to its kernel
(netconsole_collector/types/copied_types.py).
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from netconsole.base.errors import Unable, bad
from netconsole.probes.type_pruning import pruned, root_names
from netconsole_collector.types import copied_types, kernel_symbols

PAHOLE_LIMIT_S = 600.0
NO_PAHOLE = "pahole is missing: install dwarves (Debian, Ubuntu, Fedora, RHEL)"
VMLINUX = copied_types.KERNEL
_RELEASE = re.compile(r"/lib/modules/([^/]+)/")
_NAME = re.compile(r"([\w-]+)\.ko(?:\.debug)?")
_KERNEL = re.compile(r"vmlinux(?:-\d.*)?(?:\.debug)?")
_BANNER = re.compile(rb"Linux version ([\w.+~-]{1,64}) \(")
_BTF_MAGIC = b"\x9f\xeb"


@dataclass(frozen=True)
class Base:
    """The types of the kernel itself, which those of modules refer to, and the digest that binds a module's to them."""

    file: Path
    types: bytes
    digest: str


def base_of(file: Path) -> Base:
    """``file`` is a copy of the host's /sys/kernel/btf/vmlinux, or the vmlinux of a debug package. Raises BadInput."""
    types = own_types(file)
    if types is None:
        raise bad(
            file, "", "this vmlinux has no types (BTF) of its own: name it among the files, so that they are made"
        )
    return Base(file, types, hashlib.sha256(types).hexdigest())


def make_kernel(file: Path, release: str | None, names: set[str]) -> tuple[str, bytes, Base]:
    """The kernel's release, the content of its file, and what its modules are made on.

    ``file`` is a vmlinux with debug information. ``names`` are kept. Raises BadInput and Unable.
    """
    try:
        elf = Elf.mapped(file)
        id, symbols = copied_types.build_id_in(elf.notes()), kernel_symbols.digest(elf.functions())
        banner = _BANNER.search(elf.data)
    except OSError as error:
        raise bad(file, "", f"cannot read: {error.strerror}") from None
    except (ValueError, struct.error):
        raise bad(file, "", "this file is no vmlinux of a debug package") from None
    if not id or not symbols:
        raise bad(file, "", "this vmlinux has no build id or no symbols: take that of the debug package")
    its_own = banner.group(1).decode() if banner else None
    if release is not None and its_own not in (None, release):
        raise bad(file, "", f"this is the kernel {its_own}, and not {release}")
    release = release or its_own
    if release is None:
        raise bad(file, "", "this file does not say for which kernel it is: say it with --release")
    about = {"release": release, "module": VMLINUX, "build_id": id, "symbols": symbols}
    try:
        types, content = _sealed(about, None, made_btf(file, None), names)
    except (ValueError, struct.error, IndexError):
        raise bad(file, "", "pahole made types of this file that cannot be read") from None
    return release, content, Base(file, types, hashlib.sha256(content).hexdigest())


def own_types(file: Path) -> bytes | None:
    """Of a kernel's own types as they are in it, or a copy; None if it is a kernel without them. Raises BadInput."""
    try:
        with file.open("rb") as opened:
            is_btf = opened.read(len(_BTF_MAGIC)) == _BTF_MAGIC
        return file.read_bytes() if is_btf else Elf.mapped(file).section(".BTF")
    except OSError as error:
        raise bad(file, "", f"cannot read: {error.strerror}") from None
    except (ValueError, struct.error):
        raise bad(file, "", "expected a kernel's BTF, or its vmlinux with debug information") from None


def found_in(package: Path, modules: set[str]) -> list[Path]:
    """In an unpacked debug package: the kernel, and those of these modules that it has. Raises BadInput."""
    found: dict[str, Path] = {}
    for path in sorted(package.rglob("*")):
        name = name_of(path)
        if name and (name == VMLINUX or name in modules) and path.is_file() and not path.is_symlink():
            if name in found and not path.samefile(found[name]):
                raise bad(package, "", f"it has {name} twice, in {found[name]} and {path}: unpack one package alone")
            found[name] = path
    if not found:
        raise bad(package, "", "no vmlinux and no module that a probe names is below this directory")
    return list(found.values())


def name_of(file: Path) -> str | None:
    """The module's name in /sys/module, or "vmlinux"; None for another file."""
    if _KERNEL.fullmatch(file.name):
        return VMLINUX
    matched = _NAME.fullmatch(file.name)
    return matched.group(1).replace("-", "_") if matched else None


def make_module(file: Path, base: Base, release: str | None, names: set[str]) -> tuple[str, str, bytes]:
    """The kernel's release, the module's name, and the content of its file.

    ``file`` is a module with debug information. ``names`` are kept. Raises BadInput and Unable.
    """
    module = name_of(file)
    if module is None or module == VMLINUX:
        raise bad(file, "", "expected a module with debug information, such as openvswitch.ko")
    found = _RELEASE.search(str(file.resolve()))
    if release is None and found is None:
        raise bad(file, "", "the file is not below lib/modules/RELEASE: say with --release for which kernel it is")
    if found and release not in (None, found.group(1)):
        raise bad(file, "", f"this is a module of kernel {found.group(1)}, and not {release}")
    release = release or (found.group(1) if found else "")
    try:
        id = copied_types.build_id_in(Elf.mapped(file).notes())
    except OSError as error:
        raise bad(file, "", f"cannot read: {error.strerror}") from None
    except (ValueError, struct.error):
        id = ""
    if not id:
        raise bad(file, "", "this file is no module with a build id")
    about = {"release": release, "module": module, "build_id": id, "vmlinux": base.digest}
    try:
        _, content = _sealed(about, base.types, made_btf(file, base.types), names)
    except (ValueError, struct.error, IndexError):
        raise bad(
            base.file, "", f"these types do not fit those of {module}: check that this is the BTF of kernel {release}"
        ) from None
    return release, module, content


def _sealed(about: dict[str, str], base: bytes | None, whole: bytes, names: set[str]) -> tuple[bytes, bytes]:
    """Those of all types that are kept, and the content of their file. Raises ValueError, struct.error, IndexError."""
    types = pruned(base, whole, names)
    left_out = root_names(base, whole) - root_names(base, types)
    return types, copied_types.sealed(about, left_out, types, names)


def made_btf(file: Path, base: bytes | None) -> bytes:
    """What pahole makes of the debug information, on top of ``base``. Raises BadInput and Unable."""
    with tempfile.TemporaryDirectory(prefix="netconsole-") as directory:
        out, under = Path(directory) / "btf", Path(directory) / "base"
        command = ["pahole", "-J", f"--btf_encode_detached={out}", str(file)]
        if base is not None:
            under.write_bytes(base)
            command.insert(2, f"--btf_base={under}")
        try:
            done = subprocess.run(command, capture_output=True, timeout=PAHOLE_LIMIT_S, check=False)
        except FileNotFoundError:
            raise Unable(NO_PAHOLE) from None
        except subprocess.TimeoutExpired:
            raise bad(file, "", f"pahole took longer than {PAHOLE_LIMIT_S:g} s") from None
        if done.returncode == 0 and out.exists():
            return out.read_bytes()
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise bad(
        file,
        "",
        "pahole (1.22 or later) made no types of this file:"
        f" {said[-1] if said else 'it may have no debug information'}",
    )


# man 5 elf
_MAGIC = b"\x7fELF\2\1"
_SYMBOLS, _NOTE, _NO_BITS = 2, 7, 8  # SHT_SYMTAB, SHT_NOTE, SHT_NOBITS
CODE = 4
"""SHF_EXECINSTR, among a section's flags."""
_GLOBAL = 1  # STB_GLOBAL


class Section(NamedTuple):
    """Names are offsets into the section of names: see :meth:`Elf.name_of`."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """``section`` is its number."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int


class Elf:
    """A file of 64 bits, little-endian. What it lacks or has wrong raises ValueError or struct.error."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("not an ELF file of 64 bits")
        self.data = data
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        self.sections = [
            Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + size * number)) for number in range(count)
        ]
        if names >= count:
            raise ValueError("no names of sections")
        self._names = self.content(self.sections[names])

    @classmethod
    def mapped(cls, path: Path) -> Elf:
        """Of a file that is not read as a whole: a kernel with debug information has 700 MB. Raises OSError too."""
        with path.open("rb") as file:
            return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def section(self, name: str) -> bytes | None:
        """The content of the first section of this name; None if there is none, or it is kept in another file."""
        found = next((one for one in self.sections if self.name_of(one) == name), None)
        return None if found is None or found.type == _NO_BITS else self.content(found)

    def notes(self) -> bytes:
        """All of them, one behind the other."""
        return b"".join(self.content(one) for one in self.sections if one.type == _NOTE)

    def symbols(self) -> Iterator[Symbol]:
        for table in self.sections:
            if table.type != _SYMBOLS or table.link >= len(self.sections):
                continue
            names = self.content(self.sections[table.link])
            for name, *others in struct.iter_unpack("<IBBHQQ", self.content(table)):
                yield Symbol(_text(names, name), *others)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Names and addresses of what is global code: T in the kernel's own list of symbols (/proc/kallsyms)."""
        for one in self.symbols():
            is_code = one.section < len(self.sections) and self.sections[one.section].flags & CODE
            if one.info >> 4 == _GLOBAL and is_code:
                yield one.name, one.value

    def name_of(self, section: Section) -> str:
        return _text(self._names, section.name)

    def content(self, section: Section) -> bytes:
        if section.offset + section.size > len(self.data):
            raise ValueError("cut off")
        return self.data[section.offset : section.offset + section.size]


def _text(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode("ascii", "replace")
