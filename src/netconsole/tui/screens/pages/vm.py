"""One VM on one page: what caps it, what excludes the rest, and its threads, queues and links (docs/use/vm.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netconsole.base import figure
from netconsole.report.formats.to_text import to_text
from netconsole.report.of_vm import of_vm
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line

INTERVALS = 5
"""From a mark to the page that is made of what was counted since."""
_TONES: dict[str, Tone] = {"!!": "act", "! ": "look", "? ": "dim"}


class VmScreen(OverScreen):
    """It is made anew every few intervals, of these alone; of the past, of all up to what is shown, when that moves."""

    def __init__(self, vm: str, take: Callable[[builder.Totals], Snapshot], is_replayed: bool) -> None:
        """``take`` makes a snapshot of what was counted since a mark; in a thread."""
        super().__init__()
        self._vm, self._take, self._is_replayed = vm, take, is_replayed
        self._mark: builder.Totals | None = None
        self._begun = -1
        """The interval of the mark; of a recording, that of the page."""
        self._is_busy = False
        self._lines: list[Line] = []

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        """What is known of it; until the first page is made, what is awaited."""
        if self._lines:
            return self._lines
        wait = "" if self._is_replayed else f", {INTERVALS} intervals"
        return [[(f" VM {figure.safe(self._vm, 60)}", "strong"), (f"  measuring{wait}…", "dim")]]

    def draw(self, scene: Scene) -> None:
        """An interval has ended."""
        super().draw(scene)
        if self._is_busy:
            return
        seen = scene.state.collector.intervals
        is_due = seen >= self._begun + INTERVALS
        if self._mark is None or self._is_replayed:
            is_due = self._is_replayed and seen != self._begun
            self._mark, self._begun = builder.totals(scene.state), seen
        if is_due:
            self._is_busy, mark = True, self._mark
            self._mark = None
            in_thread(self, lambda: self._make(mark), self._failed)

    def _make(self, mark: builder.Totals) -> None:
        text = to_text(of_vm(self._take(mark), self._vm))
        self.app.call_later(self._made, [_line(one) for one in text.splitlines()])

    def _made(self, lines: list[Line]) -> None:
        self._lines, self._is_busy = lines, False
        self.app.call_later(self.app.run_action, "redraw")

    def _failed(self, why: str) -> None:
        self._is_busy = False
        self.say(why, "act")


def _line(text: str) -> Line:
    if text.isupper():
        return [(f" {text}", "head")]
    return [(f" {text}", _TONES.get(text[:2], ""))]
