"""Decodes keys, values and records by the layouts of a manifest, into labels, counts and fields."""

import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from netconsole_collector.kernel.syscalls import c_string
from netconsole_collector.names.implied_labels import BROUGHT
from netconsole_collector.names.labels import Label, Labeller

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "s32": "i", "s64": "q"}
_ARRAY = re.compile(r"(char|pad)\[(\d{1,4})\]")
_ADDRESS_BYTES = 16
_ADDRESS_ALIGNMENT = 8
"""An address is u64[2] in the common header."""


class LayoutError(ValueError):
    """The manifest and the program do not agree on a record. The message names both sizes."""


class RecordColumn(NamedTuple):
    """One member of a record. It is a list when ``repeat`` is above 1."""

    name: str
    shown_as: Optional[str]
    repeat: int
    kind: str
    """"sum" or "max", of a value."""


class Layout:
    """A C struct: the members in order, each at its natural alignment, and padding at the end."""

    def __init__(self, columns: Sequence[Dict[str, Any]]) -> None:
        """Raises LayoutError for an unknown type."""
        self.columns: List[RecordColumn] = []
        form, at, strictest = "=", 0, 1
        for column in columns:
            name, count = column.get("name", ""), column.get("count", 1)
            code, size, alignment = _type(column.get("type", "u64"), name)
            padding = -at % alignment
            form += "x" * padding + (code if count == 1 else code * count)
            at += padding + size * count
            strictest = max(strictest, alignment)
            if not code.endswith("x"):
                self.columns.append(RecordColumn(name, column.get("as"), count, column.get("kind", "sum")))
        form += "x" * (-at % strictest)
        self._struct = struct.Struct(form)
        self.size = self._struct.size
        is_plain = "s" not in form and all(column.repeat == 1 for column in self.columns)
        self.numbers: Optional[str] = form[1:] if is_plain else None
        """Its struct codes, where each column is one number."""

    def unpack(self, raw: bytes, offset: int = 0) -> List[Any]:
        """Values in the order of ``columns``. A column with several values has a list."""
        flat = self._struct.unpack_from(raw, offset)
        if len(flat) == len(self.columns):
            return list(flat)
        values: List[Any] = []
        at = 0
        for column in self.columns:
            several = list(flat[at : at + column.repeat])
            values.append(several if column.repeat > 1 else several[0])
            at += column.repeat
        return values

    def check(self, size: int, what: str) -> None:
        """Raises LayoutError unless the kernel's record has this layout's size."""
        if self.size != size:
            raise LayoutError("{}: {} bytes in the manifest, {} in the program".format(what, self.size, size))


def _type(name: str, column: str) -> Tuple[str, int, int]:
    """struct code, bytes, alignment."""
    if name in _CODES:
        size = struct.calcsize("=" + _CODES[name])
        return _CODES[name], size, size
    if name == "addr":
        return "16s", _ADDRESS_BYTES, _ADDRESS_ALIGNMENT
    match = _ARRAY.fullmatch(name)
    if match:
        return match.group(2) + ("s" if match.group(1) == "char" else "x"), int(match.group(2)), 1
    raise LayoutError("column {}: unknown type {!r}".format(column, name))


def key_labels(columns: Sequence[RecordColumn], values: Sequence[Any], labels: Labeller) -> Dict[str, Label]:
    """The labels of a key. A drop reason brings its class and provenance, a tap the virtual machine that has it."""
    result: Dict[str, Label] = {}
    for column, value in zip(columns, values):
        if column.shown_as == "drop_reason":
            described = labels.drop_reasons.labels(value, _location(columns, values, labels))
            result[column.name] = described["reason"]
            result.update({name: described[name] for name in BROUGHT["drop_reason"]})
        elif column.shown_as == "tap":
            device = result[column.name] = c_string(value)
            [vm] = BROUGHT["tap"]
            result[vm] = labels.lookups.vms.of_tap(device, _netns(columns, values))
        else:
            result[column.name] = labels.label(column.shown_as, value)
    return result


def event_fields(columns: Sequence[RecordColumn], values: Sequence[Any], labels: Labeller) -> Dict[str, Any]:
    """The fields of an event: labels, and stacks as lists of text."""
    stacks = {c.name: labels.stack(v) for c, v in zip(columns, values) if c.shown_as == "stack"}
    plain = [(c, v) for c, v in zip(columns, values) if c.shown_as != "stack"]
    result: Dict[str, Any] = key_labels([c for c, _ in plain], [v for _, v in plain], labels)
    for column, value in plain:
        if isinstance(value, list):
            result[column.name] = [str(labels.label(column.shown_as, one)) for one in value]
        if column.shown_as == "packet" and not result[column.name]:
            del result[column.name]
    result.update(stacks)
    return result


def _location(columns: Sequence[RecordColumn], values: Sequence[Any], labels: Labeller) -> Optional[str]:
    """Where it happened: the first symbol of the record."""
    for column, value in zip(columns, values):
        if column.shown_as == "symbol":
            return labels.lookups.symbols.function(value)
    return None


def _netns(columns: Sequence[RecordColumn], values: Sequence[Any]) -> int:
    """The network namespace of the record; 0 when it has none."""
    return next((int(value) for column, value in zip(columns, values) if column.shown_as == "netns"), 0)
