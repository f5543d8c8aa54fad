"""Saves and loads baselines: snapshots and pings of good days, in $XDG_DATA_HOME/netconsole/baselines."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePath
from typing import Annotated

import msgspec

from netconsole.base import paths
from netconsole.base.errors import UNREADABLE, BadInput, bad
from netconsole.base.figure import safe
from netconsole.base.files import write_whole
from netconsole.base.readers import read_bytes
from netconsole.base.timestamps import utc
from netconsole.compare.comparable import MIN_DURATION_S, is_too_short
from netconsole.compare.judge import SPREAD_SNAPSHOTS
from netconsole.ping.analysis.merge import CaptureFile, join
from netconsole.ping.capture import SCHEMA as PING_SCHEMA
from netconsole.ping.capture import PingCapture
from netconsole.ping.cases import read_captures, schema_of
from netconsole.profile.scope import words
from netconsole.snapshot.document import KIND, MEASURED, HostData, Snapshot, seconds
from netconsole.snapshot.document import MAX_BYTES as MAX_CONTENT_BYTES
from netconsole.snapshot.document import load as load_snapshot
from netconsole.snapshot.document import parse as parse_snapshot

SCHEMA = "netconsole.baseline/1"
MAX_SNAPSHOTS = 32
"""More runs hardly improve a spread, and a comparison has all of them in memory."""
MAX_BYTES = 256 * 1024 * 1024
OLD_DAYS = 30
"""An older baseline is called old: kernel, traffic and tenants may have changed since."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDING = ".json"


class Baseline(msgspec.Struct, frozen=True):
    """Snapshots, or the captures of a ping, or both, under a name. ``saved`` is a time in UTC.

    ``files`` are the file names of the snapshots, ``ping_files`` those of the captures in ``ping``.
    """

    schema: Annotated[str, msgspec.Meta(extra_json_schema={"const": SCHEMA})]
    name: str
    saved: str
    files: list[str]
    snapshots: list[Snapshot]
    ping: list[PingCapture] = []
    ping_files: list[str] = []


@dataclass(frozen=True, slots=True)
class Summary:
    """What one baseline is good for, or why it cannot be read."""

    name: str
    snapshots: int
    hosts: list[str]
    kernels: list[str]
    profiles: list[str]
    probes: list[str]
    created: str
    notes: list[str]


_decoder = msgspec.json.Decoder(Baseline)


def save(name: str, files: Sequence[Path]) -> Baseline:
    """Makes a baseline from snapshots, the captures of a ping, or both; or replaces it.

    Raises BadInput when the name or a file is bad.
    """
    _path(name)
    if not 1 <= len(files) <= MAX_SNAPSHOTS:
        raise bad("baseline", name, f"expected 1 to {MAX_SNAPSHOTS} snapshots or captures, found {len(files)}")
    snapshots: list[tuple[str, Snapshot]] = []
    captures: list[CaptureFile] = []
    for file in files:
        content = read_bytes(file, MAX_CONTENT_BYTES)
        if schema_of(content) == PING_SCHEMA or content.lstrip()[:1] not in (b"{", b""):  # a capture, or a log
            captures += read_captures(content, str(file))
            continue
        snapshot = parse_snapshot(content, str(file))
        if snapshot.ping is None and not any(probe.status in MEASURED for probe in snapshot.probes.values()):
            raise bad(file, "probes", "this snapshot cannot be a baseline: no probe measured anything")
        snapshots.append((file.name, snapshot))
    return _save(name, snapshots, captures)


def save_ping(name: str, captures: Sequence[CaptureFile]) -> Baseline:
    """Makes a baseline of captures that were read or measured before. Raises BadInput."""
    return _save(name, [], captures)


def _save(name: str, snapshots: list[tuple[str, Snapshot]], captures: Sequence[CaptureFile]) -> Baseline:
    path = _path(name)
    if captures:
        join(captures)  # two captures of the same times are refused now, not when they are needed
    snapshots.sort(key=lambda one: one[1].created)
    baseline = Baseline(
        SCHEMA,
        name,
        utc(),
        [file for file, _ in snapshots],
        [snapshot for _, snapshot in snapshots],
        [one.capture for one in captures],
        [Path(one.file).name for one in captures],
    )
    _make_folder(path.parent)
    write_whole(path, msgspec.json.encode(baseline) + b"\n")
    return baseline


def saved_at(name: str) -> str | None:
    """When the baseline of this name was saved, in UTC; None when there is none. Raises BadInput for a bad name."""
    try:
        at_s = _path(name).stat().st_mtime
    except OSError:
        return None
    return utc(at_s)


def load(name: str, or_file: bool = False) -> Baseline:
    """A saved baseline. Raises BadInput when there is none, or its file cannot be read.

    ``or_file``: a file could have been meant as well.
    """
    path = _path(name)
    if not path.is_file():
        known = names()
        there = (
            f"there are: {', '.join(known[:10])}"
            if known
            else "there is none yet: netconsole baseline save NAME FILE makes one"
        )
        raise bad("baseline", name, f"{'no such file, and ' * or_file}no baseline of this name; {there}")
    content = read_bytes(path, MAX_BYTES)
    try:
        baseline = _decoder.decode(content)
    except (*UNREADABLE, ValueError) as error:
        raise bad(
            path, "", f"this file is no baseline: {safe(error)}; netconsole baseline remove {name} removes the file"
        ) from None
    if baseline.schema != SCHEMA or not (baseline.snapshots or baseline.ping):
        raise bad(path, "schema", f"expected {SCHEMA} with at least one snapshot or capture")
    for snapshot in baseline.snapshots:
        KIND.check(snapshot, str(path))
    return baseline


def resolve(name_or_file: str) -> tuple[list[Snapshot], list[str]]:
    """The snapshots of a command's argument BASELINE, and their names. BASELINE is a saved name or a snapshot file.

    When both exist, the saved baseline is taken. Write ``./NAME`` for the file.
    """
    if is_name(name_or_file):
        baseline = of_snapshots(name_or_file, or_file=True)
        return baseline.snapshots, [f"{baseline.name}: {file}" for file in baseline.files]
    path = Path(name_or_file)
    return [load_snapshot(path)], [path.name]


def of_snapshots(name: str, or_file: bool = False) -> Baseline:
    """As :func:`load`, and raises BadInput for a baseline that has a ping alone."""
    baseline = load(name, or_file)
    if not baseline.snapshots:
        raise bad(
            "baseline", name, "this baseline holds a ping and no snapshot: netconsole ping analyze compares with it"
        )
    return baseline


def is_name(name_or_file: str) -> bool:
    """Whether an argument is meant as the name of a baseline. When a file of that name exists too, a saved one is."""
    return _NAME.fullmatch(name_or_file) is not None and (
        not Path(name_or_file).is_file() or _path(name_or_file).is_file()
    )


def remove(name: str) -> None:
    """Removes a baseline. Raises BadInput when there is none."""
    path = _path(name)
    try:
        path.unlink()
    except FileNotFoundError:
        raise bad("baseline", name, "no baseline of this name") from None
    except OSError as error:
        raise bad(path, "", f"cannot remove: {error.strerror}") from None


def names() -> list[str]:
    """The names of all baselines."""
    try:
        found = [entry.name for entry in _folder().iterdir()]
    except OSError:
        return []
    return sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING) and _valid(name))


def summaries(here: HostData | None, profile: str | None, now: datetime | None = None) -> list[Summary]:
    """All baselines with what they are good for, on this host and with this profile (None: not known)."""
    result = []
    for name in names():
        try:
            result.append(summary(load(name), here, profile, now))
        except BadInput as error:
            # The row already names the baseline, and a path would leave no room for the message.
            result.append(Summary(name, 0, [], [], [], [], "", [problem.without_file for problem in error.problems]))
    return result


def summary(baseline: Baseline, here: HostData | None, profile: str | None, now: datetime | None = None) -> Summary:
    """What a baseline is good for: same host, kernel and profile? how old? does it have a spread?"""
    snapshots = baseline.snapshots
    if not snapshots:
        return _of_ping(baseline)
    hosts = list(dict.fromkeys(one.host.name for one in snapshots))
    kernels = list(dict.fromkeys(one.host.kernel for one in snapshots))
    profiles = list(dict.fromkeys(one.profile.name for one in snapshots))
    measured = [{name for name, probe in one.probes.items() if probe.status in MEASURED} for one in snapshots]
    ever, always = measured[0].union(*measured), measured[0].intersection(*measured)
    notes = []
    if here is not None:
        notes.append("this host" if hosts == [here.name] else f"another host: {', '.join(hosts)}")
        if hosts == [here.name] and kernels != [here.kernel]:
            notes.append(f"another kernel: {', '.join(kernels)}")
    if profile is not None:
        same, others = profiles == [profile], ", ".join(profiles)
        notes.append(f"the same profile: {profile}" if same else f"another profile than {profile}: {others}")
    scopes = list(dict.fromkeys(words(one.profile.scope) or "the whole host" for one in snapshots))
    if any(one.profile.scope for one in snapshots):
        notes.append(f"of {', '.join(scopes)} only")
    age = _age_days(snapshots[-1].created, now or datetime.now(timezone.utc))
    if age is not None:
        notes.append(f"{age} days old" + (": old" if age > OLD_DAYS else ""))
    count = sum(not _is_too_short(one) for one in snapshots)
    notes.append(
        f"variation known from {count} runs"
        if count >= SPREAD_SNAPSHOTS
        else f"variation not known: {count} of {SPREAD_SNAPSHOTS} runs; save it again from more snapshots"
    )
    if count < len(snapshots):
        short = len(snapshots) - count
        verb = "is" if short == 1 else "are"
        notes.append(f"{short} of {len(snapshots)} runs {verb} too short to compare: less than {MIN_DURATION_S:g} s")
    if ever != always:
        notes.append(f"not in every run: {', '.join(sorted(ever - always))}")
    if baseline.ping:
        notes.append(_ping_note(baseline))
    return Summary(
        baseline.name, len(snapshots), hosts, kernels, profiles, sorted(always), snapshots[-1].created, notes
    )


def _is_too_short(snapshot: Snapshot) -> bool:
    times = [seconds(snapshot, name) for name, one in snapshot.probes.items() if one.status in MEASURED]
    return bool(times) and is_too_short(max(times))


def _of_ping(baseline: Baseline) -> Summary:
    hosts = list(dict.fromkeys(one.host for one in baseline.ping if one.host))
    kernels = list(dict.fromkeys(one.kernel for one in baseline.ping if one.kernel))
    return Summary(baseline.name, 0, hosts, kernels, [], [], baseline.saved, [_ping_note(baseline)])


def _ping_note(baseline: Baseline) -> str:
    return f"a ping, seen by {', '.join(one.role for one in baseline.ping)}"


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise bad("baseline", safe(name, 64), "expected a name of letters, digits, dots, dashes (64 at most)")
    return _folder() / f"{name}{_ENDING}"


def _valid(file: str) -> bool:
    return _NAME.fullmatch(PurePath(file).name.removesuffix(_ENDING)) is not None


def _folder() -> Path:
    return paths.user_data() / "baselines"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise bad(folder, "", f"cannot make this directory: {os.strerror(error.errno or 0).lower()}") from None


def _age_days(created: str, now: datetime) -> int | None:
    try:
        then = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    return max(0, (now - then).days)
