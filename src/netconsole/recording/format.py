"""The file format of a recording (docs/use/recording.md): the parts of the file, and its header.

A recording is a Zstandard file: ``zstdcat FILE`` prints the frames, one on each line. Header, checkpoints and index are
in skippable frames, which a decompressor leaves out.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from netconsole.base.fact_keys import FactData
from netconsole.telemetry.frames import Host, Mode, Name, Natural, Sentence, Text

SCHEMA = "netconsole.recording/1"

# Skippable frames (RFC 8878, 3.1.2). A file is a header, then blocks of a checkpoint, perhaps a log of
# incidents, and a data frame, then an index.
HEADER_MAGIC, CHECKPOINT_MAGIC, INDEX_MAGIC, LOG_MAGIC = 0x184D2A51, 0x184D2A52, 0x184D2A53, 0x184D2A54
SKIPPABLE = struct.Struct("<II")
"""Magic number and size of what follows."""
MARK = struct.Struct("<qqQQ")
ENTRY = struct.Struct("<QqqQQ")
"""An entry of the index: the offset of a checkpoint, and its mark."""
FOOTER = struct.Struct("<Q8s")
"""The last bytes of a recording that was closed: the offset of its index, and a fixed name."""
FOOTER_NAME = b"ncindex1"

MAX_HEADER_BYTES = 8 * 1024 * 1024
"""Nearly all of it are facts of the host."""
MAX_BLOCK_BYTES = 32 * 1024 * 1024
"""The most bytes of frames in one block, decompressed. A recorder begins a new block long before."""
MAX_BLOCKS = 50_000
"""Enough for a month with one block a minute."""


class Mark(NamedTuple):
    """A place in a recording: its times, and how many intervals and bytes of frames come before it."""

    wall_ns: int
    mono_ns: int
    intervals: int
    bytes: int


class RecordedProfile(msgspec.Struct, frozen=True):
    """What was measured, and what it was allowed to cost."""

    name: Text
    budget: Annotated[dict[Name, float | Text | None], Meta(max_length=32)] = {}


class RecordedProbe(msgspec.Struct, frozen=True):
    """A probe of the recording: the version of its manifest, and the mode that was asked for."""

    version: Natural | None = None
    mode: Mode = "summary"


class Header(msgspec.Struct, frozen=True):
    """What a recording says about itself. ``leads``: whose intervals are the steps of a replay."""

    schema: Annotated[str, Meta(extra_json_schema={"const": SCHEMA})]
    created: Text
    netconsole: Text
    host: Host
    profile: RecordedProfile
    probes: Annotated[dict[Name, RecordedProbe], Meta(max_length=64)] = {}
    leads: Literal["collector", "console"] = "collector"
    note: Sentence | None = None
    facts: dict[str, FactData] = {}
    """How the host was configured when it began. A recording that was begun by a rule has none."""
