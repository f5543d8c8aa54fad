"""What a kernel without kprobes and modules lacks, for tests that run programs themselves: functions, and types."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from netconsole_collector.compile.compiled import AttachTarget, Compiled
from netconsole_collector.kernel import function_hooks
from netconsole_collector.types import btf
from tests.support.btf_builder import BtfBuilder
from tests.support.live.contexts.memory import kernel_types

Functions: TypeAlias = Mapping[str, str]
"""Of a program by its name in the manifest: the function of the source that is run, of those that it may have."""

_ANYWHERE = "raw_tracepoint:sys_enter"
"""A point of every kernel. Nothing is attached to it."""
NOWHERE = "raw_tracepoint:of_no_kernel"
_MOST_PARAMETERS = 6
FUNCTION_AT = 0x7EAD
"""Where a function lies, to programs that ask (NC_FUNCTION)."""
_INSTRUCTION = struct.Struct("=BBhi")
_ASK, _ANSWER = _INSTRUCTION.pack(0x85, 0, 0, 173), _INSTRUCTION.pack(0xB7, 0, 0, FUNCTION_AT)
"""BPF_CALL of bpf_get_func_ip, which a raw tracepoint does not have, and r0 = a number (uapi/linux/bpf.h)."""


class ModuleTypes(BtfBuilder):
    """Types of a module that this kernel does not have, on top of the kernel's own."""

    def __init__(self) -> None:
        super().__init__()
        kernel = kernel_types()
        self._first, self._base_strings, self.strings = kernel._base_types, kernel._base_strings, b""

    def kernels(self, name: str) -> int:
        """The id of a structure of the kernel itself."""
        found = kernel_types().record(name)
        assert found is not None, name
        return found


Modules: TypeAlias = Mapping[str, Callable[[ModuleTypes], None]]
"""By the module's name: what makes its types."""


def types_with(modules: Modules, directory: Path) -> str:
    """Writes the modules' types beside a link to the kernel's own; the path of that."""
    directory.mkdir(mode=0o700, exist_ok=True)
    vmlinux = directory / "vmlinux"
    if not vmlinux.exists():
        vmlinux.symlink_to(btf.VMLINUX)
    for name, make in modules.items():
        types = ModuleTypes()
        make(types)
        types.write(directory / name)
    return os.fspath(vmlinux)


def hooked(spec: dict[str, Any], functions: Functions) -> dict[str, Any]:
    """The manifest in which these programs have this function alone, at a point where every kernel lets them be.

    One whose function is "" has a point that no kernel has.
    """
    return dict(spec, programs=[_hooked(one, functions) for one in spec["programs"]])


def _hooked(program: dict[str, Any], functions: Functions) -> dict[str, Any]:
    function = functions.get(program["name"])
    if function is None:
        return program
    if not function:
        return dict(program, attach=[{"point": NOWHERE, "function": program["attach"][0]["function"]}])
    points = [one["point"] for one in program["attach"] if one["function"] == function]
    point = points[0] if points[0].startswith("raw_tracepoint:") else _ANYWHERE
    # The test says which kernel it is: one that needs this program.
    needed = {key: value for key, value in program.items() if key != "unless"}
    return dict(needed, attach=[{"point": point, "function": function}])


def _answered(code: bytes) -> bytes:
    size = _INSTRUCTION.size
    words = (code[at : at + size] for at in range(0, len(code), size))
    return b"".join(_ANSWER if word == _ASK else word for word in words)


def bound(compiled: Compiled, functions: Functions) -> Compiled:
    """Their arguments come from the context, as those of fentry: it is that of a raw tracepoint."""
    codes = {
        name: _answered(function_hooks.bound(code, "fentry", _MOST_PARAMETERS)) if name in functions.values() else code
        for name, code in compiled.functions.items()
    }
    return compiled._replace(
        functions=codes, targets={**compiled.targets, _ANYWHERE: AttachTarget(0), NOWHERE: AttachTarget(0)}
    )
