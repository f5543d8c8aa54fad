"""The knobs of a running probe: changed in the kernel at once, checked as a profile is checked."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Input

from netconsole import figure
from netconsole.frames import Scalar
from netconsole.knobs import refusal, unit_of
from netconsole.probes import Manifest
from netconsole.session import Session
from netconsole.tui import actions
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line

MODE = "mode"


class KnobsScreen(Screen[None]):
    """A form of one line per knob. Enter applies, Esc leaves everything as it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("over"),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("pagedown", "turn(1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
    ]

    def __init__(self, session: Session, manifests: Mapping[str, Manifest], probes: list[str], probe: str) -> None:
        super().__init__()
        self._session = session
        self._manifests = manifests
        self._probes = probes
        self.probe = probe

    def compose(self) -> ComposeResult:
        manifest = self._manifests[self.probe]
        with self._session.view() as state:
            known = state.probes.get(self.probe)
            values = {**manifest.knobs, **(known.knobs if known else {})}
            mode = known.mode if known else "summary"
        yield Lines(id="knobs-title")
        with VerticalScroll(id="knobs", can_focus=False):
            yield self._field(MODE, mode, " or ".join(manifest.modes))
            for name in manifest.knobs:
                yield self._field(name, values.get(name), hint(name, manifest.knobs[name]))
        yield Lines(id="told")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        place = f"{self._probes.index(self.probe) + 1} of {len(self._probes)}"
        title: Line = [(f" Knobs of {self.probe}", "strong"), (f"  probe {place}; the counts go on meanwhile", "dim")]
        self.query_one("#knobs-title", Lines).show(title)
        keys = (("Enter", "apply"), ("Esc", "leave as it is"), ("↑ ↓", "knob"), ("PgUp PgDn", "probe"))
        footer = [piece for key, word in keys for piece in ((f" {key}", "key"), (f" {word} ", "dim"))]
        self.query_one("#over-footer", Lines).show(cast(Line, footer))
        self.query(Input).first().focus()

    def action_back(self) -> None:
        self.dismiss()

    async def action_turn(self, step: int) -> None:
        """The next or the previous probe."""
        self.probe = self._probes[(self._probes.index(self.probe) + step) % len(self._probes)]
        await self.recompose()
        self.on_mount()

    @on(Input.Submitted)
    def _apply(self) -> None:
        manifest = self._manifests[self.probe]
        texts = {box.id.removeprefix("knob-"): box.value for box in self.query(Input) if box.id}
        mode = texts.pop(MODE).strip()
        if mode not in manifest.modes:
            self._tell(f"mode: expected {' or '.join(manifest.modes)}, found {figure.safe(mode, 40)!r}", "act")
            return
        knobs: dict[str, Scalar] = {}
        for name, text in texts.items():
            knobs[name] = parse(text, manifest.knobs[name])
            why = refusal(name, knobs[name], manifest.knobs[name])
            if why is not None:
                self._tell(f"{name}: {why}", "act")
                self.query_one(f"#knob-{name}", Input).focus()
                return
        self._tell("asking the collector…", "")
        future = self._session.set(self.probe, mode, knobs)
        future.add_done_callback(self._answered)

    def _answered(self, future: Future[None]) -> None:
        """Runs in a thread of the session."""
        error = future.exception()
        self.app.call_later(self._told, error)

    def _told(self, error: BaseException | None) -> None:
        if not self.is_mounted:
            return
        if error is None:
            self._tell("applied to the running probe", "ok")
        else:
            self._tell(f"refused: {figure.safe(error)}", "act")

    def _tell(self, text: str, tone: Tone) -> None:
        self.query_one("#told", Lines).show([(f" {text}", tone)])

    def _field(self, name: str, value: Scalar, told: str) -> Horizontal:
        label = Lines()
        label.add_class("knob-name")
        label.show([(f" {name}", "strong")])
        note = Lines()
        note.add_class("knob-note")
        note.show([(told, "dim")])
        box = Input("" if value is None else str(value), id=f"knob-{name}", compact=True, select_on_focus=False)
        return Horizontal(label, box, note, classes="knob")


def hint(name: str, default: Scalar) -> str:
    """What a knob takes, in a few words."""
    words = {
        "device": "name of an interface; empty: all",
        "address": "address or prefix; empty: all",
        "port": "either end; 0: all",
        "protocol": "tcp, udp, icmp, icmpv6, sctp or a number; empty: all",
        "netns": "inode of the network namespace; 0: all",
        "events_per_s": "budget of sampled events in mode details",
        "rows_per_s": "above it packets are counted and not listed; 0: all are listed",
        "threshold_us": "only events above it, microseconds; the counts stay whole",
    }
    if name in words:
        return words[name]
    unit = unit_of(name)
    return f"{unit}; default {default}" if unit else f"default {default}"


def parse(text: str, default: Scalar) -> Scalar:
    """The value that was typed, as the type of the default; what does not fit stays a text, and is refused as one."""
    text = text.strip()
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(default, (int, float)):
        try:
            return int(text) if isinstance(default, int) and "." not in text else float(text)
        except ValueError:
            return text
    return text
