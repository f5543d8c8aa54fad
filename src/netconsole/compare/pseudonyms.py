"""Names that are pseudonyms on one side only: what lacks such a name there may have it in its other form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import Snapshot
from netconsole.snapshot.redact import PSEUDONYM, Redactor, is_redacted

NAMES = "names"
"""What is said of all names together, among what cannot be compared."""
WHY = "a name that is a pseudonym on one side only"


class DifferingNames(NamedTuple):
    """Why names cannot be compared (None: they can), and whether a value has one that the other side has otherwise."""

    why: str | None
    within: Callable[[object], bool]


def differing_names(
    current: Snapshot, baseline: Sequence[Snapshot], manifests: Mapping[str, Manifest]
) -> DifferingNames:
    """The names of snapshots of which some are redacted and some are not."""
    now, before = is_redacted(current), [is_redacted(one) for one in baseline]
    if all(one == now for one in before):
        return DifferingNames(None, lambda _: False)
    # What is a name only the redactor knows: what it would change, with any key.
    redactor = Redactor(b"any")
    for one, redacted in zip((current, *baseline), (now, *before), strict=True):
        if not redacted:
            redactor.learn(one, manifests)

    def within(value: object) -> bool:
        if isinstance(value, list):
            return any(map(within, value))
        return isinstance(value, str) and (PSEUDONYM.search(value) is not None or redactor.text(value) != value)

    side = (
        "the current snapshot" if not any(before) else "the baseline" if all(before) and not now else "a part of them"
    )
    why = f"only {side} is redacted, so nothing that has a name is compared; redact all with the same key, or none"
    return DifferingNames(why, within)
