"""A program for another kernel reads memory by the helpers that this kernel has, whichever machine compiled it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from netconsole_collector.compile.compiler import for_kernel
from netconsole_collector.types.btf import Btf
from tests.support.btf_builder import BtfBuilder

CALL, CALL_FUNCTION, LOAD = 0x85, 0x10, 0x18


def code(*numbers: int) -> bytes:
    """Calls of these helpers, between a constant and a call of a kernel function of the same numbers."""
    others = [struct.pack("=BBhi", LOAD, 0, 0, 113), struct.pack("=BBhi", CALL, CALL_FUNCTION, 0, 4)]
    return others[0] + b"".join(struct.pack("=BBhi", CALL, 0, 0, one) for one in numbers) + others[1]


@pytest.mark.parametrize(("name", "found"), [
    ("BPF_FUNC_probe_read_kernel", code(113, 115, 113, 115, 14)),
    ("BPF_FUNC_probe_read", code(4, 45, 4, 45, 14)),
])  # fmt: skip
def test_reads_are_by_the_helpers_that_the_types_name(name: str, found: bytes, tmp_path: Path) -> None:
    builder = BtfBuilder()
    builder.enum("bpf_func_id", [(name, 4)])
    types = Btf(builder.write(tmp_path / "vmlinux"))
    assert for_kernel(code(4, 45, 113, 115, 14), types) == found
