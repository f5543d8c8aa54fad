"""Reads JSON documents of a schema from untrusted files. Every failure is a BadInput of one line, with file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.base.readers import read_bytes


class HasSchema(Protocol):
    """A document that says what it is."""

    @property
    def schema(self) -> str: ...


D = TypeVar("D", bound=HasSchema)


class DocumentKind(Generic[D]):
    """One kind of document. ``name`` is what messages call it, such as "snapshot"."""

    def __init__(self, type: type[D], schema: str, name: str, max_bytes: int) -> None:
        self._decoder = msgspec.json.Decoder(type)
        self._schema = schema
        self._name = name
        self._max_bytes = max_bytes

    def load(self, path: Path) -> D:
        """The document in an untrusted file. Raises only BadInput, in one line."""
        return self.parse(read_bytes(path, self._max_bytes), str(path))

    def parse(self, content: bytes, file: str) -> D:
        """A document from untrusted bytes. ``file`` is their name in messages. Raises BadInput."""
        try:
            found = self._decoder.decode(content)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            raise bad(file, where.rstrip("`").lstrip("."), f"not a {self._name}: {safe(message)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise bad(file, "", f"not a {self._name}, and not JSON: {safe(error)}") from None
        self.check(found, file)
        return found

    def check(self, document: D, file: str) -> None:
        """Raises BadInput when the document has another schema."""
        if document.schema != self._schema:
            found = safe(document.schema, 60)
            raise bad(file, "schema", f'this netconsole cannot read "{found}": it reads {self._schema}')

    def encode(self, document: D) -> bytes:
        """The JSON document. It ends with a line feed."""
        return msgspec.json.encode(document) + b"\n"
