"""Finds the names that a C source uses, those that it defines, and those that BCC's bpf.h defines."""

import glob
import re
from typing import List, Set

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|^#line [^\n]*", re.DOTALL | re.MULTILINE)
"""The names of files, too, are not the source's own words."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
_TAG = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{")
_RECORD = re.compile(r"\b(?:struct|union)\s+([A-Za-z_]\w*)")
_TYPEDEF = re.compile(r"\btypedef\b[^;{}]*?(\w+)\s*;|\}\s*(\w+)\s*;")
_ENUM_BODY = re.compile(r"\benum\s*\w*\s*\{(.*?)\}", re.DOTALL)
_ENUMERATOR = re.compile(r"(?:^|,)\s*([A-Za-z_]\w*)")
_MAP = re.compile(r"\bBPF_[A-Z_0-9]+\s*\(\s*(\w+)")
_TABLE = re.compile(r"\bBPF_[A-Z_0-9]*TABLE\w*\s*\(\s*\"\w+\"\s*,[^,]*,[^,]*,\s*(\w+)")
_FUNCTION = re.compile(r"^[A-Za-z_][\w \t*]*?[ \t*](\w+)\s*\(", re.MULTILINE)

_LIBRARIES = (
    "/usr/lib/*/libbcc.so.0",
    "/usr/lib*/libbcc.so.0",
    "/usr/lib/*/libbcc_bpf.so.0",
    "/usr/local/lib*/libbcc.so.0",
)
_GUARD = b"#ifndef _UAPI__LINUX_BPF_H__\n"


def strip_comments(source: str) -> str:
    return _COMMENT.sub(" ", source)


def used(source: str) -> Set[str]:
    """Every identifier of the source."""
    return set(_WORD.findall(strip_comments(source)))


def records(source: str) -> Set[str]:
    """What it calls struct NAME or union NAME, and does not define itself."""
    return set(_RECORD.findall(strip_comments(source))) - defined(source)


def of_types(*texts: str) -> Set[str]:
    """What may be a type or a function of the kernel in these sources and manifests, also behind HAVE_ and NARGS_."""
    names = {name for text in texts for name in used(text)}
    asked = {name.partition("_")[2] for name in names if name.startswith(("HAVE_", "NARGS_"))}
    # HAVE_<struct>_<member> asks for the struct: either may have underscores, so it may end at each of them.
    asked |= {name[:at] for name in asked for at in range(len(name)) if name[at] == "_"}
    return names | asked - {""}


def defined(source: str) -> Set[str]:
    """Names that the source defines itself. Types of the kernel with these names must be left out."""
    text = strip_comments(source)
    names: Set[str] = set()
    for pattern in (_DEFINE, _TAG, _MAP, _TABLE, _FUNCTION):
        names.update(pattern.findall(text))
    names.update(name for pair in _TYPEDEF.findall(text) for name in pair if name)
    for body in _ENUM_BODY.findall(text):
        names.update(_ENUMERATOR.findall(body))
    return names


def bcc_libraries() -> List[str]:
    """Paths of libbcc, where distributions put it."""
    return [path for pattern in _LIBRARIES for path in glob.glob(pattern)]


def bcc_bpf_h() -> str:
    """The text of the bpf.h in libbcc; "" when it is not found.

    BCC includes it before anything else. So the kernel's types must be written without those that it defines.
    """
    for path in bcc_libraries():
        with open(path, "rb") as file:
            raw = file.read()
        start = raw.find(_GUARD)
        if start >= 0:
            return raw[start : raw.index(b"\0", start)].decode("utf-8", "replace")
    return ""


def bcc_names() -> Set[str]:
    """Tags, enumerators and macros of BCC's own bpf.h."""
    text = strip_comments(bcc_bpf_h())
    names = set(_DEFINE.findall(text)) | set(_TAG.findall(text))
    for body in _ENUM_BODY.findall(text):
        names.update(_ENUMERATOR.findall(body))
    names.update("BPF_FUNC_" + name for name in re.findall(r"\bFN\((\w+)", text))
    return names
