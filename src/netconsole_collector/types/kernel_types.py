"""Writes a C header with those kernel types that the source of a probe names, from BTF, in their exact layout.

Every struct is packed, with explicit padding and its real alignment. BCC compiles the program for the host's data
layout, and then retargets it to BPF. bpftool pads with runs of ``long: 64;``. They would become one wide integer that
BPF aligns in another way, and every later member would silently move. Packed structs cannot move.
docs/design/kernel-types.md has the details.
"""

from typing import Dict, List, Optional, Set, Tuple

from netconsole_collector.types import btf as b
from netconsole_collector.types import kernel_macros
from netconsole_collector.types.btf import Btf, Member
from netconsole_collector.types.same_type import Twins

_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_BUILT_IN = {"int", "char", "long", "short", "unsigned", "signed", "void", "_Bool", "bool", "float", "double"}


def header(btf: Btf, used: Set[str], taken: Set[str]) -> str:
    """The types for a source that uses these names. ``taken`` are names that are already defined.

    A name may be that of a struct, union, enum, typedef, enumerator or macro. A struct has all its members. A struct
    behind a pointer is written when the name of the pointer is used; else it is only declared.
    A struct whose name is taken is written as ``name___2``.
    """
    return TypeWriter(btf, used | {"pt_regs"}, taken).text() + kernel_macros.define(used - taken)


def facts(btf: Btf, used: Set[str]) -> str:
    """#define lines for the names of the form HAVE_…, NARGS_… and BTF_ID_… that are true on this kernel.

    HAVE_<struct>_<member>, HAVE_<enumerator>, HAVE_<struct or function>: this kernel has it.
    NARGS_<function or tracepoint>: number of arguments (of a tracepoint those of TP_PROTO).
    BTF_ID_<struct>: its id in vmlinux. There is no line for what this kernel lacks.
    """
    lines = []
    for name in sorted(used):
        if name.startswith("HAVE_") and _exists(btf, name[len("HAVE_") :]):
            lines.append("#define {} 1\n".format(name))
        elif name.startswith("NARGS_"):
            count = arguments(btf, name[len("NARGS_") :])
            if count is not None:
                lines.append("#define {} {}\n".format(name, count))
        elif name.startswith("BTF_ID_"):
            identifier = btf.vmlinux_id(name[len("BTF_ID_") :], b.STRUCT)
            if identifier:
                lines.append("#define {} {}\n".format(name, identifier))
    return "".join(lines)


def arguments(btf: Btf, name: str) -> Optional[int]:
    """Number of arguments of a kernel function or tracepoint; None when this kernel has neither."""
    for tracepoint in btf.named("btf_trace_" + name, (b.TYPEDEF,)):
        count = btf.parameters(tracepoint)
        if count is not None:
            return count - 1  # the first one is void *data, which every tracepoint has
    for function in btf.named(name, (b.FUNC,)):
        return btf.parameters(function)
    return None


def find_member(btf: Btf, record: int, name: str) -> Optional[Tuple[int, Member]]:
    """A member by name, also in anonymous structs and unions, and its bit offset from the outermost struct."""
    for member in btf.members(record):
        if member.name == name:
            return member.bit_offset, member
        if not member.name:
            inner = btf.strip(member.type)
            found = find_member(btf, inner, name) if btf.kind(inner) in (b.STRUCT, b.UNION) else None
            if found:
                return member.bit_offset + found[0], found[1]
    return None


def _exists(btf: Btf, name: str) -> bool:
    if (
        btf.enums_with({name})
        or btf.named(name, (b.STRUCT, b.UNION, b.FUNC))
        or btf.named("btf_trace_" + name, (b.TYPEDEF,))
    ):
        return True
    words = name.split("_")
    for split in range(1, len(words)):  # names of structs and of members have underscores: try every place
        record = btf.record("_".join(words[:split]))
        if record is not None and find_member(btf, record, "_".join(words[split:])):
            return True
    return False


class TypeWriter:
    """Writes one header. ``lines`` has the declarations in an order that C accepts."""

    def __init__(self, btf: Btf, used: Set[str], taken: Set[str]) -> None:
        self.btf = btf
        self.used = used
        self.taken = set(taken)
        self.lines: List[str] = []
        self._written: Set[int] = set()
        self._declared: Set[str] = set()
        self._twins = Twins(btf)
        self._tags: Dict[int, str] = {}
        self._tag_owner: Dict[str, int] = {}
        self._typedefs: Dict[str, int] = {}
        self._enumerators: Set[str] = set()
        self._pending: List[int] = []
        self._pads = 0

    def text(self) -> str:
        for name in sorted(self.used - self.taken):
            for record in self.btf.named(name, (b.STRUCT, b.UNION))[:1]:
                self._pending.append(record)
            for enum in self.btf.named(name, (b.ENUM, b.ENUM64))[:1]:
                self._enum(enum)
            if name not in _BUILT_IN:
                for typedef in self.btf.named(name, (b.TYPEDEF,))[:1]:
                    self._typedef(typedef)
        while self._pending:
            self._record(self._pending.pop())
        self._constants()
        return "\n".join(self.lines) + "\n"

    def records(self) -> List[int]:
        """Ids of the named structs and unions that were written."""
        return [identifier for identifier in self._written if self.btf.kind(identifier) in (b.STRUCT, b.UNION)]

    def tag(self, identifier: int) -> str:
        """The name of a written struct, union or enum in C, with its keyword."""
        return "{} {}".format(self._keyword(identifier), self._tag(identifier))

    # ---- names ----

    def _tag(self, identifier: int) -> str:
        """The tag of a struct, union or enum: its name, or name___2 when the name is taken."""
        known = self._tags.get(identifier)
        if known is None:
            name = self.btf.name(identifier)
            number, known = 1, name
            while known in self.taken or not self._twins.are_same(self._tag_owner.get(known, identifier), identifier):
                number += 1
                known = "{}___{}".format(name, number)
            self._tags[identifier] = known
            self._tag_owner.setdefault(known, identifier)
        return known

    def _first(self, identifier: int) -> int:
        """The one that stands for all types of this name and layout (same_type.py): BTF may have it several times."""
        return self._tag_owner[self._tag(identifier)]

    def _keyword(self, identifier: int) -> str:
        kind = self.btf.kind(identifier)
        if kind == b.FWD:
            return "union" if self.btf.is_union_forward(identifier) else "struct"
        return {b.STRUCT: "struct", b.UNION: "union"}.get(kind, "enum")

    def _declare(self, identifier: int) -> str:
        """A forward declaration. A type that is only declared in BTF has the same tag as the complete one."""
        tag = self.btf.name(identifier) if self.btf.kind(identifier) == b.FWD else self._tag(identifier)
        declaration = "{} {}".format(self._keyword(identifier), tag)
        if declaration not in self._declared:
            self._declared.add(declaration)
            self.lines.append(declaration + ";")
        return declaration

    # ---- declarations ----

    def _declaration(self, identifier: int, name: str, behind_pointer: bool = False) -> str:
        """C for "name has this type". What it needs is written first. Qualifiers are left out: probes only read."""
        btf = self.btf
        identifier = btf.strip(identifier, typedefs=False)
        kind = btf.kind(identifier)
        if identifier == 0:
            return "void " + name
        if kind == b.PTR:
            target = btf.strip(btf.target(identifier), typedefs=False)
            if target == 0 or btf.kind(btf.strip(target)) == b.FUNC_PROTO:
                return "void *" + name
            pointer = "(*{})" if btf.kind(target) == b.ARRAY else "*{}"
            return self._declaration(target, pointer.format(name), True)
        if kind == b.ARRAY:
            element, count = btf.element(identifier)
            return self._declaration(element, "{}[{}]".format(name, count), behind_pointer)
        if kind == b.TYPEDEF:
            return self._typedef_use(identifier, name, behind_pointer)
        if kind in (b.STRUCT, b.UNION):
            return self._record_use(identifier, name, behind_pointer)
        if kind == b.FWD:
            return "{} {}".format(self._declare(identifier), name)
        if kind in (b.ENUM, b.ENUM64):
            if btf.name(identifier) and btf.name(identifier) not in self.taken:
                return "enum {} {}".format(self._enum(identifier), name)
            return "{} {}".format(_UNSIGNED[btf.size(identifier)], name)
        if kind in (b.INT, b.FLOAT):
            return "{} {}".format(btf.name(identifier), name)
        return "char " + name

    def _record_use(self, identifier: int, name: str, behind_pointer: bool) -> str:
        # A member without a name whose struct has one (-fms-extensions, kernel 6.19): plain C needs the struct unnamed.
        if not name or not self.btf.name(identifier):
            return "{} {} {}".format(self._keyword(identifier), self._body(identifier), name)
        if behind_pointer:
            return "{} {}".format(self._declare(identifier), name)
        self._record(identifier)
        return "{} {} {}".format(self._keyword(identifier), self._tag(identifier), name)

    def _typedef_use(self, identifier: int, name: str, behind_pointer: bool) -> str:
        btf = self.btf
        own_name, base = btf.name(identifier), btf.strip(identifier)
        if own_name in _BUILT_IN or own_name in self.taken:
            return self._declaration(btf.target(identifier), name, behind_pointer)
        if behind_pointer and btf.kind(base) == b.FUNC_PROTO:
            return "void *" + name
        if behind_pointer and btf.kind(base) in (b.STRUCT, b.UNION) and btf.name(base):
            return self._declaration(base, name, True)
        if self._typedefs.get(own_name, identifier) != identifier:  # two typedefs of one name: the first keeps it
            return self._declaration(btf.target(identifier), name, behind_pointer)
        self._typedef(identifier)
        return "{} {}".format(own_name, name)

    def _typedef(self, identifier: int) -> None:
        name = self.btf.name(identifier)
        if name not in self._typedefs:
            self._typedefs[name] = identifier
            self.lines.append("typedef {};".format(self._declaration(self.btf.target(identifier), name)))

    def _enum(self, identifier: int) -> str:
        """Writes an enum once, with the enumerators that the source uses. Returns its tag."""
        tag, identifier = self._tag(identifier), self._first(identifier)
        if identifier not in self._written:
            self._written.add(identifier)
            size = self.btf.size(identifier)
            chosen = [(n, v) for n, v in self.btf.enumerators(identifier) if self._wants_enumerator(n)]
            self._enumerators.update(name for name, _ in chosen)
            if size == 8:  # an enum as wide as its widest value
                chosen.append(("__{}_wide".format(tag), 1 << 40))
            body = ", ".join("{} = {}".format(n, v) for n, v in chosen) or "__{}_none".format(tag)
            packed = " __attribute__((packed))" if size < 4 else ""
            self.lines.append("enum {} {{ {} }}{};".format(tag, body, packed))
        return tag

    def _wants_enumerator(self, name: str) -> bool:
        """Enumerators in lower case are left out: a variable of the source may have that name."""
        return name in self.used and name == name.upper() and name not in self.taken and name not in self._enumerators

    def _constants(self) -> None:
        """Enumerators of enums that nothing above needed: IPPROTO_*, TCP_*, SKB_DROP_REASON_*."""
        wanted = {name for name in self.used if self._wants_enumerator(name)}
        for enum in self.btf.enums_with(wanted):
            for name, value in self.btf.enumerators(enum):
                if name in wanted and name not in self._enumerators:
                    self._enumerators.add(name)
                    self.lines.append("#define {} {}{}".format(name, value, "" if abs(value) < 1 << 31 else "LL"))
        self.lines.append(kernel_macros.define_missing_enumerators(wanted - self._enumerators))

    # ---- structs and unions ----

    def _record(self, identifier: int) -> None:
        """Writes a named struct or union with all its members, after those it contains."""
        if not self.btf.name(identifier):
            return
        identifier = self._first(identifier)
        if identifier in self._written:
            return
        self._written.add(identifier)
        body = self._body(identifier)
        self.lines.append("{} {} {};".format(self._keyword(identifier), self._tag(identifier), body))

    def _body(self, identifier: int) -> str:
        members = self.btf.members(identifier)
        for member in members:
            self._follow(member)
        size = self.btf.size(identifier)
        fields = self._union(members, size) if self.btf.kind(identifier) == b.UNION else self._struct(members, size)
        return "{{ {} }} __attribute__((packed, aligned({})))".format(" ".join(fields), self.btf.alignment(identifier))

    def _follow(self, member: Member) -> None:
        """The struct behind a pointer is written when the source uses the name of the pointer."""
        target = self.btf.strip(member.type)
        while self.btf.kind(target) in (b.ARRAY, b.PTR):
            is_array = self.btf.kind(target) == b.ARRAY
            target = self.btf.strip(self.btf.element(target)[0] if is_array else self.btf.target(target))
        if member.name in self.used and self.btf.kind(target) in (b.STRUCT, b.UNION) and self.btf.name(target):
            self._pending.append(target)

    def _union(self, members: List[Member], size: int) -> List[str]:
        fields = []
        for member in members:
            if member.bits:
                fields.append("{} {}:{};".format(self._bit_type(member), member.name, member.bits))
            else:
                fields.append(self._declaration(member.type, member.name) + ";")
        return fields + self._pad(size * 8)

    def _struct(self, members: List[Member], size: int) -> List[str]:
        fields: List[str] = []
        at = 0
        for member in members:
            if member.bit_offset < at:  # a flexible array inside, or an overlap that C does not have
                continue
            if not member.bits and at % 8:
                fields.append("unsigned char :{};".format(8 - at % 8))
                at += 8 - at % 8
            fields.extend(self._gap(at, member.bit_offset))
            if member.bits:
                fields.append("{} {}:{};".format(self._bit_type(member), member.name, member.bits))
                at = member.bit_offset + member.bits
            else:
                fields.append(self._declaration(member.type, member.name) + ";")
                at = member.bit_offset + self.btf.size(member.type) * 8
        return fields + self._gap(at, size * 8)

    def _gap(self, at: int, until: int) -> List[str]:
        """Padding from one bit to another: bits up to a byte, then bytes, then bits again."""
        fields = []
        if until > at and at % 8:
            bits = min(until - at, 8 - at % 8)
            fields.append("unsigned char :{};".format(bits))
            at += bits
        if until - at >= 8:
            fields += self._pad((until - at) // 8 * 8)
            at += (until - at) // 8 * 8
        if until > at:
            fields.append("unsigned char :{};".format(until - at))
        return fields

    def _pad(self, bits: int) -> List[str]:
        if not bits:
            return []
        self._pads += 1  # one number each: the members of anonymous structs share the names of the struct around them
        return ["char __pad{}[{}];".format(self._pads, bits // 8)]

    def _bit_type(self, member: Member) -> str:
        return _UNSIGNED[self.btf.size(member.type)]
