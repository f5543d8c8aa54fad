"""Loads probes into the collector of a far host: they are compiled on this machine first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import CommandError
from netconsole_collector.compile.refused import TRY_PLAIN

if TYPE_CHECKING:
    from netconsole.far.compiling import FarCompiler


def load(
    compiler: FarCompiler,
    request: ProbeRequest,
    send: Callable[[Mapping[str, object]], Future[None]],
    failed: Callable[[str], None],
) -> Future[None]:
    """Compile a probe in a thread of its own, then ``send`` what its load command needs beside the request.

    ``failed`` is told why it could not be compiled. The future has the collector's answer, or a CommandError.
    """
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()  # whoever waits may stop waiting, but cannot stop the compiler

    def attempt(is_plain: bool) -> None:
        try:
            prepared = compiler.prepare(request.spec, request.code, is_plain)
        except Exception as error:  # a defect, or a kernel's types that make no sense: the other probes go on
            why = f"could not be compiled: {type(error).__name__}: {error}"
            failed(why)
            raise CommandError(why) from error
        send(prepared).result()

    def compile_and_send() -> None:
        try:
            try:
                attempt(is_plain=False)
            except CommandError as error:
                if str(error) != TRY_PLAIN:
                    raise
                attempt(is_plain=True)
        except CommandError as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=compile_and_send, name="compile", daemon=True).start()
    return future
