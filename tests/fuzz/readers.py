"""Everything that reads a file from elsewhere, as functions of bytes: refused in one line, or read and used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard
from msgspec import to_builtins

from netconsole.base.errors import BadInput
from netconsole.compare import baseline
from netconsole.compare.compare import compare
from netconsole.ping import breakdown, capture, cases
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.compared import against
from netconsole.probes import catalogue
from netconsole.profile import loader
from netconsole.profile.profile import Budget, Profile
from netconsole.recording import format
from netconsole.recording.format import CHECKPOINT_MAGIC, HEADER_MAGIC, MARK, SKIPPABLE, Mark
from netconsole.recording.player import Player
from netconsole.recording.reader import Damaged, Recording
from netconsole.report import of_comparison, of_ping, of_snapshot, to_html, to_text
from netconsole.report.formats import RENDERERS
from netconsole.snapshot import builder
from netconsole.snapshot import document as snapshot_file
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.state import State
from netconsole_collector.sources.vm import qemu
from tests.support import ping_logs
from tests.support.ping import linked

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/support/data"
MANIFESTS = catalogue.load_all()
GOOD = snapshot_file.load(DATA / "snapshot-version-1.json")
PING = [CaptureFile(file.name, capture.load(file)) for file in sorted((DATA / "ping-case-a").glob("*.json"))]
MAX_STEPS = 200
"""Intervals of a recording that are played."""


def one_line(error: Exception) -> None:
    """What a user is told of a bad file."""
    lines = str(error).splitlines()
    assert lines and (isinstance(error, BadInput) or len(lines) == 1), lines
    assert all(line.isprintable() for line in lines), lines


def read_snapshot(content: bytes, _folder: Path) -> None:
    """A snapshot: compared with itself and with a good one, both ways, and reported."""
    try:
        read = snapshot_file.parse(content, "file")
    except BadInput as error:
        one_line(error)
        return
    snapshot_file.parse(snapshot_file.encode(read), "again")
    for render in RENDERERS.values():
        render(of_snapshot(read))
        for comparison in (compare(read, [read]), compare(read, [GOOD] * 3), compare(GOOD, [read, GOOD, read])):
            render(of_comparison(comparison))


def read_baseline(content: bytes, folder: Path) -> None:
    """A baseline: listed, loaded, and held against its own first run."""
    os.environ["XDG_DATA_HOME"] = str(folder.absolute())
    file = folder / "netconsole/baselines/a.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    baseline.summaries(snapshot_file.HostData(name="h", kernel="6.1.0"), None)
    try:
        read = baseline.load("a")
    except BadInput as error:
        one_line(error)
        return
    if read.snapshots:
        compare(read.snapshots[0], read.snapshots)


def read_ping(content: bytes, _folder: Path) -> None:
    """The capture of one machine: alone, beside good ones, and compared with them, both ways."""
    good = [one for one in PING if one.capture.role != "sender-host"]
    try:
        read = cases.read_captures(content, "file")
        alone, together = cases.case_of(read, "alone"), cases.case_of([*good, *read], "together")
    except BadInput as error:
        one_line(error)
        return
    for case in (alone, together):
        breakdown.parse(breakdown.encode(case.breakdown), "again")
        for other in (cases.case_of(PING, "good"), alone, together):
            for found in (against(case, other), against(other, case)):
                assert all(text.isprintable() for text in to_text(of_ping(found), 80).splitlines())
        to_html(of_ping(case.breakdown))


def read_breakdown(content: bytes, _folder: Path) -> None:
    """A breakdown: compared with itself and with a good one, and reported."""
    good = cases.case_of(PING, "good")
    try:
        read = cases.PingCase("read", breakdown.parse(content, "file"))
    except BadInput as error:
        one_line(error)
        return
    for found in (against(read, read), against(read, good), against(good, read)):
        to_text(of_ping(found), 80)
        to_html(of_ping(found))


def read_recording(content: bytes, _folder: Path) -> None:
    """A recording: played, jumped in, and a snapshot of it. Behind a first byte f come the lines of one."""
    kind, rest = content[:1], content[1:]
    descriptor = os.memfd_create("recording")
    try:
        os.write(descriptor, _with_frames(rest) if kind == b"f" else rest)
        read = Recording(Path(f"/proc/self/fd/{descriptor}"))
        try:
            player = Player(read, MANIFESTS, Budget())
            for _ in range(MAX_STEPS):
                if not player.step():
                    break
            player.seek(player.length_s / 2)
            taken = builder.build(player.place.state, MANIFESTS, Profile("fuzz"), player.since)
            snapshot_file.encode(taken)
        finally:
            read.close()
    except (BadInput, Damaged) as error:
        one_line(error)
    finally:
        os.close(descriptor)


def read_profile(content: bytes, folder: Path) -> None:
    """A profile."""
    file = folder / "fuzz.toml"
    file.write_bytes(content)
    try:
        loader.load_file(file, MANIFESTS)
    except BadInput as error:
        one_line(error)


def read_facts(content: bytes, _folder: Path) -> None:
    """What facts are made of that others choose: QEMU's command line, NUL between its words."""
    words = content.decode("utf-8", "surrogateescape").split("\0")
    repr(qemu.parse(words))


def read_frame(content: bytes, _folder: Path) -> None:
    """A line of a recording, or of a collector."""
    try:
        frame = frames.decode(content)
    except frames.FrameError as error:
        one_line(error)
        return
    state = State()
    state.apply(frame)
    checkpoint.decode(checkpoint.encode(state))


def _with_frames(lines: bytes) -> bytes:
    """A recording of these lines: whoever mutates bytes would never get past the compression."""
    header = {"schema": format.SCHEMA, "created": "", "netconsole": "", "profile": {"name": "x"}, "host": _HOST}
    return b"".join(
        (
            _skippable(HEADER_MAGIC, _packed(json.dumps(header).encode())),
            _skippable(CHECKPOINT_MAGIC, MARK.pack(*Mark(1, 1, 0, 0)) + _packed(checkpoint.encode(State()))),
            _packed(lines),
        )
    )


_HOST = {"name": "h", "kernel": "6.1", "arch": "x", "os": "x", "cpus": 2, "boot_id": "b"}


def _skippable(magic: int, content: bytes) -> bytes:
    return SKIPPABLE.pack(magic, len(content)) + content


def _packed(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


READERS: dict[str, Callable[[bytes, Path], None]] = {
    "snapshot": read_snapshot,
    "baseline": read_baseline,
    "ping": read_ping,
    "breakdown": read_breakdown,
    "recording": read_recording,
    "profile": read_profile,
    "facts": read_facts,
    "frame": read_frame,
}
"""By name; the folder is for what has to be a file."""


def seeds(reader: str) -> Iterator[bytes]:
    """Good files to begin with."""
    if reader == "snapshot":
        yield (DATA / "snapshot-version-1.json").read_bytes()
    elif reader == "baseline":
        one = to_builtins(snapshot_file.load(DATA / "snapshot-version-1.json"))
        document = {"schema": baseline.SCHEMA, "name": "a", "saved": "", "files": ["x"] * 3, "snapshots": [one] * 3}
        yield json.dumps(document).encode()
    elif reader == "ping":
        yield (DATA / "ping-case-a/sender-host.json").read_bytes()
        yield next(capture.encode(one.capture) for one in linked(3, 7.0) if one.capture.role == "sender-host")
        yield ping_logs.rtt("RX", [(24, 8, 7)] * 2).encode()
        yield ping_logs.drops("vnet3", "eth0", [(13, 144, 8)] * 2, [(9, "EXTERNAL (network or peer)")]).encode()
        yield ping_logs.irq(8, [(22, 7, 3, 3)] * 2).encode()
        yield ping_logs.irq_json(0, [(22, 7, 3, 3)] * 2).encode()
    elif reader == "breakdown":
        yield breakdown.encode(cases.case_of(PING, "good").breakdown)
    elif reader == "recording":
        whole = DATA / "recording-version-1.ncrec"
        yield b"r" + whole.read_bytes()
        yield b"f" + b"".join(map(frames.encode, list(Recording(whole).frames(0))[:60]))
    elif reader == "frame":
        kinds = {type(frame): frame for frame in Recording(DATA / "recording-version-1.ncrec").frames(0)}
        yield from map(frames.encode, kinds.values())
    elif reader == "profile":
        yield from (path.read_bytes() for path in sorted((ROOT / "profiles").glob("*.toml")))
    else:
        words = ("qemu-system-x86_64", "-name", "guest=a,debug-threads=on", "-netdev", "tap,id=n,fds=3:4,vhost=on")
        yield "\0".join((*words, "-device", "virtio-net-pci,netdev=n")).encode()
