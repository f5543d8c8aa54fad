"""What a recording is made of (docs/use/recording.md): its parts in the file, and its header.

A recording is a Zstandard file: ``zstdcat FILE`` prints the frames, one a line. Everything that is not a frame (header,
checkpoints, index) is in skippable frames, which a decompressor passes over.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from netconsole.telemetry.frames import Host, Mode, Name, Natural, Sentence, Text

SCHEMA = "netconsole.recording/1"

# Skippable frames (RFC 8878, 3.1.2). A file is a header, then blocks of a checkpoint and a data frame, then an index.
HEADER_MAGIC, CHECKPOINT_MAGIC, INDEX_MAGIC = 0x184D2A51, 0x184D2A52, 0x184D2A53
SKIPPABLE = struct.Struct("<II")
"""Magic number and size of what follows."""
MARK = struct.Struct("<qqQQ")
ENTRY = struct.Struct("<QqqQQ")
"""An entry of the index: where a checkpoint is, and its mark."""
FOOTER = struct.Struct("<Q8s")
"""The last bytes of a recording that was closed: where its index begins, and a name to know it by."""
FOOTER_NAME = b"ncindex1"

MAX_HEADER_BYTES = 1024 * 1024
MAX_BLOCK_BYTES = 32 * 1024 * 1024
"""Frames of one block, decompressed: a recorder begins a new block long before."""
MAX_BLOCKS = 50_000
"""A month at one a minute."""


class Mark(NamedTuple):
    """A place in a recording: the clocks there, and how many intervals and bytes of frames are before it."""

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
