"""What the keys of a row do: one investigates it, one copies what can be said of it."""

from __future__ import annotations

from netconsole.base.errors import Unable
from netconsole.findings.rules import apart
from netconsole.telemetry.request import CommandOutput
from netconsole.telemetry.session import Answerable
from netconsole.tui.host_view import Investigator
from netconsole.tui.panes import advice
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.look import Tone


def investigable(scene: Scene, subject: Subject) -> Subject | str:
    """The row whose details tell more of this one; or why there is none."""
    wanted = advice.investigable(scene, subject)
    if wanted is not None:
        return wanted
    state = scene.state.probes.get(subject.probe)
    samples = state is not None and state.mode == "details"
    return "its probe samples already: see Events (8)" if samples else "no probe that shows this can sample it"


def investigate(investigator: Investigator, wanted: Subject) -> tuple[str, Tone]:
    """Starts or ends details; a message, and its tone. For a thread: a far host may have to be asked for a name."""
    try:
        return investigator.investigate(wanted.probe, wanted.key), "ok"
    except Unable as error:
        return str(error), "look"


def runnable(scene: Scene, subject: Subject) -> tuple[str, ...]:
    """The commands that look closer at a row."""
    return advice.advice(scene, subject).commands


def run(session: Answerable, command: str) -> CommandOutput:
    """What a command of a finding says on the host. For a thread. Raises OSError."""
    netns, line = apart(command)
    return session.run_command(netns, line)


def machine(scene: Scene, subject: Subject) -> str | None:
    """The VM that a row is of, or whose tap is its device; None where it is of none."""
    labels = dict(subject.key)
    device = labels.get("device") or labels.get("port") or labels.get("interface")
    return str(found) if (found := labels.get("vm") or advice.vm_of(scene, device)) else None


class Copied:
    """The texts of a row, one after another each time the same row is asked for again."""

    def __init__(self) -> None:
        self._subject: Subject | None = None
        self._place = 0

    def following(self, scene: Scene, subject: Subject) -> tuple[str, str, str]:
        """What the next text is (a command, the finding, the row), the text, and which of how many."""
        texts = advice.copies(scene, subject)
        self._place = (self._place + 1) % len(texts) if self._subject == subject else 0
        self._subject = subject
        word, text = texts[self._place]
        return word, text, f" {self._place + 1} of {len(texts)}" if texts[1:] else ""
