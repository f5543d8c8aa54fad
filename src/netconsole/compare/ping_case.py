"""The ping case of a baseline: its captures, or the section ``ping`` of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netconsole.base.errors import bad
from netconsole.base.readers import read_bytes
from netconsole.compare import baseline
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.cases import PingCase, case_of, read_case, schema_of
from netconsole.snapshot import document


def baseline_case(names: Sequence[str]) -> PingCase:
    """The case of ``--baseline``: its files, or the name of a baseline. Raises BadInput."""
    if len(names) == 1:
        [name] = names
        if baseline.is_name(name):
            return _of_baseline(baseline.load(name, or_file=True))
        path = Path(name)
        if path.is_file():
            content = read_bytes(path, document.MAX_BYTES)
            if schema_of(content) == document.SCHEMA:
                return _of_snapshots([document.parse(content, name)], path.name)
    return read_case(names)


def _of_baseline(found: baseline.Baseline) -> PingCase:
    if found.ping:
        files = [CaptureFile(f"{found.name}: {one.role}", one) for one in found.ping]
        return case_of(files, found.name)
    return _of_snapshots(found.snapshots, found.name)


def _of_snapshots(snapshots: Sequence[document.Snapshot], name: str) -> PingCase:
    for snapshot in reversed(snapshots):
        if snapshot.ping is not None:
            return PingCase(name, snapshot.ping)
    raise bad(name, "ping", "holds no ping: netconsole baseline save NAME CAPTURE… makes a baseline of captures")
