"""Loads a compiled program into the kernel. When the kernel refuses it, the reason is the verifier's own sentence.

BCC only compiles: it cannot load BTF-typed raw tracepoints, and its errors go to the terminal. A BTF-typed program
reads a member of a kernel structure with one instruction. Other programs have to call a helper.
"""

import ctypes
import errno
import os
import re
import struct
from typing import Mapping, Optional, Tuple

from netconsole_collector.kernel import syscalls

KPROBE, TRACEPOINT, XDP, RAW_TRACEPOINT, TRACING = 2, 5, 6, 17, 26
"""enum bpf_prog_type."""
TRACE_RAW_TP, TRACE_FENTRY, TRACE_FEXIT = 23, 24, 25
"""enum bpf_attach_type, of TRACING programs."""

_PROG_LOAD = 5
_INSTRUCTION = struct.Struct("=BBhi")
"""struct bpf_insn on little-endian machines: operation, source << 4 | target register, offset, immediate."""
_INSTRUCTION_BYTES = 8
_CALL, _KERNEL_FUNCTION = 0x85, 2
RDONLY_CAST = 0x7FFFFFF0
"""The number that probes/common/kernel_memory.h gives to bpf_rdonly_cast."""
_NAME_BYTES = 16
_LOG_BYTES = (1 << 20, 1 << 24)
"""The reason is at the end of the log. A log that does not fit is asked for once more, with more room."""
KEPT_LOG = 16384
"""Characters of its end that are passed on. Whole logs of some probes would be more than a document may have."""
_STATISTICS = re.compile(
    r"processed \d|verification time|stack depth|peak_states|max_states_per|BPF program is too large"
)
_TRACE = re.compile(r"\d+: |from \d+ to|R\d+\w*=|; |func#|last_idx|regs=|parent |mark_precise|caller|frame\d|arg#\d")


class LoadRefused(Exception):
    """The kernel refused a program. The message is one sentence. ``log`` is the end of what the verifier said."""

    def __init__(self, why: str, log: str = "") -> None:
        super().__init__(why)
        self.log = log


def load(
    name: str,
    code: bytes,
    kind: int,
    attach_type: int = 0,
    attach_btf_id: int = 0,
    version: int = 0,
    module_btf: int = 0,
) -> int:
    """The descriptor of the program. ``version`` is LINUX_VERSION_CODE, needed before 5.0. Raises LoadRefused.

    ``module_btf`` is a descriptor of the BTF that has ``attach_btf_id``; 0: that of vmlinux.
    """
    target = (attach_type, attach_btf_id, module_btf)
    try:
        return _load(name, code, kind, target, version, None)
    except OSError as error:
        first = error
    log = None
    for size in _LOG_BYTES:
        log = ctypes.create_string_buffer(size)
        try:
            return _load(name, code, kind, target, version, log)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                break
    text = log.value.decode("utf-8", "backslashreplace") if log else ""
    raise LoadRefused("the kernel refused the program: {}".format(_reason(text, first)), text[-KEPT_LOG:])


def link(code: bytes, functions: Mapping[int, int]) -> bytes:
    """The code, with its calls of these numbers made calls of kernel functions (number → BTF id).

    BCC knows only calls of helpers, and no helper has such a number. A call of a kernel function differs in its source
    register (BPF_PSEUDO_KFUNC_CALL).
    """
    linked = bytearray(code)
    for offset in range(0, len(linked), _INSTRUCTION_BYTES):
        operation, registers, _, number = _INSTRUCTION.unpack_from(linked, offset)
        if operation == _CALL and registers >> 4 == 0 and number in functions:
            _INSTRUCTION.pack_into(linked, offset, operation, _KERNEL_FUNCTION << 4, 0, functions[number])
    return bytes(linked)


def _load(
    name: str,
    code: bytes,
    kind: int,
    target: Tuple[int, int, int],
    version: int,
    log: Optional["ctypes.Array[ctypes.c_char]"],
) -> int:
    attach_type, btf_id, module_btf = target
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQIIQII16sIIIIQIIQIII",
        kind,
        len(code) // _INSTRUCTION_BYTES,
        ctypes.addressof(instructions),
        ctypes.addressof(licence),
        1 if log else 0,
        len(log) if log else 0,
        ctypes.addressof(log) if log else 0,
        version,
        0,  # flags
        re.sub(r"\W", "_", name).encode()[: _NAME_BYTES - 1],
        0,  # ifindex
        attach_type,
        *(0, 0, 0, 0, 0, 0, 0),  # the program's own BTF: for debuggers, not needed to load
        btf_id,
        module_btf,
    )
    return syscalls.bpf(_PROG_LOAD, attributes)


def _reason(log: str, error: OSError) -> str:
    """The verifier's last sentence, or what the errno means."""
    lines = [line.strip() for line in log.splitlines()]
    words = [line for line in lines if line and not _STATISTICS.match(line) and not _TRACE.match(line)]
    if words:
        return words[-1]
    if error.errno == errno.EPERM:
        return "no permission (CAP_BPF and CAP_PERFMON, or root; lockdown mode)"
    return os.strerror(error.errno or 0)
