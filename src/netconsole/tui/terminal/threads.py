"""Work in a thread, for a screen: whatever becomes of it, somebody is told."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from textual.dom import DOMNode

from netconsole.base.figure import safe

MAX_SAID = 200


def in_thread(node: DOMNode, work: Callable[[], None], failed: Callable[[str], object]) -> None:
    """Run ``work`` in a thread of ``node``; it tells its outcome itself.

    What it raises is a defect, foreseen by nobody: ``failed`` gets one line that names it, in the thread of the screen.
    """

    def run() -> None:
        try:
            work()
        except Exception as error:  # whatever it is: a screen that waits for ever tells less
            node.app.call_later(failed, defect(error))

    node.run_worker(run, thread=True)


def defect(error: Exception) -> str:
    """One line for a report: what was raised, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error}"
    return f"a defect of netconsole, {Path(where.filename).name} line {where.lineno}: {safe(said, MAX_SAID)}"
