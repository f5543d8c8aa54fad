"""The filter `reason`: drop reasons by their names in the running kernel.

`A` or `A,B`: only these. `not:A,B`: all but these. Upper and lower case are the same.
"""

import re
from typing import Any, Dict, List, NamedTuple

from netconsole_collector.names.drop_reasons import values_of

NOT = "not:"
MAX_REASONS = 8
"""NC_REASONS of probes/common/config.h."""
_NAME = re.compile("[A-Z][A-Z0-9_]{0,63}$")


class ReasonError(ValueError):
    """The text names no drop reasons. The message says what was expected."""


class ReasonFilter(NamedTuple):
    """Names of drop reasons; none: every reason passes. ``is_without``: all but these pass."""

    names: List[str]
    is_without: bool

    def passes(self, reason: str) -> bool:
        """Whether a packet with this reason is counted."""
        return not self.names or (reason in self.names) != self.is_without


def parse(value: Any) -> ReasonFilter:
    """What a filter names. Raises ReasonError; whether the kernel has such reasons is not checked."""
    text = value.strip() if isinstance(value, str) else "?"
    if not text:
        return ReasonFilter([], False)
    is_without = text.lower().startswith(NOT)
    names = [word.strip().upper() for word in text[len(NOT) if is_without else 0 :].split(",")]
    if len(names) > MAX_REASONS or not all(map(_NAME.match, names)):
        raise ReasonError("expected at most {} drop reasons, such as A,B or not:A,B".format(MAX_REASONS))
    return ReasonFilter(names, is_without)


def numbers(wanted: ReasonFilter, known: Dict[str, str]) -> List[int]:
    """The kernel's numbers of these reasons. ``known`` is what ``drop_reasons.from_btf`` found. Raises ReasonError."""
    values = values_of(known)
    for name in wanted.names:
        if not values:
            raise ReasonError("the drop reasons of this kernel are not known: they came with 5.17, and BTF has them")
        if name not in values:
            import difflib  # only here: most runs are without a mistake

            near = difflib.get_close_matches(name, values, 3)
            meant = ": did you mean {}?".format(" or ".join(near)) if near else ""
            raise ReasonError("this kernel has no drop reason {}{}".format(name, meant))
    return [values[name] for name in wanted.names]
