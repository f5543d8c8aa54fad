"""Facts of a host: what a value can be, and keys ``area/thing/property``, whatever the names of things contain."""

from typing import List, Union

FactValue = Union[str, int, float, bool, List[str], None]


def key(*parts: Union[str, int]) -> str:
    """The key of a fact: its parts joined by ``/``. A ``/`` inside a part (a name from outside) becomes %2F."""
    return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in parts)


def parts(fact_key: str) -> List[str]:
    """The parts that :func:`key` joined."""
    return [part.replace("%2F", "/").replace("%25", "%") for part in fact_key.split("/")]
