"""Saves a state as JSON without histories and samples, so that a recording can be read from the middle.

Each class declares which of its fields are saved (:mod:`netconsole.telemetry.saved`). Histories (ten minutes of each
figure) and sampled events are not. To have them, a reader starts a little earlier (docs/use/recording.md).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from netconsole.base.errors import UNREADABLE
from netconsole.telemetry.frames import Capability, Host, Int, Name, SourceName, Text
from netconsole.telemetry.saved import from_json, to_json
from netconsole.telemetry.source import SourceState
from netconsole.telemetry.state import MAX_PROBES, ProbeState, State

MAX_BYTES = 16 * 1024 * 1024
"""A state with 50 000 rows takes about 10 MB."""


class CheckpointError(ValueError):
    """These bytes are no checkpoint. The message is one line that says why."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The saved attributes of a :class:`State`, under their names."""

    host: Host | None
    capabilities: Annotated[dict[Name, Capability], Meta(max_length=64)]
    collector_info: Annotated[dict[Name, Text | Int], Meta(max_length=64)]
    first_mono_ns: Int | None
    first_wall_ns: Int | None
    sources: dict[SourceName, SourceState]
    probes: Annotated[list[ProbeState], Meta(max_length=MAX_PROBES)]


_encoder = msgspec.json.Encoder(enc_hook=to_json)
_decoder = msgspec.json.Decoder(Checkpoint, dec_hook=from_json)


def encode(state: State) -> bytes:
    """The state as JSON. Do not change the state meanwhile."""
    return _encoder.encode(
        Checkpoint(
            state.host,
            state.capabilities,
            state.collector_info,
            state.first_mono_ns,
            state.first_wall_ns,
            state.sources,
            list(state.probes.values()),
        )
    )


def decode(content: bytes) -> State:
    """The state from untrusted bytes, ready for the next frames. Raises CheckpointError, and nothing else."""
    if len(content) > MAX_BYTES:
        raise CheckpointError(f"longer than {MAX_BYTES} bytes")
    try:
        point = _decoder.decode(content)
    except UNREADABLE as error:
        raise CheckpointError(f"not a checkpoint: {error}") from None
    state = State()
    state.host, state.capabilities, state.collector_info = point.host, point.capabilities, point.collector_info
    state.first_mono_ns, state.first_wall_ns = point.first_mono_ns, point.first_wall_ns
    state.sources.update(point.sources)
    for probe in point.probes:
        state.probes[probe.name] = probe
        probe.follow(state.sources[probe.source].timeline)
    return state
