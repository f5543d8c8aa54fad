"""The log of incidents as recordings keep it beside the state: what a jump needs to go on with it, in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from netconsole.base import figure
from netconsole.base.errors import UNREADABLE
from netconsole.findings.incident import Incident
from netconsole.findings.match import Evidence
from netconsole.telemetry.example import Example
from netconsole.telemetry.frames import Int, Label, Name, Natural, Sentence, Text
from netconsole.telemetry.tables import RowKey

MAX_SAVED = 200
"""Incidents of a log that are saved, the newest: about 100 kB."""
MAX_LOG_BYTES = 4 * 1024 * 1024
_MAX_SENTENCE = 1000
_Key = Annotated[list[tuple[Name, Label]], Meta(max_length=32)]
_Texts = Annotated[list[Sentence], Meta(max_length=32)]


class LogError(ValueError):
    """These bytes are no log. The message is one line that says why."""


class SavedRow(msgspec.Struct, array_like=True, frozen=True):
    """What a row has counted in an incident: ``last - start``, and ``before`` a restart of its probe."""

    key: _Key
    start: Int
    last: Int
    before: Int


class SavedTally(msgspec.Struct, array_like=True, frozen=True):
    """The rows of one value of a table in an incident."""

    probe: Name
    table: Name
    value: Name
    cause: Text
    unit: Text
    peak: float
    rows: Annotated[list[SavedRow], Meta(max_length=10_000)]


class SavedEvidence(msgspec.Struct, array_like=True, frozen=True):
    """Where the proof of an incident is."""

    kind: Literal["table", "histogram", "probe", "collector"]
    probe: Text
    name: Text
    key: _Key


class SavedIncident(msgspec.Struct, frozen=True):
    """An incident, and of one that goes on what its rows have counted. ``shown``: whether it is in the log yet."""

    number: Natural
    level: Literal["ok", "!", "!!", "?"]
    cause: Text
    sentence: Sentence
    since_ns: Int
    ended_ns: Int | None
    blind_since_ns: Int | None
    last_ns: Int
    evidence: Annotated[list[SavedEvidence], Meta(max_length=10_000)]
    where: Annotated[dict[Name, Label], Meta(max_length=32)]
    weight: float
    total: Int | None
    peak: float | None
    at_least: bool
    share_pct: float | None
    unit: Text
    next: _Texts
    commands: _Texts
    shown: bool
    is_small: bool
    tallies: Annotated[list[SavedTally], Meta(max_length=100)]
    place: Annotated[dict[Name, Label], Meta(max_length=32)] | None = None
    scaled: bool = False
    example: Example | None = None

    def told(self) -> Incident:
        """As it was then. Its texts are from a file, and made safe for a terminal once more."""
        return Incident(
            number=self.number,
            level=self.level,
            cause=self.cause,
            sentence=figure.safe(self.sentence, _MAX_SENTENCE),
            since_ns=self.since_ns,
            ended_ns=self.ended_ns,
            blind_since_ns=self.blind_since_ns,
            evidence=tuple(Evidence(one.kind, one.probe, one.name, row_key(one.key)) for one in self.evidence)
            or (Evidence("collector", ""),),
            where=self.where,
            weight=self.weight,
            total=self.total,
            peak=self.peak,
            at_least=self.at_least,
            share_pct=self.share_pct,
            unit=figure.safe(self.unit),
            next=tuple(figure.safe(text, _MAX_SENTENCE) for text in self.next),
            commands=tuple(figure.safe(text, _MAX_SENTENCE) for text in self.commands),
            history=(),
            place=self.place,
            scaled=self.scaled,
            example=self.example,
        )


def saved(
    one: Incident, last_ns: int, shown: bool = True, is_small: bool = True, tallies: Sequence[SavedTally] = ()
) -> SavedIncident:
    """An incident to be saved."""
    return SavedIncident(
        number=one.number,
        level=one.level,
        cause=one.cause,
        sentence=one.sentence,
        since_ns=one.since_ns,
        ended_ns=one.ended_ns,
        blind_since_ns=one.blind_since_ns,
        last_ns=last_ns,
        evidence=[SavedEvidence(proof.kind, proof.probe, proof.name, list(proof.key)) for proof in one.evidence],
        where=dict(one.where),
        weight=min(one.weight, 1e18),  # JSON knows no infinity
        total=one.total,
        peak=one.peak,
        at_least=one.at_least,
        share_pct=one.share_pct,
        unit=one.unit,
        next=list(one.next),
        commands=list(one.commands),
        shown=shown,
        is_small=is_small,
        tallies=list(tallies),
        place=None if one.place is None else dict(one.place),
        scaled=one.scaled,
        example=one.example,
    )


def row_key(key: list[tuple[str, Label]]) -> RowKey:
    """The key of a row, from a file."""
    return tuple((name, value) for name, value in key)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Annotated[list[SavedIncident], Meta(max_length=2 * MAX_SAVED)])


def encode(incidents: Sequence[SavedIncident]) -> bytes:
    """As JSON."""
    return _encoder.encode(incidents)


def decode(content: bytes) -> list[SavedIncident]:
    """From untrusted bytes. Raises LogError, and nothing else."""
    if len(content) > MAX_LOG_BYTES:
        raise LogError(f"longer than {MAX_LOG_BYTES} bytes")
    try:
        return list(_decoder.decode(content))
    except UNREADABLE as error:
        raise LogError(f"not a log of incidents: {error}") from None
