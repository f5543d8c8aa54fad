"""What a label stands for when two measurements are compared: a tap for its VM's device, a thread for its role.

A manifest says it with ``stands_for``. Where it does not, the label's name says it, and then how it is shown.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Meaning: TypeAlias = Literal["device", "process", "thread", "port", "netns", "cpu", "nothing", "itself"]
MEANINGS: tuple[Meaning, ...] = ("device", "process", "thread", "port", "netns", "cpu", "nothing", "itself")

_USUAL: tuple[tuple[Meaning, tuple[str, ...]], ...] = (
    ("device", ("device", "dev", "interface", "ifname", "port_name")),
    ("process", ("process", "comm", "task", "thread", "worker")),
    ("thread", ("pid", "tid", "tgid")),
    ("port", ("port", "local_port", "remote_port", "sport", "dport")),
    ("netns", ("netns",)),
    ("cpu", ("cpu",)),
    ("nothing", ("inode", "cookie", "ifindex", "socket_id")),
)
"""The field's usual names of labels. A process or thread has a number in its name, or is one."""
BY_NAME: dict[str, Meaning] = {name: meaning for meaning, names in _USUAL for name in names}
_BY_KIND: dict[str, Meaning] = {
    "tap": "device",
    "process": "process",
    "socket": "process",
    "netns": "netns",
    "cpu": "cpu",
}
"""How a label is shown: ``as`` in a manifest."""


def meaning(name: str, shown_as: str | None = None) -> Meaning:
    """What a label stands for where nobody says it."""
    return BY_NAME.get(name) or _BY_KIND.get(shown_as or "", "itself")
