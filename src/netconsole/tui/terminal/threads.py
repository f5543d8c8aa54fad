"""Runs work of a screen in a thread, and shows the user when it fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from textual.dom import DOMNode

from netconsole.base.figure import safe

MAX_MESSAGE = 200


def in_thread(node: DOMNode, work: Callable[[], None], failed: Callable[[str], object]) -> None:
    """Runs ``work`` in a thread of ``node``. ``work`` shows its result itself.

    An exception that ``work`` raises is a bug. ``failed`` gets one line that names it, in the thread of the screen.
    """

    def run() -> None:
        try:
            work()
        except Exception as error:  # of any kind: else the screen would wait forever
            node.app.call_later(failed, defect(error))

    node.run_worker(run, thread=True)


def defect(error: Exception) -> str:
    """One line for a bug report: what was raised, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    raised = f"{type(error).__name__}: {error}"
    return f"a bug in netconsole, {Path(where.filename).name} line {where.lineno}: {safe(raised, MAX_MESSAGE)}"
