"""The questions by name, and how long each may take. Each is a module, imported when it is asked first."""

from importlib import import_module
from typing import Any, Dict

CAUSE_S = 10.0
"""Of why something is wrong: nobody looks at an empty screen meanwhile, and a host in trouble answers late."""
_NETWORK = ("backlog", "bridge_loop", "bridge_port", "conntrack", "firewall", "fragments", "neighbour", "ovs_rule",
            "programs", "queue", "route", "sockets", "stranger")  # fmt: skip
"""Those whose module is in `net`."""
KNOWN: Dict[str, float] = {
    **dict.fromkeys(_NETWORK, CAUSE_S),
    "command": 10.0,
    "counters": CAUSE_S,
    "disk": CAUSE_S,
    "facts": 10.0,
    "host": 3.0,
    "interfaces": 3.0,
    "machine": 3.0,
    "namespace": 3.0,
    "ping_ends": 10.0,
    "reader": CAUSE_S,
    "receiving": CAUSE_S,
    "rivals": CAUSE_S,
    "settings": CAUSE_S,
}
"""Seconds after which nobody waits for the answer any more."""

Json = Dict[str, Any]


class BadQuestion(ValueError):
    """A question that is refused, or that has no answer here. ``str()`` is one sentence."""


def limit_s(name: str) -> float:
    """How long it may take. Raises BadQuestion for one that is not known."""
    if name not in KNOWN:
        raise BadQuestion("unknown question {!r}: expected {}".format(name[:40], ", ".join(KNOWN)))
    return KNOWN[name]


def module(name: str) -> Any:
    """The module of a known question."""
    return import_module("netconsole_collector.questions." + ("net." if name in _NETWORK else "") + name)


def answer(name: str, arguments: Json) -> Any:
    """The document that answers a known question, of JSON's own types. Raises whatever its module does."""
    return module(name).answer(arguments)


def sentence(error: Exception) -> str:
    """Why there is no answer."""
    if isinstance(error, BadQuestion):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "{}: {}".format(type(error).__name__, error)


def text(arguments: Json, key: str) -> str:
    """A text among the arguments. Raises BadQuestion."""
    value = arguments.get(key)
    if not isinstance(value, str):
        raise BadQuestion("{}: expected a text".format(key))
    return value
