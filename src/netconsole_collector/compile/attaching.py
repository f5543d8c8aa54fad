"""Loads one compiled program and attaches it to one point."""

import os
import re
from typing import Any, Callable, Dict, Optional, Tuple

from netconsole_collector.compile.compiled import AttachTarget, Compiled
from netconsole_collector.kernel import attach, btf_objects, function_hooks, loading
from netconsole_collector.types import header_tree, prototypes

Json = Dict[str, Any]
_NO_BTF = "this kernel has no types of its own (BTF), and fentry and fexit need them"
_NO_MODULE_BTF = "this kernel has no types (BTF) of {}, and fentry and fexit need them"


def attached_at(
    compiled: Compiled,
    codes: Dict[str, bytes],
    alternative: Json,
    point: attach.Point,
    direct: bool,
    attach_function: Callable[[attach.Point, int], int],
) -> Tuple[int, int]:
    """Descriptors of the program and of its attachment. Raises attach.CannotAttach and loading.LoadRefused.

    ``attach_function`` attaches fentry and fexit programs.
    """
    function, target = alternative["function"], compiled.targets[alternative["point"]]
    when = alternative.get("when")
    if when and when not in compiled.facts:
        raise attach.CannotAttach("this kernel has no {}".format(re.sub(r"^(HAVE|NARGS)_", "", when)))
    attach.check(point)
    misfit = compiled.misfits.get(prototypes.expected(point.name, alternative.get("takes", [])))
    if misfit:
        raise attach.CannotAttach(misfit)
    if function not in codes:
        raise attach.CannotAttach("the program {} is not compiled for this kernel".format(function))
    typed = direct or point.kind in attach.TYPED
    if typed and compiled.types != "btf":
        raise attach.CannotAttach(_NO_BTF)
    if typed and not target.id:
        raise attach.CannotAttach("the kernel's types (BTF) do not have {}".format(point.name))
    code = function_hooks.bound(codes[function], point.kind, target.parameters)
    program = _load_program(function, code, point.kind, target if typed else None, compiled.rdonly_cast)
    try:
        if point.kind in attach.TYPED:
            return program, attach_function(point, program)
        return program, attach.attach(point, program, typed)
    except attach.CannotAttach:
        os.close(program)
        raise


def _load_program(function: str, code: bytes, kind: str, target: Optional[AttachTarget], rdonly_cast: int) -> int:
    """The program's descriptor. With a ``target`` it is BTF-typed. Raises CannotAttach and loading.LoadRefused."""
    if rdonly_cast:
        code = loading.link(code, {loading.RDONLY_CAST: rdonly_cast})
    if target is None:
        plain = {"raw_tracepoint": loading.RAW_TRACEPOINT, "tracepoint": loading.TRACEPOINT, "xdp": loading.XDP}
        version = header_tree.version_code(os.uname().release)
        return loading.load(function, code, plain.get(kind, loading.KPROBE), version=version)
    typed = {"fentry": loading.TRACE_FENTRY, "fexit": loading.TRACE_FEXIT}
    attach_type = typed.get(kind, loading.TRACE_RAW_TP)
    if not target.module:
        return loading.load(function, code, loading.TRACING, attach_type, target.id)
    try:
        module_btf = btf_objects.of_module(target.module)
    except FileNotFoundError:
        raise attach.CannotAttach(_NO_MODULE_BTF.format(target.module)) from None
    except OSError as error:
        raise loading.LoadRefused(
            "the types (BTF) of {} cannot be read: {}".format(target.module, error.strerror)
        ) from None
    try:
        return loading.load(function, code, loading.TRACING, attach_type, target.id, module_btf=module_btf)
    finally:
        os.close(module_btf)
