"""What a probe's rule for STANDS OUT (findings in probe.toml) says of one row: whether it fits, and its sentence."""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.base import figure
from netconsole.probes.manifest import FindingSpec

_MAX_NAME = 64
_DEVICES = ("device", "port")
"""Labels that name a device: the host's lo is not that of a container, and a sentence says which."""


def fits(rule: FindingSpec, labels: Mapping[str, object]) -> bool:
    """Whether the row is one that the rule speaks of."""
    return all(str(labels.get(name)) == wanted for name, wanted in rule.where.items())


def say(rule: FindingSpec, labels: Mapping[str, object], words: Mapping[str, str]) -> str:
    """The rule's sentence on one row, for people; names from outside are made safe for a terminal."""
    named = {name: figure.safe(value, _MAX_NAME) for name, value in labels.items()}
    namespace = labels.get("netns")
    for label in _DEVICES:
        if isinstance(labels.get(label), str):
            where = "" if namespace in (None, "", "host") else f" (netns {named['netns']})"
            named[label] = f"{named[label] or 'unknown device'}{where}"
    try:
        return rule.say.format(**{**named, **words})
    except (KeyError, IndexError, ValueError) as error:
        # The manifest promised a label that this row has not: say so rather than nothing.
        return f"{rule.say} ({error.args[0]}: not in this row)"
