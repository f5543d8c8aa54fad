"""Question `interfaces`: the names of all network devices, in every network namespace that is watched."""

from contextlib import ExitStack, closing, suppress
from typing import Any, Set

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.known import Json
from netconsole_collector.sources.namespaces import OpenNamespaces
from netconsole_collector.sources.net.namespace_links import parse_devices


def answer(arguments: Json) -> Any:
    """A list of names. Raises OSError."""
    found: Set[str] = set()
    with ExitStack() as undone:
        namespaces: OpenNamespaces[Any] = undone.enter_context(closing(OpenNamespaces(lambda inside: inside, Here())))
        namespaces.open()
        for one in undone.enter_context(namespaces.held()):
            with suppress(OSError):  # it has just gone
                found |= {
                    name for name, _ in parse_devices(one.thing.devices().decode("utf-8", "backslashreplace")).values()
                }
    return sorted(found)
