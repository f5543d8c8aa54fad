"""What a far host says of itself (netconsole_collector/about.py). All of it is bounded: the host may be hostile."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

MAX_FILE_BYTES = 32 << 20
"""Of a BTF file: vmlinux has 5 to 12 MB."""
MAX_FILES_BYTES = 64 << 20
"""Of all of them."""

Sudo: TypeAlias = Literal["root", "free", "password", "tty", "refused", "none"]
FileName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,64}$")]


class FileAbout(msgspec.Struct, frozen=True):
    """A BTF file there."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    bytes: Annotated[int, Meta(ge=1, le=MAX_FILE_BYTES)]


class About(msgspec.Struct, frozen=True):
    """A host.

    ``modules`` are loaded or built in; ``build_ids`` are of those that were asked for. ``page`` is in bytes; ``cpus``
    is the kernel's nr_cpu_ids.
    """

    python: Annotated[str, Meta(max_length=40)]
    uid: int
    release: Annotated[str, Meta(max_length=64, pattern="^[A-Za-z0-9._+~-]+$")]
    machine: Annotated[str, Meta(max_length=20, pattern="^[a-z0-9_]+$")]
    page: Annotated[int, Meta(ge=4096, le=1 << 20)]
    cpus: Annotated[int, Meta(ge=1, le=8192)]
    modules: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=8192)]
    files: Annotated[dict[FileName, FileAbout], Meta(max_length=64)]
    build_ids: Annotated[dict[FileName, Annotated[str, Meta(pattern="^[0-9a-f]{0,128}$")]], Meta(max_length=64)]
    has_kprobes: bool
    has_bcc: bool
    lockdown: Annotated[str, Meta(max_length=40)]
    sudo: Sudo
