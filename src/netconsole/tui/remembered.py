"""What the user has chosen of tables, kept for the next time: columns, order, pinned rows. One small file.

It may be absent or broken: then nothing is remembered, and the next choice writes it anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta

from netconsole.base import figure, paths
from netconsole.base.errors import BadInput
from netconsole.base.files import write_whole
from netconsole.base.readers import read_bytes
from netconsole.tui.panes.drops.places import DropPlaceKey
from netconsole.tui.scene.scene import Subject

MOST_BYTES = 256 * 1024
MOST_PINNED = 200
"""Rows of a table that are kept on top the next time, the newest: many never come again."""
Kept = Annotated[str, Meta(max_length=256)]


class PinnedRow(msgspec.Struct, frozen=True):
    """A row, as its table knows it."""

    probe: Kept
    kind: Literal["table", "histogram", "probe", "direction", "place"]
    name: Kept
    key: Annotated[tuple[tuple[Kept, Kept | int | None], ...], Meta(max_length=64)]


class TableChoice(msgspec.Struct):
    """Of one table: columns by name (True: shown), the column it is sorted by, and rows that stand first."""

    columns: Annotated[dict[Kept, bool], Meta(max_length=128)] = {}
    sort: Kept | None = None
    reverse: bool = False
    pinned: Annotated[list[PinnedRow], Meta(max_length=MOST_PINNED)] = []


class Choices(msgspec.Struct):
    """The file."""

    schema: Literal["netconsole.choices/1"] = "netconsole.choices/1"
    tables: Annotated[dict[Kept, TableChoice], Meta(max_length=500)] = {}


class Remembered:
    """The choices of one user. Panes share it; each change is written at once."""

    def __init__(self, path: Path | None) -> None:
        """``path``: None keeps them until the console ends."""
        self._path = path
        self._choices = Choices()
        if path is not None and path.is_file():
            # A broken one says nothing that could be lost: the next choice writes it anew.
            with contextlib.suppress(BadInput, msgspec.MsgspecError, RecursionError):
                self._choices = msgspec.json.decode(read_bytes(path, MOST_BYTES), type=Choices)

    def of(self, table: str) -> TableChoice:
        """The choice for a table. Change it, then call :meth:`keep`."""
        return self._choices.tables.setdefault(table, TableChoice())

    def keep(self) -> str:
        """Writes the file. Returns why it could not; empty: it is kept."""
        if self._path is None:
            return ""
        kept = {name: one for name, one in self._choices.tables.items() if one != TableChoice()}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(Choices(tables=kept)), indent=1))
        except OSError as error:
            return f"not remembered: {figure.safe(self._path.parent)}: {(error.strerror or str(error)).lower()}"
        except BadInput as error:
            return f"not remembered: {error}"
        return ""


def file_of_user() -> Path:
    """Where they are kept: $XDG_STATE_HOME/netconsole/choices.json."""
    return paths.user_state() / "choices.json"


def pinned(keys: Sequence[Hashable]) -> list[PinnedRow]:
    """The rows that are kept on top the next time.

    Not those that never come again (samples, incidents), and not those whose names the file has no room for.
    """
    found = []
    for key in keys:
        row = key._asdict() if isinstance(key, Subject) else {}
        if isinstance(key, DropPlaceKey):
            names = zip(("stage", "at", "cause"), key.name, strict=True)
            row = {"probe": "", "kind": "place", "name": "", "key": tuple(names)}
        with contextlib.suppress(msgspec.ValidationError):
            found.append(msgspec.convert(row, PinnedRow))
    return found[-MOST_PINNED:]


def key_of(row: PinnedRow) -> Hashable:
    """What its table knows the row by."""
    if row.kind == "place":
        name = cast(tuple[str, str, str], tuple(value for _, value in row.key))
        return DropPlaceKey(name, Subject("", "table", "", ()))
    return Subject(row.probe, row.kind, row.name, row.key)
