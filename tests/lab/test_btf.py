"""The BTF that is cut out of kernel packages is what the kernels will have at run time."""

from __future__ import annotations

import struct

import pytest

from .btf import KernelBtf, btf_files, elf_section, unpack_image
from .errors import LabUnavailable
from .fetch import Kernel, fetch, kernels

pytestmark = pytest.mark.lab

BTF_MAGIC = 0xEB9F


@pytest.fixture(scope="module", params=kernels(), ids=lambda kernel: kernel.name)
def files(request: pytest.FixtureRequest) -> KernelBtf:
    kernel: Kernel = request.param
    try:
        return btf_files(fetch(kernel))
    except LabUnavailable as error:
        pytest.skip(str(error))


def test_vmlinux_and_modules_have_types(files: KernelBtf) -> None:
    for path in (files.vmlinux, *files.modules.values()):
        data = path.read_bytes()
        # Documentation/bpf/btf.rst: magic, version, flags, header length, type offset and length, string offset, length
        magic, version, _, header, type_at, type_length, string_at, string_length = struct.unpack_from(
            "<HBBIIIII", data
        )
        assert (magic, version) == (BTF_MAGIC, 1)
        assert type_length > 0
        assert header + max(type_at + type_length, string_at + string_length) == len(data)
    assert b"\0sk_buff\0" in files.vmlinux.read_bytes()
    assert b"\0vhost_virtqueue\0" in files.modules["vhost"].read_bytes()


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="HdrS"):
        unpack_image(b"\0" * 4096)
    with pytest.raises(ValueError, match="ELF"):
        elf_section(b"no kernel", ".BTF")
