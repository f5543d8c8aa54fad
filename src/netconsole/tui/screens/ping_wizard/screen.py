"""The wizard for a ping: who pings whom, what is watched where, the echoes, what is missing, the answer, its file.

Enter goes on, Esc goes one step back. What was measured or read stays, also when a step fails or the wizard is left.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Input

from netconsole.base.errors import BadInput, Unable, bad
from netconsole.base.figure import safe
from netconsole.base.files import write_whole
from netconsole.compare.ping_case import baseline_case
from netconsole.ping import capture as documents
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.cases import case_of, role_and_path
from netconsole.ping.compared import against
from netconsole.ping.vantage import Between
from netconsole.probes.manifest import Manifest
from netconsole.report.ping_file import KEPT, keep
from netconsole.run.ping_places import HERE
from netconsole.run.ping_plan import NoVantagePoint, PingPlan, plan
from netconsole.run.ping_watch import look_around
from netconsole.tui import actions
from netconsole.tui.panes.named_rows import machines
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.pages.text_page import wrap
from netconsole.tui.screens.ping_wizard.pages import FOUR, check_page, files_page, result_page, watch_page
from netconsole.tui.screens.ping_wizard.state import STEPS, Watching, WizardState, WizardStep, read_file, traffic_of
from netconsole.tui.terminal.threads import in_thread
from netconsole.tui.widgets.choice import Choice
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line
from netconsole.tui.widgets.reader import Reader

LOOK_EVERY_S = 0.5
_WORDS: dict[WizardStep, str] = {
    "ends": "who pings whom, and where it is watched",
    "check": "what will be attached",
    "watch": "echoes as they pass; ping now",
    "files": "what there is, and what is missing",
    "result": "where the time goes",
    "keep": "keep the answer",
}
_KEYS: dict[WizardStep, str] = {
    "ends": "on", "check": "watch", "watch": "end the watching", "files": "add the file; empty: analyze",
    "result": "keep it", "keep": "write",
}  # fmt: skip
_PLACE = "where it runs: here, or ssh://[USER@]HOST; empty: netconsole looks for it"
_HINTS: dict[str, str] = {
    "from": "the sender: a VM's name, address or MAC, a tap, or here; empty: only files",
    "to": "the receiver: the name, address or MAC of a VM or a host",
    **dict.fromkeys(FOUR, _PLACE),
    "inside": "devices of this host on the VM's side; empty: netconsole looks for them",
    "outside": "devices of this host on the wire's side; empty: netconsole looks for them",
    "echoes": "how many, and how far apart, such as 100 50ms; watch 100: you ping yourself",
    "baseline": "a baseline's name, or the files of another case; empty: no comparison",
    "file": "a capture, or a log of an older tool; ROLE=FILE says which machine's it is",
    "as": "html, md, text, json: a new file; snapshot: an old file; baseline: a name",
    "name": "the name of the file, or of the baseline",
}
_FIRST: dict[WizardStep, str] = {"ends": "#field-from", "files": "#field-file", "keep": "#field-name"}
"""What has the focus first; else the page."""
_ENDS = ("from", "to", "echoes", *FOUR, "inside", "outside", "baseline")
_MORE = _ENDS[3:]
"""Fields that most need not fill in: shown where one is needed, or asked for."""
_FIELDS: dict[WizardStep, tuple[str, ...]] = {
    "ends": tuple(f"#field-{name}" for name in _ENDS),
    "files": ("#page", "#field-file"),
    "keep": ("#field-as", "#field-name"),
}
"""What the arrows go through, in the order of the screen."""
_DEFAULTS = {"echoes": "100 50ms"}


class PingScreen(Screen[None]):
    """One screen, whose fields and page are those of the step."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("over"),
        Binding("enter", "forward", show=False),
        # Before the field gets the key: what is typed right after it belongs into the next field, also on a slow host.
        Binding("down", "field(1)", show=False, priority=True),
        Binding("up", "field(-1)", show=False, priority=True),
    ]

    def __init__(
        self,
        state: WizardState,
        manifests: Mapping[str, Manifest],
        watch: Callable[[PingPlan], Watching] | None,
        also: Sequence[str] = (),
    ) -> None:
        """``watch`` makes what measures a plan; None where nothing can be, as in a replay.

        ``also``: hosts on which both ends are looked for beside this one, as ssh:// addresses.
        """
        super().__init__()
        self.state = state
        self._manifests = manifests
        self._watch = watch
        self._also = also
        self._watching: Watching | None = None
        self._busy = False
        self._early = 0
        """Steps from field to field that were asked for before there was a field: on a slow host keys come first."""

    def compose(self) -> ComposeResult:
        kept = self.state.fields
        yield Lines(id="dialog-title")
        with Vertical(id="ping-ends"):
            for name in _ENDS:
                yield _field(name, kept.get(name, _DEFAULTS.get(name, "")))
        with Vertical(id="ping-keep"):
            yield Horizontal(_label("as"), Choice(KEPT, "html", id="field-as"), classes="field ping-field")
            yield _field("name", f"{self.state.run}.html")
        yield Reader(id="page")
        yield _field("file", "")
        yield Lines(id="hint")
        yield Lines(id="told")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        if self.state.step == "watch":
            self.state.step = "check"
        self._has_more = any(self.state.fields.get(name) for name in _MORE)
        for name in _MORE:
            self.query_one(f"#row-{name}").display = self._has_more
        self._show()
        self._ready = True
        if self._early:
            self.action_field(self._early)
        self.set_interval(LOOK_EVERY_S, self._look)

    _ready = False
    _has_more = False
    _known: Sequence[str] = ()
    """The VMs that are known here."""

    def _show_more(self) -> None:
        self._has_more = True
        for name in _MORE:
            self.query_one(f"#row-{name}").display = True

    def on_unmount(self) -> None:
        if self._watching is not None:
            self._watching.close()  # the console ends

    def draw(self, scene: Scene) -> None:
        """An interval of the console has ended; the page has a clock of its own."""
        self._known = machines(scene)

    def on_resize(self) -> None:
        self._page()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        name = (event.widget.id or "").removeprefix("field-")
        lines: list[Line] = [[(f"   {_HINTS.get(name, '')}", "dim")]]
        if name in ("from", "to") and self._known:
            lines.append([(f"   here: {', '.join(safe(one, 30) for one in self._known)}", "dim")])
        if name == _ENDS[2] and not self._has_more:
            lines.append([("   ↓ more: where each end runs, devices, baseline", "dim")])
        self.query_one("#hint", Lines).show(*lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The arrows go from field to field where the focus is in one; elsewhere they scroll."""
        if action == "field":
            return self.state.step in _FIELDS and (not self._ready or isinstance(self.focused, (Input, Choice)))
        return super().check_action(action, parameters)

    def action_field(self, step: int) -> None:
        """To the next field, or the one before; after the last one comes the first."""
        if not self._ready:
            self._early += step
            return
        here = f"#{self.focused.id}" if self.focused is not None else ""
        if self.state.step == "ends" and not self._has_more and step > 0 and here == f"#field-{_ENDS[2]}":
            self._show_more()
        fields = [one for one in _FIELDS[self.state.step] if self._has_more or one.removeprefix("#field-") not in _MORE]
        at = fields.index(here) if here in fields else -1
        self.set_focus(self.query_one(fields[(at + step) % len(fields)]))

    # ---- steps

    @on(Input.Submitted)
    @on(Choice.Submitted)
    def _submitted(self) -> None:
        self.action_forward()

    @on(Choice.Changed)
    def _form_changed(self) -> None:
        """Changes the suffix of the file to that of the form."""
        box, kind = self.query_one("#field-name", Input), self.query_one("#field-as", Choice).value
        stem = Path(box.value or self.state.run).stem
        box.value = (
            stem if kind == "baseline" else f"{stem}.{'txt' if kind == 'text' else kind.replace('snapshot', 'json')}"
        )

    def action_forward(self) -> None:
        """Enter: does what the step is for, and goes on."""
        if self._busy:
            return
        self._tell("", "")
        try:
            {
                "ends": self._plan, "check": self._begin, "watch": self._end, "files": self._add_or_analyze,
                "result": lambda: self._go("keep"), "keep": self._keep,
            }[self.state.step]()  # fmt: skip
        except BadInput as error:
            wrong = error.problems[0].file
            if wrong in _MORE:
                self._show_more()
            if wrong in _ENDS:
                self.set_focus(self.query_one(f"#field-{wrong}", Input))
            self._tell(str(error), "act")

    def action_back(self) -> None:
        """Esc: one step back. What was measured stays."""
        if self._busy:
            return
        self._tell("", "")
        step = self.state.step
        if step == "ends":
            self.dismiss()
        elif step == "watch":
            self._end()
        elif step == "files":
            self._go("check" if self.state.plan is not None else "ends")
        else:
            self._go(STEPS[STEPS.index(step) - 1])

    def _plan(self) -> None:
        values = {name: self.query_one(f"#field-{name}", Input).value.strip() for name in _ENDS}
        self.state.fields, self.state.breakdown = values, None
        if not values["from"] and not values["to"]:
            self.state.plan = None
            self._go("files")
            return
        for name in ("from", "to"):
            if not values[name]:
                raise bad(name, "", "missing: name both ends; without any, only files are joined")
        if self._watch is None:
            raise bad("from", "", "nothing is measured from a replay: leave both ends empty, and join files")
        at = {role: values[role] for role in FOUR if values[role]}
        for role, place in at.items():
            if place != HERE and not place.startswith("ssh://"):
                raise bad(role, "", f'expected "here" or ssh://[USER@]HOST, found "{safe(place, 60)}"')
        between = Between(values["inside"].split(), values["outside"].split())
        traffic, watch = traffic_of(values["echoes"])
        self.state.run = time.strftime("ping-%Y%m%d-%H%M%S")
        asked = values["from"], values["to"]

        def find() -> None:
            places = look_around(at, self._manifests, self._also)
            made = plan(asked, places, at, between, traffic, self.state.run, watch)
            self.app.call_later(self._planned, made)

        self._work("looking for the devices of both ends…", find)

    def _planned(self, made: PingPlan) -> None:
        self._busy, self.state.plan = False, made
        self._tell("", "")
        self._go("check")

    def _begin(self) -> None:
        assert self._watch is not None and self.state.plan is not None
        self._watching = self._watch(self.state.plan)
        self._watching.start()
        self._go("watch")

    def _end(self) -> None:
        watching = self._watching
        if watching is None:
            self._go("check")
            return
        self._work("ending, and writing what was seen…", lambda: self._finish(watching))

    def _finish(self, watching: Watching) -> None:
        """Runs in a thread: the last reading takes some tenths of a second."""
        taken = watching.finish()
        failed = {one.role: one.why for one in watching.progress() if one.phase == "failed"}
        told = []
        for role, found in taken.items():
            file = self._file(role)
            try:
                write_whole(Path(file), documents.encode(found))
                told.append(file)
            except BadInput as error:
                told.append(f"not written: {error}")
        self.app.call_later(self._ended, taken, failed, told)

    def _file(self, role: Role) -> str:
        return f"{self.state.run}-{role}.json"

    def _ended(self, taken: Mapping[Role, PingCapture], failed: dict[Role, str], told: Sequence[str]) -> None:
        self._busy, self._watching, self.state.failed = False, None, failed
        for role, found in taken.items():
            self.state.take(CaptureFile(self._file(role), found))
        self._go("files")
        self._tell(f"captured: {', '.join(told)}" if told else "nothing was captured", "ok" if told else "act")

    def _add_or_analyze(self) -> None:
        box = self.query_one("#field-file", Input)
        if box.value.strip():
            role, path = role_and_path(box.value.strip())
            for one in read_file(path, role):
                self.state.take(one)
            box.value = ""
            self._page()
            return
        if not self.state.captures:
            raise bad("captures", "", "there are none yet: name a file, or go back and watch")
        self._work("joining the captures…", self._analyze)

    def _analyze(self) -> None:
        case = case_of(self.state.captures, self.state.run)
        baseline = shlex.split(self.state.fields.get("baseline", ""))
        found = against(case, baseline_case(baseline)) if baseline else case.breakdown
        self.app.call_later(self._analyzed, found)

    def _analyzed(self, found: Breakdown) -> None:
        self._busy, self.state.breakdown = False, found
        self._tell("", "")
        self._go("result")

    def _keep(self) -> None:
        found, kind = self.state.breakdown, self.query_one("#field-as", Choice).value
        name = self.query_one("#field-name", Input).value.strip()
        if found is None or not name:
            raise bad("name", "", "missing: name the file or the baseline")
        self._tell(keep(found, self.state.captures, kind, name), "ok")

    def _work(self, words: str, work: Callable[[], None]) -> None:
        """Does something in a thread; a mistake is told, and the step stays."""

        def run() -> None:
            try:
                work()
            except NoVantagePoint as error:
                self.app.call_later(self._nothing_found, error.how)
            except (BadInput, Unable) as error:
                self.app.call_later(self._failed, str(error))
            except ValueError as error:  # shlex: a quotation without an end
                self.app.call_later(self._failed, str(error))

        self._busy = True
        self._tell(words, "")
        in_thread(self, run, self._failed)

    def _nothing_found(self, how: str) -> None:
        """Neither end was found: the user has to say where one is."""
        self._busy = False
        self._show_more()
        self.set_focus(self.query_one("#field-sender-host", Input))
        where = (
            "Say in sender-host or receiver-host where an end runs (here, or ssh://[USER@]HOST), and name its device"
        )
        self._tell(f"Neither end was found. {where} in inside or outside. {how}", "act")

    def _failed(self, why: str) -> None:
        self._busy = False
        self._tell(why, "act")

    # ---- drawing

    def _go(self, step: WizardStep) -> None:
        self.state.step = step
        self._show()

    def _show(self) -> None:
        step = self.state.step
        title: Line = [(" Ping", "strong"), (f"  {STEPS.index(step) + 1} of {len(STEPS)}: {_WORDS[step]}", "dim")]
        self.query_one("#dialog-title", Lines).show(title)
        self.query_one("#ping-ends").display = step == "ends"
        self.query_one("#ping-keep").display = step == "keep"
        self.query_one("#page").display = step not in ("ends", "keep")
        self.query_one("#hint").styles.height = 2 if step == "ends" else 1
        self.query_one("#told").styles.height = "1fr" if step in ("ends", "keep") else 3
        self.query_one("#row-file").display = step == "files"
        self.query_one("#hint").display = step in ("ends", "files", "keep")
        box = self.query_one("#field-name", Input)
        if box.value in ("", "ping.html"):
            box.value = f"{self.state.run}.html"
        keys = [("Enter", _KEYS[step]), ("Esc", "leave" if step == "ends" else "back")]
        keys.insert(1, ("↑ ↓", "scroll" if step in ("check", "watch", "result") else "field"))
        pieces: list[tuple[str, Tone]] = []
        for key, word in keys:
            pieces += [(f" {key}", "key"), (f" {word} ", "dim")]
        self.query_one("#over-footer", Lines).show(pieces)
        self.set_focus(self.query_one(_FIRST.get(step, "#page")))  # at once: the next keys are meant for it
        self._page()

    def _look(self) -> None:
        if self.state.step != "watch" or self._watching is None:
            return
        self._page()
        if self._watching.is_over and not self._busy:
            self._end()

    def _page(self) -> None:
        step, state, width = self.state.step, self.state, self.size.width
        if not self.is_mounted or step in ("ends", "keep"):
            return
        lines: Sequence[Line] = ()
        if step == "check" and state.plan is not None:
            lines = list(check_page(state.plan, self._manifests))
        elif step == "watch" and self._watching is not None:
            lines = list(watch_page(self._watching.progress(), self._watching.told))
        elif step == "files":
            lines = list(files_page(state.plan, state.captures, state.failed))
        elif step == "result" and state.breakdown is not None:
            lines = list(result_page(state.breakdown, width))
        self.query_one("#page", Reader).show([part for line in lines for part in wrap(line, width)])

    def _tell(self, text: str, tone: Tone) -> None:
        if self.is_mounted:
            self.query_one("#told", Lines).show(*wrap([(f" {safe(text, 600)}", tone)], self.size.width))


def _field(name: str, value: str) -> Horizontal:
    box = Input(value, id=f"field-{name}", compact=True, select_on_focus=False)
    return Horizontal(_label(name), box, classes="field ping-field", id=f"row-{name}")


def _label(name: str) -> Lines:
    label = Lines()
    label.add_class("field-name")
    label.show([(f" {name}", "strong")])
    return label
