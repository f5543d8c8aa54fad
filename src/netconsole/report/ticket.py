"""Makes the document for a ticket from a snapshot, in any format; redacted and compared on request."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netconsole.compare import baseline
from netconsole.compare.compare import compare
from netconsole.probes.manifest import Manifest
from netconsole.report.blocks import Document, Heading, ReportBlock
from netconsole.report.formats import rendered
from netconsole.report.of_comparison import of_comparison
from netconsole.report.of_snapshot import NOTE, of_snapshot
from netconsole.report.short_form import MAX_COMPARED
from netconsole.snapshot.document import Snapshot, encode
from netconsole.snapshot.redact import Redactor
from netconsole.snapshot.redact_key import user_key

ReferenceSnapshots = tuple[list[Snapshot], list[str]]


def reference(name_or_file: str | None) -> ReferenceSnapshots | None:
    """Reads the baseline to compare with. Call it before anything is measured. Raises BadInput."""
    return None if name_or_file is None else baseline.resolve(name_or_file)


def redactor(wanted: bool) -> Redactor | None:
    """A redactor with the user's key, or None when it is not wanted. Raises BadInput when there can be no key."""
    return Redactor(user_key()) if wanted else None


def render(
    snapshot: Snapshot,
    form: str,
    manifests: Mapping[str, Manifest],
    against: ReferenceSnapshots | None = None,
    hide: Redactor | None = None,
) -> tuple[bytes, int]:
    """The document and the exit code (1 when it is worse than the baseline, 3 when nothing could be compared)."""
    if hide is not None:
        snapshot = hide.snapshot(snapshot, manifests)
        against = None if against is None else ([hide.snapshot(one, manifests) for one in against[0]], [])
    comparison = None if against is None else compare(snapshot, *against, manifests)
    code = 0 if comparison is None else comparison.exit_code
    if form == "json":
        if comparison is None:
            return encode(snapshot), code
        # A key that is not in the schema: readers of snapshots ignore it.
        return msgspec.json.encode({**msgspec.to_builtins(snapshot), "comparison": comparison}) + b"\n", code
    if comparison is None:
        document = of_snapshot(snapshot, manifests)
    else:
        document = _with_comparison(
            of_snapshot(snapshot, manifests, MAX_COMPARED), of_comparison(comparison, MAX_COMPARED)
        )
    return rendered(document, form), code


def _with_comparison(document: Document, compared: Document) -> Document:
    """Puts the verdict first, after the user's note. The tables of the comparison are behind."""
    blocks = document.blocks
    words = 2 if blocks and blocks[0] == Heading(NOTE) else 0
    headings: list[ReportBlock] = [
        Heading(f"Compared with the baseline: {block.text.lower()}") if isinstance(block, Heading) else block
        for block in compared.blocks
    ]
    verdict = next((at for at, block in enumerate(headings) if at and isinstance(block, Heading)), len(headings))
    return Document(
        document.title,
        f"{document.subtitle}. {compared.subtitle}",
        [*blocks[:words], *headings[:verdict], *blocks[words:]],
        [*headings[verdict:], *document.behind],
    )
