"""Gives the target of a host: this machine, or one at the end of a line."""

from __future__ import annotations

import weakref
from contextlib import closing
from threading import Lock

import msgspec

from netconsole.far.host import AnyHost
from netconsole.far.program import Launch, RunningProgram
from netconsole.host import door, identity
from netconsole.host.far_target import FarTarget
from netconsole.host.question_line import QuestionLine
from netconsole.host.target import Target
from netconsole.telemetry.frames import Host
from netconsole_collector.names.netns_labels import is_namespace_inode
from netconsole_collector.primitives.here import HERE


class NamespaceInode(msgspec.Struct, frozen=True):
    """Of a network namespace."""

    inode: int | None


class NamespaceNames(msgspec.Struct, frozen=True):
    """Of a network namespace."""

    names: set[str]
    is_own: bool


_lock = Lock()
_lines: weakref.WeakKeyDictionary[AnyHost, QuestionLine] = weakref.WeakKeyDictionary()


def target_of(host: AnyHost) -> Target:
    """What the sources may ask of it. All targets of a host share one line; whoever asks for one closes it."""
    return HERE if host.address is None else FarTarget(line_of(host))


def describe(host: AnyHost) -> Host:
    """Who it is."""
    with closing(target_of(host)) as target:
        return identity.describe(target)


def namespace_inode(host: AnyHost, name: str) -> int | None:
    """The inode of a network namespace by its name in labels. None where there is none, or the host does not answer."""
    if is_namespace_inode(name):
        return int(name)
    try:
        return door.ask(host, "namespace", {"name": name}, NamespaceInode).inode
    except OSError:
        return None


def namespace_names(host: AnyHost, inode: int) -> tuple[set[str], bool]:
    """What labels call a network namespace: its inode and all its names. And whether it is the collector's own.

    Raises Unanswered.
    """
    told = door.ask(host, "namespace", {"inode": inode}, NamespaceNames)
    return told.names, told.is_own


def line_of(host: AnyHost) -> QuestionLine:
    """The line to a far host. It is opened by the first question, and closed with the host."""
    with _lock:
        line = _lines.get(host)
        if line is None:
            there = weakref.ref(host)

            def start() -> RunningProgram | Launch:
                now = there()
                assert now is not None
                return now.answering()

            line = _lines[host] = QuestionLine(start, str(host.address))
            host.also_close(line.close)
        return line
