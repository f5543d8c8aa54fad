"""The user's key for pseudonyms (:mod:`netconsole.snapshot.redact`): from the environment, or made once and private."""

from __future__ import annotations

import binascii
import hashlib
import os
import secrets
from pathlib import Path

from netconsole.base import paths
from netconsole.base.errors import bad
from netconsole.base.files import write_whole
from netconsole.base.readers import read_bytes, stat_of

KEY_FILE = "redact.key"
KEY_VARIABLE = "NETCONSOLE_REDACT_KEY"
"""A key that the user chooses, any text of at least 8 characters. Use the same one on all hosts of a ticket."""
KEY_BYTES = 32
_MIN_KEY = 8


def user_key() -> bytes:
    """The key of $NETCONSOLE_REDACT_KEY, else of the user's configuration. If there is none, makes one (mode 0600)."""
    given = os.environ.get(KEY_VARIABLE, "")
    if given:
        if len(given) < _MIN_KEY:
            raise bad(KEY_VARIABLE, "", f"expected {_MIN_KEY} characters or more: a short key can be guessed")
        return hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    path = paths.user_config() / KEY_FILE
    if stat_of(path) is None:
        _make_key(path)
    try:
        key = binascii.unhexlify(read_bytes(path, 1024).strip())
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise bad(path, "", f"expected {2 * KEY_BYTES} hexadecimal digits; remove the file to have a new key made")
    return key


def _make_key(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise bad(path.parent, "", f"cannot make this directory: {(error.strerror or '').lower()}") from None
    write_whole(path, secrets.token_hex(KEY_BYTES).encode() + b"\n")
