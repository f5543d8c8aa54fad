"""Knobs named …_devices → struct nc_sets of probes/common/devices.h: names, prefixes and kinds of network devices.

The kernel part matches devices. So devices of other network namespaces, and devices that come later, are in the set.
"""

import struct
from typing import Any, Dict, List, Tuple

from netconsole_collector.probe.config import KnobError

MAP = "nc_device_sets"
SUFFIX = "_devices"
MAX_SETS = 2
MAX_PATTERNS = 4
"""NC_SETS and NC_PATTERNS of devices.h."""
MAX_NAME_BYTES = 15
"""IFNAMSIZ without its final NUL (include/uapi/linux/if.h)."""

_NAME, _KIND, _PHYSICAL = 1, 2, 3
_PATTERN = struct.Struct("=16s16sII")
_PHYSICAL_WORD = "physical"
_KINDS = {"tap": "tun", "internal": "openvswitch"}
"""Usual words for kinds that have another name in the kernel (rtnl_link_ops.kind)."""
_FORM = "names, prefixes or kinds apart by blanks, at most 4, such as: vnet* tap0 kind:tap kind:internal kind:physical"

Pattern = Tuple[int, bytes, bytes]
"""Kind, value, mask."""


def names_of(knobs: Dict[str, Any]) -> List[str]:
    """The knobs that are sets of devices, in the order of the manifest: the first is set 1 of the program."""
    return [name for name in knobs if name.endswith(SUFFIX)]


def pack(knobs: Dict[str, Any], generation: int) -> bytes:
    """The bytes of struct nc_sets. ``generation`` has to differ from the last one. Raises KnobError."""
    names = names_of(knobs)
    if len(names) > MAX_SETS:
        raise KnobError("more than {} sets of devices".format(MAX_SETS))
    raw = struct.pack("=Q", generation)
    for name in names:
        patterns = parse(name, knobs[name])
        raw += b"".join(_PATTERN.pack(value, mask, kind, 0) for kind, value, mask in patterns)
        raw += bytes(_PATTERN.size * (MAX_PATTERNS - len(patterns)))
    return raw + bytes(_PATTERN.size * MAX_PATTERNS * (MAX_SETS - len(names)))


def parse(knob: str, text: Any) -> List[Pattern]:
    """The patterns of one set. An empty text is the empty set. Raises KnobError."""
    words = text.split() if isinstance(text, str) else None
    if words is None or len(words) > MAX_PATTERNS:
        raise KnobError("knob {}: expected {}".format(knob, _FORM))
    return [_pattern(knob, word) for word in words]


def _pattern(knob: str, word: str) -> Pattern:
    if word == "kind:" + _PHYSICAL_WORD:
        return _PHYSICAL, b"", b""
    if word.startswith("kind:"):
        name = word[len("kind:") :]
        kind, stem, prefix = _KIND, _KINDS.get(name, name), False
    else:
        kind, stem, prefix = _NAME, word[:-1] if word.endswith("*") else word, word.endswith("*")
    try:
        raw = stem.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = b"*"  # refused below
    if b"*" in raw or b"\0" in raw or len(raw) > MAX_NAME_BYTES or not (raw or prefix):
        raise KnobError("knob {}: {!r}: expected {}".format(knob, word, _FORM))
    # For a name the final NUL is compared too. For a prefix the rest is ignored.
    return kind, raw, b"\xff" * (len(raw) if prefix else 16)
