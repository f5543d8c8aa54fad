"""One judgement: a live session, a replay, a jump in it and a snapshot say the same of the same frames."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from netconsole.findings import drop_places
from netconsole.findings.incident import Incident, document
from netconsole.findings.incidents import Incidents
from netconsole.findings.places_of_snapshot import whole_snapshot
from netconsole.probes import catalogue
from netconsole.profile.profile import Budget, Profile
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.snapshot import builder
from netconsole.snapshot.balance_watch import BalanceWatch
from netconsole.snapshot.document import BalanceData, IncidentData
from netconsole.telemetry import frames
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State

ROOT = Path(__file__).parents[3]
RECORDINGS = [*sorted((ROOT / "recordings").glob("*.ncrec")), ROOT / "tests/support/data/recording-version-1.ncrec"]
MANIFESTS = catalogue.load_all()


class Judged(NamedTuple):
    """What is said at the end of a recording."""

    incidents: list[IncidentData]
    places: set[tuple[str, str, str, int, bool]]
    """Stage, where, why, total, and whether that is a lower bound."""
    balance: list[BalanceData]


def places(state: State) -> set[tuple[str, str, str, int, bool]]:
    found = drop_places.of_span(Span(state), MANIFESTS)
    return {(one.stage, one.at, one.say, one.total, one.at_least) for one in found}


def said(log: Iterable[Incident]) -> list[IncidentData]:
    """Without the time up to the end, which only a snapshot has."""
    return [msgspec.structs.replace(one, duration_s=None) for one in document(log)]


@cache
def live(path: Path) -> Judged:
    """As a session takes frames over: readers are told at the end of each interval."""
    recording = Recording(path)
    state, findings, balance = recording.state(0), Incidents(MANIFESTS, Budget()), BalanceWatch()
    for number in range(len(recording.blocks)):
        for frame in recording.frames(number):
            state.apply(frame)
            if isinstance(frame, frames.Cost) and frame.probe is None and frame.source == recording.header.leads:
                findings.update(state)
                balance.update(state)
    return Judged(said(findings.log), places(state), balance.of(state))


def replayed(path: Path) -> tuple[Player, BalanceWatch]:
    player, balance = Player(Recording(path), MANIFESTS, Budget()), BalanceWatch()
    while player.step():
        balance.update(player.place.state)
    return player, balance


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_replay_says_the_same(path: Path) -> None:
    player, balance = replayed(path)
    state = player.place.state
    assert Judged(said(player.place.findings.log), places(state), balance.of(state)) == live(path)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_snapshot_says_the_same(path: Path) -> None:
    player, _ = replayed(path)
    state, profile = player.place.state, Profile("summary", budget=Budget())
    taken = whole_snapshot(state, MANIFESTS, profile, builder.totals_at_start(state), player.place.findings.log, {})
    assert taken.incidents is not None and taken.drop_places is not None and taken.balance is not None
    found = {(one.stage, one.where, one.why, one.total, one.at_least) for one in taken.drop_places}
    told = [msgspec.structs.replace(one, duration_s=None) for one in taken.incidents]
    assert Judged(told, found, taken.balance) == live(path)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_jump_to_the_end_says_the_same(path: Path) -> None:
    player = Player(Recording(path), MANIFESTS, Budget())
    player.seek(player.length_s)
    assert (said(player.place.findings.log), places(player.place.state)) == live(path)[:2]
