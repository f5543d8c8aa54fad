"""Inodes of network namespaces by the names in labels. A far host is asked in a thread: its line may stall."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from netconsole.far.host import AnyHost
from netconsole.host.door import namespace_inode
from netconsole.telemetry.frames import Label
from netconsole_collector.names.netns_labels import is_namespace_inode


class NamespaceInodes:
    """Of one host. Any thread may use it."""

    def __init__(self, host: AnyHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._found: dict[str, int | None] = {}
        """Answers that nobody has taken yet: an inode is good for one use, since namespaces come and go."""

    def ask(self, labels: Mapping[str, Label]) -> None:
        """Find the namespace that these labels name. On a far host this may take seconds: hold no lock."""
        name = self._far_name(labels)
        if name is not None:
            self._ask(name)

    def is_ready(self, labels: Mapping[str, Label]) -> bool:
        """Whether :meth:`inode` will not wait. If not, the host is being asked: try again later."""
        name = self._far_name(labels)
        if name is None:
            return True
        with self._lock:
            if name in self._found or name in self._asked:
                return name in self._found
            self._asked.add(name)
        threading.Thread(target=self._ask, args=(name,), name="namespace", daemon=True).start()
        return False

    def inode(self, name: str) -> int | None:
        """None when it is not known. Does not wait after :meth:`ask`, or when :meth:`is_ready`."""
        with self._lock:
            if name in self._found:
                return self._found.pop(name)
        return namespace_inode(self._host, name)

    def _far_name(self, labels: Mapping[str, Label]) -> str | None:
        """What the far host has to be asked for."""
        name = labels.get("netns")
        is_asked = self._host.address is not None and isinstance(name, str) and not is_namespace_inode(name)
        return str(name) if is_asked else None

    def _ask(self, name: str) -> None:
        inode = namespace_inode(self._host, name)
        with self._lock:
            self._asked.discard(name)
            self._found[name] = inode
