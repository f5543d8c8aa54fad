"""The recordings that come with the console: whole, small, as published, and silent about where they were made."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import zstandard
from msgspec import to_builtins

from netconsole.base.output import FORMATS
from netconsole.cli import replay as cli_replay
from netconsole.probes import catalogue
from netconsole.profile.profile import Budget, Profile
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.report import ticket
from netconsole.snapshot import builder
from netconsole.snapshot import document as snapshot_file
from netconsole.snapshot.redact import Redactor
from tests.support.recorded import Stream, record

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "recordings").glob("*.ncrec"))
MANIFESTS = catalogue.load_all()
MAX_BYTES = 400_000
"""Of all of them together: they travel in every checkout and wheel."""


def schema(name: str) -> dict[str, Any]:
    published: dict[str, Any] = json.loads((ROOT / "docs/reference/schema" / name).read_text())
    return published


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(name))


def validators_of_frames() -> dict[str, jsonschema.Draft202012Validator]:
    """By kind, as the schema's discriminator has them: tried one after another they take twice as long."""
    frame = schema("frame-1.json")
    kinds = frame["discriminator"]["mapping"]
    assert {one["$ref"] for one in frame["anyOf"]} == set(kinds.values())
    return {
        kind: jsonschema.Draft202012Validator({"$ref": place, "$defs": frame["$defs"]}) for kind, place in kinds.items()
    }


def lines(path: Path) -> list[bytes]:
    """What any Zstandard tool prints."""
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().splitlines()


ALL_OF_A_KIND, ONE_IN = 20, 8
"""The schema is asked of so many lines of each kind, and then of one in so many: a shape that comes, comes often."""


def assert_as_published(path: Path, least: int = 100) -> None:
    """Header and lines of every kind satisfy the published schemas, and there are so many lines at least."""
    recording = Recording(path)
    validator("recording-header-1.json").validate(to_builtins(recording.header))
    frame = validators_of_frames()
    read: Counter[str] = Counter()
    for line in lines(path):
        document = json.loads(line)
        read[document["kind"]] += 1
        if read[document["kind"]] <= ALL_OF_A_KIND or read.total() % ONE_IN == 0:
            frame[document["kind"]].validate(document)
    assert read.total() == sum(1 for number in range(len(recording.blocks)) for _ in recording.frames(number)) >= least


def test_there_are_some_and_they_are_small() -> None:
    assert {path.stem for path in SHIPPED} == {"drops", "vhost"}
    assert sum(path.stat().st_size for path in SHIPPED) < MAX_BYTES
    assert list(cli_replay.shipped()) == [path.stem for path in SHIPPED]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_one_is_as_published(path: Path) -> None:
    assert_as_published(path)


def test_one_that_is_made_now_is_as_published(tmp_path: Path) -> None:
    record(tmp_path / "a.ncrec", Stream(rows=5).batches(30))
    assert_as_published(tmp_path / "a.ncrec")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_one_shows_what_it_promises(path: Path) -> None:
    recording = Recording(path)
    assert recording.whole and recording.header.note and recording.broken_frames == 0
    player = Player(recording, MANIFESTS, Budget())
    found: set[str] = set()
    while player.step():
        found |= {finding.sentence for finding in player.place.standing}
    assert player.trouble is None and player.length_s > 30
    assert found, "something stands out in it"
    taken = builder.build(player.place.state, MANIFESTS, Profile("summary"), player.since)
    validator("snapshot-1.json").validate(json.loads(snapshot_file.encode(taken)))
    assert (
        sum((probe.counters["drops"].total or 0) for probe in taken.probes.values() if "drops" in probe.counters) > 500
    )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_one_tells_nothing_of_the_machine_that_made_it(path: Path) -> None:
    header = Recording(path).header
    assert header.host.name in ("sample-host", "hypervisor")
    told = b"\n".join(lines(path)) + repr(header).encode()
    for path_of_a_machine in (b"/home/", b"/root", b"/tmp", b"/work", b"/var/"):
        assert path_of_a_machine not in told
    # Addresses are of documentation, or of every host.
    for address in set(re.findall(rb'"((?:\d{1,3}\.){3}\d{1,3})"', told)):
        assert address.startswith((b"203.0.113.", b"127.", b"0.0.0.0")), address


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_redacted_snapshot_of_a_recording_names_nobody(path: Path, form: str) -> None:
    """Addresses, host, VMs and processes, also where a user typed them into the note."""
    player = Player(Recording(path), MANIFESTS, Budget())
    player.seek(0.7 * player.length_s)
    host = player.recording.header.host.name
    plain = builder.build(player.place.state, MANIFESTS, Profile("summary"), player.since)
    written = snapshot_file.encode(plain).decode()
    known = {*re.findall(r"203\.0\.113\.\d+", written), *re.findall(r"\bvm0\b", written)}
    names = [*known, *(name for name in (host, "python3", "qemu-system-x86") if name in written)]
    assert known and host in names, "there is something to hide"
    taken = msgspec.structs.replace(plain, note=f"slow since 9: {', '.join(names)}; see [{known.pop()}]:22")
    redacted = ticket.render(taken, form, MANIFESTS, None, Redactor(b"k" * 32))[0].decode()
    assert "slow since 9" in redacted
    assert not [name for name in names if name in redacted]
