"""Describes a host, and finds network namespaces and kernel modules of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from netconsole.telemetry.frames import MAX_TEXT, Host
from netconsole_collector.host import host
from netconsole_collector.names.netns_labels import is_namespace_inode
from netconsole_collector.questions.namespace import inode_of

_MAX_CPUS = 8192


def describe() -> Host:
    """This machine."""
    return of_answer(host())


def of_answer(told: Mapping[str, object]) -> Host:
    """A host by what it says of itself. What it does not tell is empty."""
    texts = {name: _bounded(str(told.get(name, ""))) for name in ("name", "kernel", "arch", "os", "boot_id")}
    cpus = told.get("cpus")
    return Host(**texts, cpus=cpus if isinstance(cpus, int) and 1 <= cpus <= _MAX_CPUS else 1)


def namespace_inode(name: str) -> int | None:
    """The inode of a network namespace of this machine by its name in labels: ``host``, a name in /run/netns, or the
    inode itself."""
    return int(name) if is_namespace_inode(name) else inode_of(name)


def shows_module(name: str) -> bool:
    """Whether sysfs shows a kernel module: it is loaded, or built in and has parameters."""
    return Path(f"/sys/module/{name}").exists()


def _bounded(text: str) -> str:
    """As a frame takes it, whatever a far host says."""
    return text.encode("utf-8", "replace").decode()[:MAX_TEXT]
