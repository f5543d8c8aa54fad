"""Begins and ends the recording of a live session, by key or from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from netconsole.base import figure
from netconsole.base.errors import BadInput
from netconsole.base.fact_keys import FactData
from netconsole.findings.saved_log import SavedIncident
from netconsole.host import identity
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.recording.recorder import Progress, Recorder, default_path, describe
from netconsole.telemetry.session import Recordable, Session
from netconsole.tui.rewinding import Rewinding
from netconsole.tui.widgets.look import Tone


class Recordings:
    """At most one recording at a time."""

    def __init__(
        self,
        session: Session,
        manifests: Mapping[str, Manifest],
        log: Callable[[], Sequence[SavedIncident]],
        rewinding: Rewinding,
    ) -> None:
        """``log``: the incidents so far, which a recording carries; ``rewinding``: what it begins with."""
        self._rewinding = rewinding
        self._session = session
        self._log = log
        self._manifests = manifests
        self._recorder: Recorder | None = None
        self._last: Progress | None = None

    @property
    def progress(self) -> Progress | None:
        """The progress of the recording, running or ended by itself. None without one."""
        return None if self._recorder is None else self._recorder.progress

    def adopt(self, recorder: Recorder) -> None:
        """Takes a recorder that is already attached to the session."""
        recorder.log = self._log
        self._recorder = recorder

    def toggle(
        self, profile: Profile, on_end: Callable[[str], None], facts: Mapping[str, FactData]
    ) -> tuple[str, Tone]:
        """Begins a recording, or ends the running one. Returns a message for the user, and its tone."""
        if self._recorder is not None:
            self.close()
            return self._outcome(), "ok"
        session = self._session
        if not isinstance(session, Recordable):
            return "this session cannot be recorded", "look"
        with session.view() as state:
            modes, host = {name: probe.mode for name, probe in state.probes.items()}, state.host
            now_ns = state.collector.closed_mono_ns
        before = None
        try:
            header = describe(profile, modes, self._manifests, host or identity.describe(), facts=facts)
            path, before = default_path(), self._rewinding.end()
            recorder = Recorder(path, header, profile.budget, on_end=on_end, before=before)
        except BadInput as error:
            return str(error), "act"
        finally:
            self._rewinding.begin(profile, before)
        recorder.log = self._log
        self._recorder = recorder
        session.attach(recorder)
        since_ns = before.blocks[0][1].mono_ns if before is not None and before.blocks else None
        begins = "" if since_ns is None or now_ns is None else f", and the {(now_ns - since_ns) / 1e9:.0f} s before"
        return f"recording to {figure.safe(recorder.progress.path)}{begins}", "ok"

    def close(self) -> None:
        """Ends the running recording, if there is one."""
        if self._recorder is None:
            return
        if isinstance(self._session, Recordable):
            self._session.detach(self._recorder)
        self._recorder.close()
        self._last, self._recorder = self._recorder.progress, None

    def told(self) -> str:
        """Where the last recording is, for the message after the exit. Empty without one."""
        return f"; {self._outcome()}" if self._last is not None else ""

    def _outcome(self) -> str:
        last = self._last
        if last is None:
            return ""
        if last.ended is not None:
            return last.ended
        return f"recording of {figure.memory(round(last.bytes / 1024))} in {figure.safe(last.path)}"
