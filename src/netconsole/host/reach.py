"""Gives the target of a host: this machine, or one at the end of a line."""

from __future__ import annotations

import weakref
from contextlib import closing
from threading import Lock

from netconsole.far.host import AnyHost
from netconsole.far.program import Launch, RunningProgram
from netconsole.host import identity
from netconsole.host.far_target import FarTarget
from netconsole.host.question_line import QuestionLine
from netconsole.host.target import Target
from netconsole.telemetry.frames import Host
from netconsole_collector.primitives.here import HERE

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
    """See :func:`netconsole.host.identity.namespace_inode`."""
    with closing(target_of(host)) as target:
        return identity.namespace_inode(name, target)


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
