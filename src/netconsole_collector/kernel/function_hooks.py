"""Programs on functions of the kernel: fentry and fexit where the kernel lets them be, else kprobes and kretprobes.

A manifest says "entry:FUNCTION" or "return:FUNCTION". The source is compiled once for both kinds. It gets arguments,
result and address of the function by calls of numbers that no helper has (probes/common/kernel_memory.h). Here each of
these calls becomes what it is in the kind that is loaded: one instruction that loads from the program's context, or a
call of a helper.
"""

import struct
from typing import NamedTuple, Tuple

from netconsole_collector.kernel.attach import BY_KPROBE, TYPED, CannotAttach
from netconsole_collector.kernel.syscalls import MACHINE

_INSTRUCTION = struct.Struct("=BBhi")
_CALL = 0x85
_LOAD_FROM_CONTEXT = (0x79, 0x10)
"""r0 = *(u64 *)(r1 + offset): BPF_LDX | BPF_MEM | BPF_DW; r1 is the only argument of these calls."""
_GET_FUNC_IP = 173
"""The helper bpf_get_func_ip (5.15)."""
_PARAMETER, _RESULT, _ADDRESS = 0x7FFFFFE0, 0x7FFFFFE6, 0x7FFFFFE7
_WORD = 8


class _Registers(NamedTuple):
    """Where a struct pt_regs has them (include/asm/ptrace.h): offsets in bytes."""

    parameters: Tuple[int, ...]
    result: int
    address: int


_REGISTERS = {
    "x86_64": _Registers((112, 104, 96, 88, 72, 64), 80, 128),  # di, si, dx, cx, r8, r9; ax; ip
    "aarch64": _Registers((0, 8, 16, 24, 32, 40), 0, 256),  # regs[0] to regs[5]; regs[0]; pc
    "ppc64le": _Registers((24, 32, 40, 48, 56, 64), 24, 256),  # gpr[3] to gpr[8]; gpr[3]; nip
    "s390x": _Registers((40, 48, 56, 64, 72), 40, 16),  # gprs[2] to gprs[6]; gprs[2]; psw.addr
}


def bound(code: bytes, kind: str, parameters: int) -> bytes:
    """The code for a program of this kind. ``parameters``: how many the function has. Raises CannotAttach."""
    if kind not in TYPED + BY_KPROBE:
        return code
    changed = bytearray(code)
    for offset in range(0, len(changed), _INSTRUCTION.size):
        operation, registers, _, number = _INSTRUCTION.unpack_from(changed, offset)
        if operation == _CALL and registers == 0 and _PARAMETER <= number <= _ADDRESS:
            _INSTRUCTION.pack_into(changed, offset, *_instruction(kind, number, parameters))
    return bytes(changed)


def _instruction(kind: str, number: int, parameters: int) -> Tuple[int, int, int, int]:
    if kind in TYPED and number == _ADDRESS:
        return (_CALL, 0, 0, _GET_FUNC_IP)
    if kind == "kretprobe" and number < _RESULT:
        raise CannotAttach("a kretprobe does not have the arguments of its function")
    # The context of fentry is an array of the arguments; behind them fexit has the result.
    place = (parameters if number == _RESULT else number - _PARAMETER) * _WORD if kind in TYPED else _register(number)
    return (*_LOAD_FROM_CONTEXT, place, 0)


def _register(number: int) -> int:
    registers = _REGISTERS.get(MACHINE)
    if registers is None:
        raise CannotAttach("arguments of functions are not known on {}".format(MACHINE))
    if number == _ADDRESS:
        return registers.address
    if number == _RESULT:
        return registers.result
    if number - _PARAMETER >= len(registers.parameters):
        raise CannotAttach("{} passes this argument on the stack".format(MACHINE))
    return registers.parameters[number - _PARAMETER]
