"""What of the state is saved in a recording: the declared fields of the classes here, in JSON.

A class that derives from :class:`Saved` declares what is saved as fields. What is not saved (histories, samples, links
to others) are plain attributes: :meth:`__post_init__` makes them anew, for a new object and for a restored one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec


def _public(name: str) -> str:
    return name.lstrip("_")


class Saved(msgspec.Struct, dict=True, rename=_public):
    """An object of named fields, which may have attributes that are not saved."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of all attributes; msgspec by itself copies the fields alone."""
        made = memo[id(self)] = copy.copy(self)
        for name in self.__struct_fields__:
            setattr(made, name, copy.deepcopy(getattr(self, name), memo))
        for name, value in self.__dict__.items():
            setattr(made, name, copy.deepcopy(value, memo))
        return made


class SavedValues(msgspec.Struct, array_like=True):
    """One of many: a list of its fields, to keep a recording small. Every attribute is saved."""


class HasKey(Protocol):
    """Something that knows what it is found by."""

    @property
    def key(self) -> Any:
        """What it is found by."""
        ...


K = TypeVar("K")
V = TypeVar("V", bound=HasKey)


class Keyed(Generic[K, V]):
    """A dictionary of things that know their key. It is saved as a list: a key in JSON can only be a string."""

    __slots__ = ("by_key",)

    def __init__(self, values: Iterable[V] = ()) -> None:
        self.by_key: dict[K, V] = {value.key: value for value in values}


def to_json(value: Any) -> Any:
    """What msgspec cannot encode by itself (its ``enc_hook``)."""
    if isinstance(value, Keyed):
        return list(value.by_key.values())
    raise NotImplementedError


def from_json(kind: Any, content: Any) -> Any:
    """What msgspec cannot decode by itself (its ``dec_hook``). A list is bounded by ``MOST`` of what is in it."""
    if get_origin(kind) is not Keyed:
        raise NotImplementedError
    values = get_args(kind)[1]
    if len(content) > values.MOST:
        raise ValueError(f"more than {values.MOST} of {values.__name__}")
    return Keyed(msgspec.convert(value, values, dec_hook=from_json) for value in content)
