"""Tells whether two types of BTF are the same: BTF may have one type several times.

pahole makes one of equal types, but not where it is in doubt: a struct that one source file sees whole and another one
only declared, or the types of several modules on top of vmlinux's. In C each name can be declared only once, and
pointers to two structs of one name do not fit each other. Only what is equal in every member may share a name: else a
member would be read at the offset of another.
"""

import os
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from netconsole_collector.types import btf as b
from netconsole_collector.types.btf import Btf

_RECORDS = (b.STRUCT, b.UNION, b.FWD)
_MAX_COMPARED = 100000
"""Pairs of types. A kernel needs some thousand; hostile types must not take long. What is in doubt is not the same."""


def refuse_doubled(btf: Btf, names: Iterable[str], files: Sequence[str]) -> None:
    """Raises BtfError if structs or unions of one of these names have not one layout: which of them is meant?

    ``files`` are those that the types were read from.

    What is behind their pointers may differ. That often is one type that pahole has not made one (kernel 5.10), and a
    struct that is read there is that of the first pointer.
    """
    twins = Twins(btf, behind_pointers=False)
    for name in sorted(names):
        found = btf.named(name, (b.STRUCT, b.UNION))
        if any(not twins.are_same(found[0], other) for other in found[1:]):
            places = {btf.own_id(one)[1]: None for one in found}  # in the order of the files
            where = ", ".join(os.path.basename(files[place]) for place in places)
            raise b.BtfError(
                "{} is there several times, with different members, in the types of {}".format(name, where)
            )


class Twins:
    """The types of one BTF that are known to be the same."""

    def __init__(self, btf: Btf, behind_pointers: bool = True) -> None:
        """``behind_pointers``: whether the types that pointers point to have to be the same, too."""
        self._btf = btf
        self._behind_pointers = behind_pointers
        self._stands_for: Dict[int, int] = {}

    def are_same(self, one: int, other: int) -> bool:
        """Whether they have one layout.

        What is only declared is the same as any of its name.
        """
        compared: Dict[int, int] = {}
        waiting = [(one, other)]
        while waiting:
            left, right = (
                self._one(self._one(self._btf.strip(end), self._stands_for), compared) for end in waiting.pop()
            )
            if left == right:
                continue
            parts = self._parts(left, right)
            if parts is None or len(compared) >= _MAX_COMPARED:
                return False
            if b.FWD not in (self._btf.kind(left), self._btf.kind(right)):  # two that differ may have one declaration
                compared[left] = right  # if it turns out wrong, all of it does
            waiting += parts
        self._stands_for.update(compared)
        return True

    @staticmethod
    def _one(identifier: int, known: Dict[int, int]) -> int:
        """The type that stands for this one."""
        found = identifier
        while found in known:
            found = known[found]
        if found != identifier:
            known[identifier] = found  # chains stay short
        return found

    def _parts(self, left: int, right: int) -> Optional[List[Tuple[int, int]]]:
        """The pairs of types that have to be the same as well. None: the two differ in themselves."""
        btf = self._btf
        kind, its_kind = btf.kind(left), btf.kind(right)
        if btf.name(left) != btf.name(right):
            return None
        if b.FWD in (kind, its_kind):
            return [] if kind in _RECORDS and its_kind in _RECORDS else None
        if kind != its_kind or btf.size(left) != btf.size(right):
            return None
        if kind == b.PTR:
            return [(btf.target(left), btf.target(right))] if self._behind_pointers else []
        if kind == b.ARRAY:
            (element, count), (its_element, its_count) = btf.element(left), btf.element(right)
            return [(element, its_element)] if count == its_count else None
        if kind in (b.ENUM, b.ENUM64):
            return [] if btf.enumerators(left) == btf.enumerators(right) else None
        if kind in (b.STRUCT, b.UNION):
            members, its_members = btf.members(left), btf.members(right)
            if [one._replace(type=0) for one in members] != [its._replace(type=0) for its in its_members]:
                return None
            return [(one.type, its.type) for one, its in zip(members, its_members)]
        return []
