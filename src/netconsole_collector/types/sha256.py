"""SHA-256 as Python itself has it: hashlib would load OpenSSL, which takes 4 MB of a collector."""

from importlib import import_module
from typing import Any


def _of_python() -> Any:
    for name in ("_sha256", "_sha2", "hashlib"):  # the first to Python 3.11, the second from 3.12 on
        try:
            return import_module(name)
        except ImportError:
            pass
    raise ImportError("this Python has no SHA-256")


sha256 = _of_python().sha256
