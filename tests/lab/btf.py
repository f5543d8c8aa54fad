"""The BTF of the lab's kernels, taken from their packages without booting: types for the layout test."""

from __future__ import annotations

import ctypes
import ctypes.util
import gzip
import lzma
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import LabUnavailable
from .fetch import KernelTree, cache_dir, fetch, kernels, locked
from .initramfs import load_order

# Those whose types a probe may name; what they need (vhost, kvm, tap, nf_conntrack, …) comes along.
MODULES = ("tun", "vhost_net", "openvswitch", "kvm_amd", "kvm_intel", "nf_conntrack", "veth", "virtio_net", "bridge")
DECOMPRESS_LIMIT_S = 60

# Documentation/arch/x86/boot.rst: fields of the setup header of a bzImage.
SETUP_SECTORS_AT = 0x1F1
SETUP_MAGIC_AT = 0x202
PAYLOAD_AT = 0x248  # offset and length, from the end of the real-mode code
SECTOR = 512
LZ4_LEGACY_MAGIC = 0x184C2102
LZ4_LEGACY_BLOCK = 8 << 20  # what a block holds at most when it is unpacked


@dataclass(frozen=True)
class KernelBtf:
    """Files with the raw BTF of a kernel, as in /sys/kernel/btf: those of modules are split BTF on top of vmlinux's."""

    kernel: str
    version: str
    vmlinux: Path
    modules: dict[str, Path]


def lab_btf_files() -> list[KernelBtf]:
    """One entry for each kernel of kernels.toml; extracted once and cached.

    Raises LabUnavailable when a kernel cannot be fetched.
    """
    return [btf_files(fetch(kernel)) for kernel in kernels()]


def btf_files(tree: KernelTree) -> KernelBtf:
    """The BTF files of one unpacked kernel, extracted when the cache has none."""
    directory = cache_dir() / "btf" / tree.version
    directory.mkdir(parents=True, exist_ok=True)
    names = {path.name.partition(".")[0].replace("-", "_"): path for path in load_order(tree.modules, list(MODULES))}
    with locked(directory / "lock"):
        vmlinux = directory / "vmlinux"
        if not vmlinux.exists():
            _write(vmlinux, elf_section(unpack_image(tree.image.read_bytes()), ".BTF"))
        modules = {}
        for name, path in names.items():
            modules[name] = directory / name
            if not modules[name].exists():
                _write(modules[name], elf_section(_decompress(path.read_bytes()), ".BTF"))
    return KernelBtf(tree.kernel.name, tree.version, vmlinux, modules)


def unpack_image(image: bytes) -> bytes:
    """The ELF file vmlinux inside a bzImage. Raises ValueError when it is none."""
    if image[SETUP_MAGIC_AT : SETUP_MAGIC_AT + 4] != b"HdrS":
        raise ValueError("not a bzImage: the setup header has no HdrS")
    real_mode = ((image[SETUP_SECTORS_AT] or 4) + 1) * SECTOR
    offset, length = struct.unpack_from("<II", image, PAYLOAD_AT)
    return _decompress(image[real_mode + offset : real_mode + offset + length])


def elf_section(elf: bytes, wanted: str) -> bytes:
    """A section of a 64-bit little-endian ELF file by name. Raises KeyError when there is none."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    # name, type, flags, address, offset, size
    sections = [struct.unpack_from("<IIQQQQ", elf, table + number * entry_size) for number in range(count)]
    names_at = sections[names_index][4]
    for name_at, _, _, _, offset, size in sections:
        start = names_at + name_at
        if elf[start : elf.index(b"\0", start)] == wanted.encode():
            return elf[offset : offset + size]
    raise KeyError(f"no section {wanted}")


def _decompress(data: bytes) -> bytes:
    """By its magic number; what follows the compressed stream (a bzImage appends the size) is left out."""
    if data.startswith(b"\x7fELF"):
        return data
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(data)
    if data.startswith(struct.pack("<I", LZ4_LEGACY_MAGIC)):
        return _lz4_legacy(data)
    raise ValueError(f"unknown compression, magic number {data[:4].hex()}")


def _zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        raise LabUnavailable("zstd is missing (Debian package zstd)")
    # Its status is 1 because of what follows the stream; an unfinished one shows in the ELF file.
    return subprocess.run(
        ["zstd", "-dcq"],
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=DECOMPRESS_LIMIT_S,
        check=False,
    ).stdout


def _lz4_legacy(data: bytes) -> bytes:
    """Blocks with their packed size in front (lib/decompress_unlz4.c); the standard library has no LZ4."""
    name = ctypes.util.find_library("lz4")
    if name is None:
        raise LabUnavailable("liblz4 is missing (Debian package liblz4-1)")
    unpack = ctypes.CDLL(name).LZ4_decompress_safe
    room = ctypes.create_string_buffer(LZ4_LEGACY_BLOCK)
    parts, at = [], 4
    while at + 4 < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            break  # the unpacked size that the kernel's build appends
        block = data[at + 4 : at + 4 + size]
        got = unpack(block, room, len(block), len(room))
        if got < 0:
            raise ValueError(f"bad LZ4 block at {at}")
        parts.append(room.raw[:got])
        at += 4 + size
    return b"".join(parts)


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(path)
