"""Base classes for the parts of the state that are saved in recordings, as JSON.

The declared fields of a class that derives from :class:`Saved` are saved. Plain attributes are not saved (histories,
samples, references): :meth:`__post_init__` creates them, for new objects and for restored ones.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec


def _public(name: str) -> str:
    return name.lstrip("_")


class Saved(msgspec.Struct, dict=True, rename=_public):
    """An object with named fields, which are saved, and perhaps other attributes, which are not."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of all attributes; msgspec itself copies only the fields."""
        made = memo[id(self)] = copy.copy(self)
        for name in self.__struct_fields__:
            setattr(made, name, copy.deepcopy(getattr(self, name), memo))
        for name, value in self.__dict__.items():
            setattr(made, name, copy.deepcopy(value, memo))
        return made


class SavedValues(msgspec.Struct, array_like=True):
    """For objects of which there are many: saved as a list of fields, to keep recordings small."""


class HasKey(Protocol):
    """An object that knows its key."""

    @property
    def key(self) -> Any:
        """Its key in the dictionary."""
        ...


K = TypeVar("K")
V = TypeVar("V", bound=HasKey)


class Keyed(Generic[K, V]):
    """A dictionary of objects that know their key. It is saved as a list, because JSON keys must be strings."""

    __slots__ = ("by_key",)

    def __init__(self, values: Iterable[V] = ()) -> None:
        self.by_key: dict[K, V] = {value.key: value for value in values}


def to_json(value: Any) -> Any:
    """Encode what msgspec cannot (its ``enc_hook``)."""
    if isinstance(value, Keyed):
        return list(value.by_key.values())
    raise NotImplementedError


def from_json(kind: Any, content: Any) -> Any:
    """Decode what msgspec cannot (its ``dec_hook``). ``MOST`` of the class in the list is its longest length."""
    if get_origin(kind) is not Keyed:
        raise NotImplementedError
    values = get_args(kind)[1]
    if len(content) > values.MOST:
        raise ValueError(f"more than {values.MOST} of {values.__name__}")
    return Keyed(msgspec.convert(value, values, dec_hook=from_json) for value in content)
