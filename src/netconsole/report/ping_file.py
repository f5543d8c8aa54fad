"""Writes a breakdown where it is wanted: a document for a ticket, a section of a snapshot, or a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from netconsole.base.errors import bad
from netconsole.base.files import write_whole
from netconsole.base.output import FORMATS
from netconsole.compare.baseline import save_ping, saved_at
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown, encode
from netconsole.report.formats import rendered
from netconsole.report.formats.to_text import to_text
from netconsole.report.of_ping import of_ping
from netconsole.snapshot import document

KEPT = (*FORMATS, "snapshot", "baseline")
COLUMNS = 80


def ping_document(breakdown: Breakdown, form: str, formulas: bool = True) -> bytes:
    """The breakdown in one of the formats."""
    if form == "json":
        return encode(breakdown)
    shown = of_ping(breakdown, formulas or form != "text")
    if form == "text":
        return to_text(shown, COLUMNS).encode()
    return rendered(shown, form)


def into_snapshot(breakdown: Breakdown, snapshot: Path) -> None:
    """Makes the breakdown the section ``ping`` of a snapshot that exists. Raises BadInput."""
    whole = msgspec.structs.replace(document.load(snapshot), ping=breakdown)
    write_whole(snapshot, document.encode(whole))


def keep(breakdown: Breakdown, files: Sequence[CaptureFile], kind: str, name: str) -> str:
    """Keeps it as one of KEPT; a sentence that says where it is. Only a baseline is replaced. Raises BadInput."""
    if kind == "baseline":
        if not files:
            raise bad(name, "", "a baseline needs captures, and this is only a breakdown")
        before = saved_at(name)
        save_ping(name, files)
        replaced = "" if before is None else f" (replaced that of {before})"
        return f"kept as the baseline {name}{replaced}: netconsole ping analyze … --baseline {name}"
    path = Path(name)
    if kind == "snapshot":
        into_snapshot(breakdown, path)
        return f"written into the snapshot {name}"
    if path.exists():
        raise bad(path, "", "exists already: name another file")
    write_whole(path, ping_document(breakdown, kind))
    return f"written to {name}"
