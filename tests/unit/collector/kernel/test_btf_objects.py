"""The kernel's BTF objects. Here the answers of a kernel before 5.11 are made up; the lab has such a kernel."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from netconsole_collector.kernel import btf_objects, syscalls

_GET_FD_BY_ID, _GET_NEXT_ID, _GET_INFO = 19, 23, 15


def test_before_5_11_a_program_with_btf_does_not_hide_that_modules_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that runs beside this one has loaded BTF: the kernel has objects, and no names for them."""
    given: list[int] = []

    def bpf(command: int, attributes: bytes) -> int:
        if command == _GET_FD_BY_ID:
            given.append(os.open(os.devnull, os.O_RDONLY))
            return given[-1]
        assert command == _GET_INFO
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))

    def bpf_answer(command: int, attributes: bytes) -> bytes:
        assert command == _GET_NEXT_ID
        before = struct.unpack_from("=I", attributes)[0]
        if before == 2:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return struct.pack("=II", before, before + 1)

    monkeypatch.setattr(syscalls, "bpf", bpf)
    monkeypatch.setattr(syscalls, "bpf_answer", bpf_answer)
    with pytest.raises(FileNotFoundError, match="no BTF of openvswitch"):
        btf_objects.of_module("openvswitch")
    assert len(given) == 2
    for descriptor in given:
        with pytest.raises(OSError):
            os.fstat(descriptor)
