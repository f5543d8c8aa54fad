"""The form for mode and knobs of a probe. Values are checked as in a profile, and change the probe at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import ClassVar, TypeAlias, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from netconsole.base import figure
from netconsole.base.errors import BadInput, Unable
from netconsole.budget.forecast import is_costly
from netconsole.host.identity import namespace_inode
from netconsole.probes.knobs import FILTERS, hint
from netconsole.probes.manifest import Manifest
from netconsole.profile.loader import choice
from netconsole.profile.profile import ProbeChoice
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.session import Session
from netconsole.tui import actions
from netconsole.tui.screens.pages.text_page import wrap
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.choice import Choice
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, cut
from netconsole_collector.probe.config import SEEN_PCT
from netconsole_collector.questions.namespace import names_of

MODE = "mode"
OFF = "off"
NETNS = "netns"
RANK = (OFF, "counters", "summary", "details")
"""The modes, the cheapest first."""
_MODES_HINT = "mode: counters costs least; summary has tables and histograms; details samples single events as well"
LookAhead: TypeAlias = Callable[[Manifest, Mode, Mapping[str, Scalar]], tuple[str, str | None]]
"""Forecasts a probe in a mode with these knobs: its cost in one line, and the limit of the budget that it exceeds.

Raises Unable."""
Begin: TypeAlias = Callable[[Manifest, ProbeChoice], Future[None]]
"""Starts a probe that is not in the session. Raises Unable."""


class KnobsScreen(Screen[None]):
    """A form with one line per knob, the filters first. Enter applies the values, Esc changes nothing.

    A change that makes a probe cost more is forecast first. If it would exceed the budget, the user must confirm it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("over"),
        # Before the field gets the key: what is typed right after it belongs into the next field, also on a slow host.
        Binding("down", "app.focus_next", show=False, priority=True),
        Binding("up", "app.focus_previous", show=False, priority=True),
        Binding("pagedown", "turn(1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
        Binding("ctrl+c", "app.leave", show=False),
    ]

    def __init__(
        self,
        session: Session,
        manifests: Mapping[str, Manifest],
        probes: list[str],
        probe: str,
        forecast_now: LookAhead | None = None,
        begin: Begin | None = None,
        filters: Mapping[str, Scalar] | None = None,
    ) -> None:
        """``begin`` starts a probe that is not in the session, with the ``filters`` of the profile."""
        super().__init__()
        self._forecaster = forecast_now
        self._begin = begin
        self._filters = filters or {}
        self._asked: ProbeChoice | None = None
        """The change that would exceed the budget. It is applied when the user presses Enter again."""
        self._session = session
        self._manifests = manifests
        self._probes = probes
        self.probe = probe

    @property
    def is_modal(self) -> bool:
        """The keys of the application do not work here: what is typed is text."""
        return True

    def compose(self) -> ComposeResult:
        manifest = self._manifests[self.probe]
        with self._session.view() as state:
            known = state.probes.get(self.probe)
            values = {**manifest.knobs, **(known.knobs if known else self._filters)}
            mode = OFF if known is None or known.status == OFF else known.mode
        yield Lines(id="knobs-title")
        with VerticalScroll(id="knobs", can_focus=False):
            yield self._of_words(MODE, mode, (OFF, *manifest.modes))
            for name, default in sorted(manifest.knobs.items(), key=lambda knob: knob[0] not in FILTERS):
                if isinstance(default, bool):
                    yield self._of_words(name, str(values.get(name, default)).lower(), ("false", "true"))
                else:
                    is_changed = name not in FILTERS and values.get(name) != default
                    told = f"{default} by default; {hint(name, default)}" if is_changed else hint(name, default)
                    yield self._field(name, self._shown(name, values.get(name)), told)
        yield Lines(id="knob-hint")
        yield Lines(id="told")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        place = f"{self._probes.index(self.probe) + 1} of {len(self._probes)}"
        with self._session.view() as state:
            known = state.probes.get(self.probe)
        note = "set a mode to start it" if known is None or not known.measuring else "counting continues meanwhile"
        if known is not None and known.status == "attached" and known.why:  # nothing is missing, yet there is a reason
            note = f"netconsole changed it: {figure.safe(known.why)}"
        title: Line = [(f" Knobs of {self.probe}", "strong"), (f"  probe {place}; {note}", "dim")]
        self.query_one("#knobs-title", Lines).show(cut(title, self.size.width))
        keys = (
            ("Enter", "apply"),
            ("Esc", "change nothing"),
            ("↑ ↓", "knob"),
            ("← →", "choice"),
            ("PgUp PgDn", "probe"),
        )
        footer = [piece for key, word in keys for piece in ((f" {key}", "key"), (f" {word} ", "dim"))]
        self.query_one("#over-footer", Lines).show(cast(Line, footer))
        self.set_focus(self.query_one(f"#knob-{MODE}", Choice))

    def action_back(self) -> None:
        self.dismiss()

    async def action_turn(self, step: int) -> None:
        """Goes to the next or the previous probe."""
        self.probe = self._probes[(self._probes.index(self.probe) + step) % len(self._probes)]
        await self.recompose()
        self.on_mount()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Says the whole of what this knob takes: beside it there may be no room."""
        name = (event.widget.id or "").removeprefix("knob-")
        knobs = self._manifests[self.probe].knobs
        told = f"{name}: {hint(name, knobs[name])}" if name in knobs else _MODES_HINT
        self.query_one("#knob-hint", Lines).show(*wrap([(f" {told}", "dim")], self.size.width))

    @on(Input.Submitted)
    @on(Choice.Submitted)
    def _apply(self) -> None:
        manifest = self._manifests[self.probe]
        fields: list[Input | Choice] = [*self.query(Input), *self.query(Choice)]
        texts = {one.id.removeprefix("knob-"): one.value for one in fields if one.id}
        mode = texts.pop(MODE).strip()
        if (inode := self._inode(texts.get(NETNS, ""))) is not None:
            texts[NETNS] = str(inode)
        knobs = {} if mode == OFF else {name: parse(text, manifest.knobs[name]) for name, text in texts.items()}
        try:
            wanted = choice({MODE: mode, **knobs}, manifest)
        except BadInput as error:
            first = error.problems[0]
            self._tell(f"{first.key}: {first.message}", "act")
            self.query_one(f"#knob-{first.key}").focus()
            return
        if self._forecaster is None or wanted == self._asked or not self._costs_more(wanted):
            self._apply_now(wanted)
            return
        self._tell("measuring for a moment what it would cost…", "")
        ask = partial(self._forecast, self._forecaster, manifest, wanted)
        in_thread(self, ask, self._forecast_failed)

    def _inode(self, text: str) -> int | None:
        """Of a network namespace that is given by its name. None of another host, which is not asked here."""
        name = text.strip()
        if not name or name.isdecimal() or self._session.connection().line is not None:
            return None
        return namespace_inode(name)

    def _shown(self, knob: str, value: Scalar) -> Scalar:
        """A network namespace by its name, where it has one on this machine."""
        if knob != NETNS or not isinstance(value, int) or not value or self._session.connection().line is not None:
            return value
        names, _ = names_of(value)
        return min(names - {str(value)}, default=value)

    def _costs_more(self, wanted: ProbeChoice) -> bool:
        """Whether a forecast is needed: the mode costs more than the one that runs, or it will see more of the time."""
        with self._session.view() as state:
            known = state.probes.get(self.probe)
            now = known.mode if known is not None and known.measuring else OFF
            seen_now = known.knobs.get(SEEN_PCT, 100) if known is not None else 100
        if wanted.mode == "off" or not is_costly(self._manifests[self.probe], wanted.mode):
            return False
        if wanted.mode != now:
            return RANK.index(wanted.mode) > RANK.index(now)
        seen = wanted.knobs.get(SEEN_PCT, 100)
        return isinstance(seen, int) and isinstance(seen_now, int) and seen > seen_now

    def _forecast(self, forecast_now: LookAhead, manifest: Manifest, wanted: ProbeChoice) -> None:
        """Makes the forecast. Runs in a thread."""
        if wanted.mode == "off":
            return
        try:
            said, above = forecast_now(manifest, wanted.mode, wanted.knobs)
        except Unable as error:
            said, above = f"no forecast: {error}", None
        self.app.call_later(self._forecast_made, manifest.name, wanted, said, above)

    def _forecast_failed(self, why: str) -> None:
        if self.is_mounted:
            self._tell(why, "act")

    def _forecast_made(self, probe: str, wanted: ProbeChoice, said: str, above: str | None) -> None:
        if not self.is_mounted or probe != self.probe:
            return
        if above is None:
            self._apply_now(wanted, said)
        else:
            self._asked = wanted
            self._tell(f"over the budget: {above}; press Enter again to do it anyway. {said}", "act")

    def _apply_now(self, wanted: ProbeChoice, said: str = "") -> None:
        self._asked = None
        self._tell(f"asking the collector… {said}", "")
        with self._session.view() as state:
            known = state.probes.get(self.probe)
            is_off = known is None or not known.measuring
        if known is None and self._begin is not None:
            if wanted.mode == "off":
                self._tell("the probe does not run", "")
                return
            try:
                future = self._begin(self._manifests[self.probe], wanted)
            except Unable as error:
                self._tell(f"refused: {error}", "act")
                return
        elif wanted.mode == "off":
            future = self._session.unload(self.probe)
        elif is_off:
            future = self._session.reload(self.probe, wanted.mode, wanted.knobs)
        else:
            future = self._session.set(self.probe, wanted.mode, wanted.knobs)
        future.add_done_callback(partial(self._answered, said))

    def _answered(self, said: str, future: Future[None]) -> None:
        """Shows the answer of the collector. Called by a thread of the session."""
        error = future.exception()
        self.app.call_later(self._told, error, said)

    def _told(self, error: BaseException | None, said: str) -> None:
        if not self.is_mounted:
            return
        if error is None:
            self._tell(f"applied. {said}" if said else "applied to the running probe", "ok")
        else:
            self._tell(f"refused: {figure.safe(error)}", "act")

    def _tell(self, text: str, tone: Tone) -> None:
        self.query_one("#told", Lines).show(*wrap([(f" {figure.safe(text, 600)}", tone)], self.size.width))

    def _field(self, name: str, value: Scalar, told: str) -> Horizontal:
        note = Lines()
        note.add_class("knob-note")
        note.show([(told, "dim")])
        is_number = isinstance(value, (int, float))  # one that is typed takes the place of what is there
        box = Input("" if value is None else str(value), id=f"knob-{name}", compact=True, select_on_focus=is_number)
        return _line_of(name, box, note)

    def _of_words(self, name: str, value: str, words: Sequence[str]) -> Horizontal:
        """A knob that takes one of a few words: all of them are shown."""
        box = Choice(words, id=f"knob-{name}")
        box.choose(value)
        return _line_of(name, box)


def _line_of(name: str, *fields: Widget) -> Horizontal:
    label = Lines()
    label.add_class("knob-name")
    label.show([(f" {name}", "strong")])
    return Horizontal(label, *fields, classes="knob")


def knobbed(session: Session, manifests: Mapping[str, Manifest]) -> list[str]:
    """The probes of a session that have knobs, or more than one mode."""
    with session.view() as state:
        known = [manifests[name] for name in state.probes if name in manifests]
    return [manifest.name for manifest in known if manifest.can_be_set]


def parse(text: str, default: Scalar) -> Scalar:
    """The typed value, in the type of the default. Other text stays text, and the check refuses it."""
    text = text.strip()
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(default, (int, float)):
        try:
            return int(text) if isinstance(default, int) and "." not in text else float(text)
        except ValueError:
            return text
    return text
