"""The page of a real virtual machine over a line, from a snapshot, from a recording, and in a comparison."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from netconsole.compare.compare import compare
from netconsole.findings.places_of_snapshot import whole_snapshot
from netconsole.probes import catalogue
from netconsole.profile.profile import Budget, Profile
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.snapshot import builder
from netconsole.snapshot.caps import caps, verdict
from netconsole.snapshot.document import Snapshot, load
from netconsole.snapshot.machine_figures import MachineFigures
from tests.support.console_command import COMMAND
from tests.support.live.network import run
from tests.support.live.ssh_server import ADDRESS, SshServer
from tests.support.live.tiny_guest import HALTS, Card, TinyGuest
from tests.support.live.vm_page import frames

pytestmark = pytest.mark.starting

LIMIT_S = 90.0
SOURCES = ("vm_states", "thread_waits", "link_rates", "io_limits")


@contextmanager
def shaped(one: TinyGuest) -> Iterator[None]:
    """More goes to it than its shaper lets through."""
    run(*f"tc qdisc add dev {one.tap} root tbf rate 80kbit burst 3000 limit 10000".split())
    with frames(one, 300):
        yield


def console(*words: str, environment: Mapping[str, str] | None = None) -> str:
    command = [*COMMAND, *words, *(word for probe in SOURCES for word in ("--probe", probe)), "--duration", "4s"]
    own = dict(os.environ if environment is None else environment)
    quiet = subprocess.DEVNULL
    done = subprocess.run(
        command, stdin=quiet, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=own
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def said(taken: Snapshot, name: str) -> str:
    return verdict(caps(MachineFigures(taken, name))).text


def of_recording(path: Path) -> Snapshot:
    """As a replay has it at its end."""
    manifests = catalogue.load_all()
    player = Player(Recording(path), manifests, Budget())
    player.seek(player.length_s)
    place = player.place
    begin, facts = builder.totals_at_start(place.state), player.recording.header.facts
    return whole_snapshot(place.state, manifests, Profile("summary"), begin, place.findings.log, facts)


def test_what_caps_it_is_said_wherever_it_is_looked_at(server: SshServer, tmp_path: Path) -> None:
    before, after, far, narrow = (tmp_path / f"{name}.json" for name in ("before", "after", "far", "narrow"))
    replay = tmp_path / "one.ncrec"
    with closing(TinyGuest(HALTS, Card.HUB)) as one:
        console("snapshot", "-o", str(before))
        with shaped(one):
            (there,) = json.loads(
                console("vm", one.name, "--format", "json", "--host", ADDRESS, environment=server.environment)
            )["vms"]
            console("snapshot", "-o", str(after))
            console("snapshot", "-o", str(far), "--host", ADDRESS, environment=server.environment)
            console("record", "-o", str(replay))
            alone = ("--host", ADDRESS, "--vm", one.name)
            console("snapshot", "-o", str(narrow), *alone, environment=server.environment)
    capped = f"tbf of 80 kbit/s at {one.tap} lets no more through: "
    assert there["verdict"]["text"].startswith(capped)
    assert {row["device"] for row in load(narrow).probes["link_rates"].tables["links"]} == {one.tap}
    for taken in (load(after), load(far), load(narrow), of_recording(replay)):
        assert said(taken, one.name).startswith(capped)
    (change,) = [found for found in compare(load(after), [load(before)]).machines if found.vm == one.name]
    assert change.is_capped and change.current.startswith(capped) and not change.baseline.startswith(capped)
