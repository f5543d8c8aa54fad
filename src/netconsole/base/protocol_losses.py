"""What a counter of the kernel's protocols means, for those that mean a loss (protocol_losses.toml)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from netconsole.base.readers import read_toml


@cache
def meanings() -> dict[str, tuple[str, str]]:
    """By counter, as nstat(8) names it: "loss" or "noise", and what it means."""
    found: dict[str, tuple[str, str]] = {}
    for kind, part in read_toml(Path(__file__).with_suffix(".toml")).items():
        assert isinstance(part, dict)
        found.update({name: (kind, text) for name, text in part.items()})
    return found
