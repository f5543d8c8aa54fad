"""The ends of a flow as the filters `address` and `port` name them: one, both, and in one direction or either.

`X`: at either end. `X,Y`: between the two, in either direction. `from:X`, `to:Y`, `from:X,to:Y`: in one direction.
"""

from typing import Any, List, NamedTuple, Optional

FROM, TO = "from:", "to:"


class EndsError(ValueError):
    """The text names no ends."""


class FlowEnds(NamedTuple):
    """What the two ends of a flow have to be; empty: anything. ``single``: either end has to be it."""

    single: str
    first: str
    second: str
    is_one_way: bool


NO_ENDS = FlowEnds("", "", "", False)


def parse(value: Any) -> FlowEnds:
    """The ends that a filter names. Raises EndsError; whether each is an address or a port is not checked."""
    if value is None or value == "" or value == 0:
        return NO_ENDS
    words = [word.strip() for word in str(value).split(",")]
    if len(words) > 2 or not all(words):
        raise EndsError("more than two ends")
    source = _marked(words, FROM)
    target = _marked(words, TO)
    if source is None and target is None:
        return FlowEnds(words[0], "", "", False) if len(words) == 1 else FlowEnds("", words[0], words[1], False)
    if len(words) != (source is not None) + (target is not None) or "" in (source, target):
        raise EndsError("an end without a direction")
    return FlowEnds("", source or "", target or "", True)


def _marked(words: List[str], mark: str) -> Optional[str]:
    found = [word[len(mark) :] for word in words if word.startswith(mark)]
    return found[0] if len(found) == 1 else None
