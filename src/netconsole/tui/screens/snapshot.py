"""The snapshot dialog: asks for time, note, form and file, measures, and writes the file."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from netconsole.base import figure, output
from netconsole.base.errors import BadInput, bad
from netconsole.base.figure import parse_duration, safe
from netconsole.base.output import FORMATS
from netconsole.snapshot import builder
from netconsole.snapshot.document import CommandData, Snapshot
from netconsole.telemetry.session import ReadsWhole, Session
from netconsole.tui import actions
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.pages.text_page import wrap
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.bars import bar
from netconsole.tui.widgets.choice import Choice
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.look import Tone

LOOK_EVERY_S = 0.2
MAX_DURATION_S = 24 * 3600.0
MAX_NOTE = 2000
DEFAULT_FORMAT = "json"
BAR_COLUMNS = 30
_HINTS = {
    "time": "how long from now, such as 10s or 2m; empty: everything since the start",
    "note": "what you see or suspect, for the reader",
    "form": "json: can be compared and loaded; md: for a ticket; html: a page with charts",
    "file": "a new file; nothing is overwritten",
    "commands": "yes: with what the commands said that you ran (x); not where redact is yes",
    "redact": "yes: pseudonyms for addresses, MACs, host, VMs, processes, devices, namespaces",
}

Step = Literal["asking", "measuring", "writing"]


@dataclass(frozen=True)
class Wanted:
    """What the user has entered. ``duration_s`` is None for everything since the start."""

    duration_s: float | None
    note: str | None
    form: str
    file: Path
    redact: bool
    commands: bool = False


class SnapshotScreen(Screen[None]):
    """Enter measures and writes; Esc, or q where no text is typed, leaves without a file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("over"),
        # Before the field gets the key: what is typed right after it belongs into the next field, also on a slow host.
        Binding("down", "app.focus_next", show=False, priority=True),
        Binding("up", "app.focus_previous", show=False, priority=True),
        Binding("ctrl+c", "app.leave", show=False),
    ]

    def __init__(
        self,
        session: Session,
        take: Callable[[builder.Totals, str | None], Snapshot],
        write: Callable[[Snapshot, Wanted], None],
        written: Callable[[Path], None],
        stretch: str | None = None,
        ran: Sequence[CommandData] = (),
    ) -> None:
        """``take`` makes the snapshot and ``write`` the file, both in a thread. Then ``written`` is called.

        ``stretch`` says which part of a recording the snapshot is of. Then there is no time to enter, and no waiting.
        ``ran``: what commands said, which the user may want in it.
        """
        super().__init__()
        self.step: Step = "asking"
        self._session = session
        self._take = take
        self._write = write
        self._written = written
        self._stretch = stretch
        self._ran = ran
        self._wanted: Wanted | None = None
        self._taken: Snapshot | None = None
        """A snapshot that could not be written. The next Enter writes it, and does not measure again."""
        self._since: builder.Totals | None = None
        self._whole: threading.Event | None = None
        """Set when everything was read once. It begins then: what is read less often would have losses of before."""
        self._until_s = 0.0

    @property
    def is_modal(self) -> bool:
        """The keys of the application do not work here: what is typed is text."""
        return True

    def compose(self) -> ComposeResult:
        with self._session.view() as state:
            host = state.host.name if state.host is not None else ""
        yield Lines(id="dialog-title")
        if self._stretch is None:
            yield _field("time", "10s")
        yield _field("note", "")
        yield _choice("form", tuple(FORMATS), DEFAULT_FORMAT)
        yield _field("file", default_file(host, DEFAULT_FORMAT))
        if self._ran:
            yield _choice("commands", ("no", "yes"), "yes")
        yield _choice("redact", ("no", "yes"), "no")
        yield Lines(id="hint")
        yield Lines(id="told")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        what = self._stretch or "figures, histograms, losses, cost and the configuration of the host"
        self.query_one("#dialog-title", Lines).show([(" Snapshot", "strong"), (f"  {what}", "dim")])
        self._footer()
        self.set_focus(self.query_one("#field-note", Input))
        self.set_interval(LOOK_EVERY_S, self._look)

    def draw(self, _scene: Scene) -> None:
        """An interval has ended. The look comes later: the caller still holds the view of the session."""
        self.call_later(self._look)

    def action_back(self) -> None:
        """Leaves the dialog and drops the measurement. It stays while a file is being written."""
        if self.step != "writing":
            self.dismiss()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        name = (event.widget.id or "").removeprefix("field-")
        self.query_one("#hint", Lines).show([(f"   {_HINTS.get(name, '')}", "dim")])

    @on(Choice.Changed)
    def _form_changed(self) -> None:
        """Changes the suffix of the file to that of the form."""
        box = self.query_one("#field-file", Input)
        path = Path(box.value)
        if any(path.suffix.lstrip(".") in endings for endings in FORMATS.values()):
            box.value = str(path.with_suffix(f".{FORMATS[self._choice('form')][0]}"))

    @on(Input.Changed, "#field-file")
    def _file_changed(self, event: Input.Changed) -> None:
        """Changes the form to that of the file's suffix."""
        ending = Path(event.value).suffix.lstrip(".")
        self.query_one("#field-form", Choice).choose(next((form for form in FORMATS if ending in FORMATS[form]), ""))

    @on(Input.Submitted)
    @on(Choice.Submitted)
    def _submitted(self) -> None:
        if self.step != "asking":
            return
        try:
            wanted = self._wanted = self._read()
        except BadInput as error:
            self._tell(str(error), "act")
            return
        if self._taken is not None or wanted.duration_s is None:
            if self._taken is None:
                with self._session.view() as state:
                    self._since = builder.totals_at_start(state)
            self._begin_writing()
            return
        self.step, self._since = "measuring", None
        self._whole = self._session.read_whole() if isinstance(self._session, ReadsWhole) else None
        self._footer()
        self._look()

    def _begun(self, duration_s: float) -> builder.Totals | None:
        """Where the measurement begins. None: not everything has been read yet."""
        if self._since is None and (self._whole is None or self._whole.is_set()):
            with self._session.view() as state:
                self._since = builder.totals(state)
            self._until_s = time.monotonic() + duration_s
        return self._since

    def _look(self) -> None:
        """Shows the time that is left. Begins to write when the last interval has ended."""
        wanted = self._wanted
        if self.step != "measuring" or wanted is None or wanted.duration_s is None:
            return
        since = self._begun(wanted.duration_s)
        if since is None:
            self._tell("reading all counters once", "")
            return
        with self._session.view() as state:
            source = state.collector if state.collector.intervals else state.console
            closed_ns, interval_ns = source.closed_mono_ns or 0, source.interval_ns or 1_000_000_000
        # Half an interval of tolerance, as in the command: intervals are not exactly 1 s long.
        if closed_ns - since.mono_ns >= wanted.duration_s * 1e9 - interval_ns // 2:
            self._begin_writing()
            return
        left_s = self._until_s - time.monotonic()
        share = 1 - max(0.0, left_s) / wanted.duration_s
        remaining = f"{left_s:.0f} s left" if left_s >= 0.5 else "waiting for the last interval"
        drawn = figure.fit(bar(share, BAR_COLUMNS), BAR_COLUMNS)
        lost = self._session.connection().phase != "live" and self._session.kind == "live"
        told = "; the collector was lost: figures will start when it is back" if lost else ""
        self._tell(f"measuring {drawn} {100 * share:3.0f} %, {remaining}{told}", "look" if lost else "")

    def _begin_writing(self) -> None:
        self.step = "writing"
        self._tell("reading the configuration of the host, writing…", "")
        self._footer()
        in_thread(self, self._finish, self._failed)

    def _finish(self) -> None:
        """Makes and writes the snapshot. Runs in a thread: with many VMs it has megabytes."""
        wanted, since = self._wanted, self._since
        assert wanted is not None and since is not None
        try:
            if self._taken is None:
                self._taken = self._take(since, wanted.note)
            said = [*self._ran] if wanted.commands else None
            self._write(msgspec.structs.replace(self._taken, commands=said), wanted)
        except BadInput as error:
            self.app.call_later(self._failed, str(error))
        except OSError as error:
            self.app.call_later(self._failed, f"{wanted.file}: {error.strerror}")
        else:
            self.app.call_later(self._done, wanted.file)

    def _failed(self, why: str) -> None:
        self.step = "asking"
        self._tell(f"{safe(why)}; press Enter to try again with the same figures", "act")
        self._footer()
        self.query_one("#field-file", Input).focus()

    def _done(self, file: Path) -> None:
        self._written(file.absolute())
        self.dismiss()

    def _read(self) -> Wanted:
        """What the user has entered, checked before anything is measured. Raises BadInput in one line."""
        values = {field.id: field.value.strip() for field in self.query(Input)}
        time_, note, name = (values.get(f"field-{field}", "") for field in ("time", "note", "file"))
        duration_s = parse_duration(time_) if time_ else None
        if time_ and (duration_s is None or not 0 < duration_s <= MAX_DURATION_S):
            raise bad("time", "", f'expected a time such as 10s or 2m, found "{safe(time_, 40)}"')
        if not name:
            raise bad("file", "", "missing: name the file to write")
        try:
            file = Path(name).expanduser()
        except RuntimeError:
            raise bad(name, "", "no such user") from None
        form = output.form_of(self._choice("form"), file, DEFAULT_FORMAT)
        if file.exists():
            raise bad(file, "", "exists already: name another file")
        if not os.access(file.parent, os.W_OK | os.X_OK):
            raise bad(file, "", "no permission to write there")
        commands = bool(self._ran) and self._choice("commands") == "yes"
        return Wanted(duration_s, note[:MAX_NOTE] or None, form, file, self._choice("redact") == "yes", commands)

    def _choice(self, name: str) -> str:
        return self.query_one(f"#field-{name}", Choice).value

    def _tell(self, text: str, tone: Tone) -> None:
        if self.is_mounted:
            self.query_one("#told", Lines).show(*wrap([(f" {text}", tone)], self.size.width))

    def _footer(self) -> None:
        if not self.is_attached:
            return
        keys = {
            "asking": (
                ("Enter", "measure and write" if self._stretch is None else "write"),
                ("↑ ↓", "field"),
                ("← →", "choice"),
                ("Esc", "leave"),
            ),
            "measuring": (("Esc", "stop, write nothing"),),
            "writing": (("", "writing"),),
        }[self.step]
        pieces: list[tuple[str, Tone]] = []
        for key, word in keys:
            pieces += [(f" {key}", "key"), (f" {word} ", "dim")]
        self.query_one("#over-footer", Lines).show(pieces)


def default_file(host: str, form: str) -> str:
    """A file name with host and time. Only safe characters of the host's name are used."""
    named = re.sub(r"[^A-Za-z0-9.-]+", "-", host).strip("-.")[:40]
    return f"netconsole-{named + '-' if named else ''}{time.strftime('%Y%m%d-%H%M%S')}.{form}"


def _field(name: str, value: str) -> Horizontal:
    box = Input(value, id=f"field-{name}", compact=True, select_on_focus=False)
    return Horizontal(_label(name), box, classes="field")


def _choice(name: str, words: Sequence[str], value: str) -> Horizontal:
    return Horizontal(_label(name), Choice(words, value, id=f"field-{name}"), classes="field")


def _label(name: str) -> Lines:
    label = Lines()
    label.add_class("field-name")
    label.show([(f" {name}", "strong")])
    return label
