"""Asks a host one bounded question, and gets one document (docs/design/collector.md#questions).

This machine is asked in a thread of this process; a far host by its collector: that of the session, or one that is
started for the question and waits for a session.
"""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Mapping
from typing import Any, TypeVar, overload

import msgspec

from netconsole.base.errors import UNREADABLE, Unable
from netconsole.base.figure import safe
from netconsole.far.host import AnyHost
from netconsole.far.program import Gone
from netconsole.host import identity
from netconsole.host.collector_process import CollectorProcess, Unanswered
from netconsole.telemetry.frames import Host
from netconsole_collector.names.netns_labels import is_namespace_inode
from netconsole_collector.questions.known import answer, limit_s, sentence

LINE_S, START_S = 10.0, 40.0
"""How long a far host may take beside the question's own time; and how long its program to start there: where there is
no CPU time left, far longer."""
_LOOK_S = 0.5


class NamespaceInode(msgspec.Struct, frozen=True):
    """Of a network namespace."""

    inode: int | None


class NamespaceNames(msgspec.Struct, frozen=True):
    """Of a network namespace."""

    names: set[str]
    is_own: bool


class MachineNow(msgspec.Struct, frozen=True):
    """Times of all CPUs of a host since boot, and packets that its kernel has received; None: not known."""

    busy_ms: int
    all_ms: int
    packets: int | None


AskedDocument = TypeVar("AskedDocument")
_lock = threading.Lock()
_collectors: weakref.WeakKeyDictionary[AnyHost, CollectorProcess] = weakref.WeakKeyDictionary()
"""Of far hosts: that which answers."""
_waiting: weakref.WeakSet[CollectorProcess] = weakref.WeakSet()
"""Those that no session has taken yet."""


@overload
def ask(host: AnyHost, question: str, arguments: Mapping[str, object] | None = None) -> Any: ...
@overload
def ask(
    host: AnyHost, question: str, arguments: Mapping[str, object] | None, kind: type[AskedDocument]
) -> AskedDocument: ...
def ask(host: AnyHost, question: str, arguments: Mapping[str, object] | None = None, kind: Any = Any) -> Any:
    """The document that answers, of this ``kind``. Waits for it. Raises Unanswered, with one sentence."""
    if host.address is None:
        document = _ask_here(question, arguments or {})
    else:
        process = _of(host)
        beside_s = LINE_S if process.received_bytes else START_S
        document = process.ask(question, arguments or {}, limit_s(question) + beside_s)
    try:
        return msgspec.convert(document, kind)
    except UNREADABLE as error:
        raise Unanswered(errno.EPROTO, f"{question}: an answer that makes no sense: {safe(error, 120)}") from None


def collector_for_session(host: AnyHost, environment: Mapping[str, str] | None = None) -> CollectorProcess:
    """A collector whose frames nobody reads yet. Raises Unable and CollectorGone."""
    if host.address is None:
        return CollectorProcess(host.measuring(), environment)
    with _lock:
        process = _collectors.get(host)
        if process is None or process not in _waiting or process.has_ended:
            process = _start(host, environment)
        _waiting.discard(process)
        return process


def describe(host: AnyHost) -> Host:
    """Who it is. Empty where it does not answer."""
    try:
        return identity.of_answer(ask(host, "host", None, dict[str, str | int]))
    except Unanswered:
        return identity.of_answer({})


def namespace_inode(host: AnyHost, name: str) -> int | None:
    """The inode of a network namespace by its name in labels. None where there is none, or the host does not answer."""
    if is_namespace_inode(name):
        return int(name)
    try:
        return ask(host, "namespace", {"name": name}, NamespaceInode).inode
    except Unanswered:
        return None


def namespace_names(host: AnyHost, inode: int) -> tuple[set[str], bool]:
    """What labels call a network namespace: its inode and all its names. And whether it is the collector's own.

    Raises Unanswered.
    """
    told = ask(host, "namespace", {"inode": inode}, NamespaceNames)
    return told.names, told.is_own


def _of(host: AnyHost) -> CollectorProcess:
    with _lock:
        process = _collectors.get(host)
        if process is None or process.has_ended:
            try:
                process = _start(host, None)
            except (Unable, Gone) as error:
                raise Unanswered(errno.EHOSTUNREACH, str(error)) from None
        return process


def _start(host: AnyHost, environment: Mapping[str, str] | None) -> CollectorProcess:
    process = _collectors[host] = CollectorProcess(host.measuring(), environment, _LOOK_S)
    _waiting.add(process)
    host.also_close(process.close)
    return process


def _ask_here(question: str, arguments: Mapping[str, object]) -> object:
    told: list[object] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            told.append(answer(question, dict(arguments)))
        except Exception as error:
            failed.append(error)

    # What hangs in a driver cannot be interrupted. It stays behind in a daemon thread.
    thread = threading.Thread(target=run, name=f"question {question}", daemon=True)
    thread.start()
    thread.join(limit_s(question))
    if failed:
        raise Unanswered(errno.EIO, sentence(failed[0]))
    if not told:
        raise Unanswered(errno.ETIMEDOUT, f"{question}: no answer within {limit_s(question):g} s")
    return told[0]
