"""Stores calibrations: one private file for each host and kernel, in $XDG_DATA_HOME/netconsole/calibrations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

import msgspec

import netconsole
from netconsole.base import paths
from netconsole.base.errors import UNREADABLE, BadInput, bad
from netconsole.base.figure import safe
from netconsole.base.files import write_whole
from netconsole.base.readers import read_bytes, stat_of
from netconsole.calibrate.estimate import METHOD
from netconsole.calibrate.result import SCHEMA, Calibration, Entry
from netconsole.host.identity import describe
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import HostData
from netconsole.telemetry.frames import Host, Mode
from netconsole.telemetry.state import CostPerCount

MAX_BYTES = 4 * 1024 * 1024
_OTHER = re.compile(r"[^A-Za-z0-9._-]")

_decoder = msgspec.json.Decoder(Calibration)


def load(host: Host | HostData | None = None) -> Calibration | None:
    """The calibration of a host (None: this one) with its kernel; None when there is none.

    Raises BadInput for a broken file.
    """
    whose = host or describe()
    path = _path(whose.name, whose.kernel)
    if stat_of(path) is None:
        return None
    content = read_bytes(path, MAX_BYTES)
    try:
        found = _decoder.decode(content)
    except (*UNREADABLE, ValueError) as error:
        raise bad(
            path, "", f"this file is no calibration: {safe(error)}; remove the file and calibrate again"
        ) from None
    if found.schema != SCHEMA:
        raise bad(path, "schema", f"expected {SCHEMA}; remove the file and calibrate again")
    return found


def known(host: Host | None = None) -> Calibration | None:
    """The same, but None for a file that is broken or belongs to another user: measuring goes on without it."""
    try:
        return load(host)
    except (BadInput, OSError):
        return None


def per_count(manifests: Mapping[str, Manifest]) -> CostPerCount:
    """The calibrated cost of a count on this host, by probe and mode, for the probes' current versions."""
    found = known()
    entries = sorted(found.entries.values(), key=lambda one: one.created) if found is not None else []
    return {
        (probe, mode): (one.per_count[probe].counter, one.per_count[probe].ns)
        for one in entries
        for probe, text in one.probes.items()
        for mode in get_args(Mode)
        if mode == text and probe in one.per_count and _is_of(one, probe, manifests)
    }


def _is_of(entry: Entry, probe: str, manifests: Mapping[str, Manifest]) -> bool:
    return probe in manifests and entry.versions.get(probe) == manifests[probe].version


def made(entries: Iterable[Entry], host: Host | None = None) -> Calibration:
    """A calibration of a host (None: this one) with these entries."""
    of = host or describe()
    data = HostData(of.name, of.kernel, of.arch, of.os, of.cpus, of.boot_id)
    return Calibration(SCHEMA, netconsole.__version__, data, METHOD, {entry.name: entry for entry in entries})


def save(calibration: Calibration) -> Path:
    """Store it. Earlier entries of its host and kernel are kept, unless they are replaced. Raises BadInput."""
    path = _path(calibration.host.name, calibration.host.kernel)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise bad(path.parent, "", f"cannot make this directory: {os.strerror(error.errno or 0).lower()}") from None
    before = load(calibration.host)
    if before is not None:
        calibration = msgspec.structs.replace(calibration, entries={**before.entries, **calibration.entries})
    write_whole(path, msgspec.json.encode(calibration) + b"\n")
    return path


def _path(host: str, kernel: str) -> Path:
    """The file name is made from the host's names, so replace all that could lead out of the directory."""
    name = f"{_OTHER.sub('_', host)[:64]}-{_OTHER.sub('_', kernel)[:64]}.json"
    return paths.user_data() / "calibrations" / name
