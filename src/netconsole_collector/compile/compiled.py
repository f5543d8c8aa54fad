"""The result of a compile: the code of the programs, their maps, and facts from the kernel's types."""

import base64
import json
import struct
from typing import Any, Dict, List, Mapping, NamedTuple

from netconsole_collector.kernel import attach, bpf_maps

_INSTRUCTION = struct.Struct("=BBhi")
_LOAD_64, _MAP = 0x18, 1
"""BPF_LD | BPF_IMM | BPF_DW, and BPF_PSEUDO_MAP_FD as its source register (include/uapi/linux/bpf.h)."""


CAST, DIRECT, PLAIN = "cast", "direct", "plain"
"""How programs read kernel structures (probes/common/kernel_memory.h): by loads from any address, once they have said
what it points to (bpf_rdonly_cast, 6.2); by loads through the pointers that BTF-typed raw tracepoints get; by a helper.
"""


class AttachTarget(NamedTuple):
    """What a BTF-typed program is loaded for: a tracepoint, or a function."""

    id: int
    """In the kernel's numbering; 0: its BTF does not have it."""
    module: str = ""
    """The module whose BTF has it; empty: vmlinux."""
    parameters: int = 0
    """How many a function has."""


class Compiled(NamedTuple):
    """It holds no descriptor, so it can be kept in a file."""

    functions: Dict[str, bytes]
    """Code by name. In the code, a map is the number of its place in ``maps``."""
    maps: Dict[str, bpf_maps.MapInfo]
    """Kind and size of each map, by its name in the source. The name in the kernel is cut to 15 bytes."""
    facts: Dict[str, int]
    """HAVE_… and NARGS_… that are true on this kernel (docs/design/kernel-types.md)."""
    drop_reasons: Dict[str, str]
    types: str
    """Where the kernel's types came from: btf, made (copied_types.py) or headers."""
    way: str
    """CAST, DIRECT or PLAIN. With DIRECT, raw tracepoints are BTF-typed."""
    targets: Dict[str, AttachTarget]
    """By the attach point, as the manifest has it."""
    misfits: Dict[str, str]
    """What a program expects of a function (prototypes.expected) → why the function is not that."""
    rdonly_cast: int
    """BTF id of the kernel function bpf_rdonly_cast. 0: this kernel has none."""


def first_choice(entry: Mapping[str, Any], facts: Mapping[str, int]) -> Dict[str, Any]:
    """The first alternative of a program that this kernel has what it needs for (``when``); of none: the last one."""
    there: List[Dict[str, Any]] = [one for one in entry["attach"] if "when" not in one or one["when"] in facts]
    return (there or entry["attach"][-1:])[0]


def can_be_typed(entry: Mapping[str, Any], targets: Mapping[str, AttachTarget], facts: Mapping[str, int]) -> bool:
    """Whether the first choice of a program allows a BTF-typed raw tracepoint."""
    point = first_choice(entry, facts)["point"]
    return attach.parse(point).kind == "raw_tracepoint" and targets[point].id != 0


def is_needless(entry: Mapping[str, Any], facts: Mapping[str, int]) -> bool:
    """Whether a program is left out because this kernel has what the manifest says (``unless``)."""
    return entry.get("unless") in facts


def make_maps(compiled: Compiled) -> Dict[str, int]:
    """Makes the maps. Returns their descriptors by name, in the same order. Raises OSError."""
    return {name: bpf_maps.create_map(like) for name, like in compiled.maps.items()}


def with_maps(code: bytes, numbers: Mapping[int, int]) -> bytes:
    """The code with other numbers for its maps: places for descriptors, or descriptors for places.

    Raises KeyError for a map that has no number.
    """
    changed = bytearray(code)
    for offset in range(0, len(changed), _INSTRUCTION.size):
        operation, registers, jump, number = _INSTRUCTION.unpack_from(changed, offset)
        if operation == _LOAD_64 and registers >> 4 == _MAP:
            _INSTRUCTION.pack_into(changed, offset, operation, registers, jump, numbers[number])
    return bytes(changed)


def encode(compiled: Compiled) -> bytes:
    """As JSON, for :func:`decode`."""
    document: Dict[str, Any] = compiled._asdict()
    document["functions"] = {name: base64.b64encode(code).decode() for name, code in compiled.functions.items()}
    return json.dumps(document).encode()


def decode(text: bytes) -> Compiled:
    """Raises ValueError, KeyError or TypeError for a text that encode() has not written."""
    document = json.loads(text.decode())
    document["functions"] = {name: base64.b64decode(code) for name, code in document["functions"].items()}
    document["maps"] = {name: bpf_maps.MapInfo(*fields) for name, fields in document["maps"].items()}
    document["targets"] = {point: AttachTarget(*fields) for point, fields in document["targets"].items()}
    return Compiled(**document)
