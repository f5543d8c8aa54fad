"""Checks that a kernel function has the arguments that a program expects, before the program is attached to it.

The name alone is not enough: arguments change between kernels while the name stays. The kernel's BTF has the prototype
of every function, but not of a copy that the compiler has changed (``.isra.0``, ``.constprop.0``).
"""

from typing import List, Optional, Sequence

from netconsole_collector.types import btf as b
from netconsole_collector.types.btf import Btf


def problem(btf: Btf, function: str, takes: Sequence[str]) -> Optional[str]:
    """Why a program that expects these arguments must not be attached to the function; None when it may.

    ``takes`` are the types of the first arguments as in C, without struct, union, enum and qualifiers: "sk_buff *".
    """
    found = btf.named(function, (b.FUNC,))
    if not found:
        return "the arguments of {} are not known (no such function in BTF)".format(function)
    prototypes = [arguments(btf, identifier) for identifier in found]
    wanted = list(takes)
    if any(prototype[: len(wanted)] == wanted for prototype in prototypes):
        return None
    return "{} takes ({}) here, expected ({})".format(function, ", ".join(prototypes[0]), ", ".join(wanted))


def expected(function: str, takes: Sequence[str]) -> str:
    """A function with its expected arguments, as in C."""
    return "{}({})".format(function, ", ".join(takes))


def arguments(btf: Btf, function: int) -> List[str]:
    """Types of the arguments of a function, written as in ``takes``."""
    return [type_name(btf, identifier) for identifier in btf.parameter_types(function)]


def type_name(btf: Btf, identifier: int) -> str:
    """A type in C without struct, union, enum and qualifiers. A typedef keeps its name, unless it is of a struct."""
    identifier = btf.strip(identifier, typedefs=False)
    if not identifier:
        return "void"
    kind = btf.kind(identifier)
    if kind == b.PTR:
        target = type_name(btf, btf.target(identifier))
        return target + ("*" if target.endswith("*") else " *")
    if kind == b.TYPEDEF:
        base = btf.strip(identifier)
        is_record = btf.kind(base) in (b.STRUCT, b.UNION) and btf.name(base)
        return btf.name(base) if is_record else btf.name(identifier)
    if kind == b.FUNC_PROTO:
        return "function"
    return btf.name(identifier) or "anonymous"
