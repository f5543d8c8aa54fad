"""Unpacks kernel images outside the lab. Under emulation that takes longer than the rest of the boot."""

from __future__ import annotations

import ctypes
import ctypes.util
import gzip
import lzma
import shutil
import struct
import subprocess
from pathlib import Path

from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.kernels.fetch import KernelTree
from tests.lab.machine.errors import LabUnavailable

# Documentation/arch/x86/boot.rst: fields of the setup header of a bzImage.
SETUP_SECTORS_AT = 0x1F1
SETUP_MAGIC_AT = 0x202
PAYLOAD_AT = 0x248  # offset and length, from the end of the real-mode code
SECTOR = 512
LZ4_LEGACY_MAGIC = 0x184C2102
LZ4_LEGACY_BLOCK = 8 << 20  # what a block holds at most when it is unpacked
DECOMPRESS_LIMIT_S = 60
BTF_HEADER_BYTES = 24
BTF_HEADER = struct.pack("<HBBI", 0xEB9F, 1, 0, BTF_HEADER_BYTES)  # Documentation/bpf/btf.rst


def bootable(tree: KernelTree) -> Path:
    """What QEMU can start: the image unpacked (vmlinux has a PVH entry), beside the packed one in the cache.

    The packed one where it cannot be unpacked here.
    """
    path = tree.image.with_name(f"vmlinux-{tree.version}")
    with locked(cache_dir() / "kernels" / "lock"):
        if not path.exists():
            try:
                write_whole(path, unpack_image(tree.image.read_bytes()))
            except (LabUnavailable, ValueError):
                return tree.image
    return path


def unpack_image(image: bytes) -> bytes:
    """The ELF file vmlinux inside a bzImage. Raises ValueError when it is none."""
    if image[SETUP_MAGIC_AT : SETUP_MAGIC_AT + 4] != b"HdrS":
        raise ValueError("not a bzImage: the setup header has no HdrS")
    real_mode = ((image[SETUP_SECTORS_AT] or 4) + 1) * SECTOR
    offset, length = struct.unpack_from("<II", image, PAYLOAD_AT)
    return decompress(image[real_mode + offset : real_mode + offset + length])


def btf_in(image: bytes) -> bytes:
    """The BTF in an image that is no ELF file, as arm64's, plain or packed. Raises ValueError when it has none."""
    if image[4:8] == b"zimg":  # drivers/firmware/efi/libstub/zboot-header.S: offset and length of what is packed
        offset, length = struct.unpack_from("<II", image, 8)
        image = decompress(image[offset : offset + length])
    elif image.startswith(b"\x1f\x8b"):
        image = gzip.decompress(image)
    found = b""
    at = image.find(BTF_HEADER)
    while at >= 0:  # its own code knows the magic number too: the longest one is the kernel's
        types_at, types, strings_at, strings = struct.unpack_from("<IIII", image, at + len(BTF_HEADER))
        end = at + BTF_HEADER_BYTES + strings_at + strings
        if types_at == 0 and strings_at == types and len(found) < end - at and end <= len(image):
            found = image[at:end]
        at = image.find(BTF_HEADER, at + 1)
    if not found:
        raise ValueError("no BTF in this image")
    return found


def decompress(data: bytes) -> bytes:
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


def write_whole(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(data)
    unfinished.replace(path)
