"""The helpers that read kernel memory, for a kernel that is not this machine's.

BCC asks this machine's symbols whether there is bpf_probe_read_kernel (5.5), and else takes bpf_probe_read. Who has no
privileges sees no symbols. Another kernel is asked by its own types.
"""

import struct

from netconsole_collector.types import kernel_types
from netconsole_collector.types.btf import Btf

_INSTRUCTION = struct.Struct("=BBhi")
_CALL = 0x85
"""BPF_JMP | BPF_CALL; with 0 as its source register it calls a helper (include/uapi/linux/bpf.h)."""
_NEW_BY_OLD = {4: 113, 45: 115}
"""probe_read and probe_read_str: the same for kernel memory alone."""
_OLD_BY_NEW = {new: old for old, new in _NEW_BY_OLD.items()}


def for_kernel(code: bytes, types: Btf) -> bytes:
    """The code with the helpers that the kernel of these types has."""
    has_new = bool(kernel_types.facts(types, {"HAVE_BPF_FUNC_probe_read_kernel"}))
    helpers = _NEW_BY_OLD if has_new else _OLD_BY_NEW
    changed = bytearray(code)
    for offset in range(0, len(changed), _INSTRUCTION.size):
        operation, registers, jump, number = _INSTRUCTION.unpack_from(changed, offset)
        if operation == _CALL and registers == 0 and number in helpers:
            _INSTRUCTION.pack_into(changed, offset, operation, registers, jump, helpers[number])
    return bytes(changed)
