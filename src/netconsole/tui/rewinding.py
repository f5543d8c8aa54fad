"""Goes back in a live session: through what was recorded into memory since the console began, up to some minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from netconsole.base.errors import BadInput
from netconsole.findings.saved_log import SavedIncident
from netconsole.host import identity
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.recording.player import Place, Player
from netconsole.recording.reader import Damaged, Recording
from netconsole.recording.recorder import Recorder, describe
from netconsole.recording.replay_session import Position
from netconsole.recording.writer import KeptBlocks
from netconsole.telemetry.session import Recordable, Session

KEPT_S = 1200.0
"""The most that is kept. The oldest part is dropped, so that 5/8 of it, 12 minutes, are always there."""
KEPT_BYTES = 24 * 1024 * 1024
"""Compressed. 200 VMs with four queues each take a quarter of that."""
FLUSH_S = 0.5


class Rewinding:
    """The event loop calls its methods, and a thread of its own :meth:`go`, one at a time."""

    def __init__(
        self, session: Session, manifests: Mapping[str, Manifest], log: Callable[[], Sequence[SavedIncident]]
    ) -> None:
        """``log``: the incidents so far."""
        self._session = session
        self._manifests = manifests
        self._log = log
        self._recorder: Recorder | None = None
        self._player: Player | None = None
        self._profile = Profile("")

    @property
    def place(self) -> Place | None:
        """The moment that is shown; None: now."""
        return None if self._player is None else self._player.place

    @property
    def remembers(self) -> bool:
        """Whether there is anything to go back to."""
        return self._recorder is not None

    def begin(self, profile: Profile, before: KeptBlocks | None = None) -> None:
        """Remembers from now on. Does nothing where a session cannot be recorded."""
        session = self._session
        if self._recorder is not None or not isinstance(session, Recordable):
            return
        self._profile = profile
        with session.view() as state:
            modes, host = {name: probe.mode for name, probe in state.probes.items()}, state.host
        header = describe(profile, modes, self._manifests, host or identity.describe())
        self._recorder = Recorder(None, header, max_bytes=KEPT_BYTES, max_s=KEPT_S, before=before)
        self._recorder.log = self._log
        session.attach(self._recorder)

    def end(self) -> KeptBlocks | None:
        """Remembers no more. Returns what there was."""
        recorder, self._recorder = self._recorder, None
        if recorder is None or not isinstance(self._session, Recordable):
            return None
        self._session.detach(recorder)
        recorder.close()
        return recorder.kept()

    def go(self, move: Callable[[Player], object]) -> Player | None:
        """The player of what is remembered, after a move from where it is. None where that is nothing.

        It is shown when :meth:`show` is called with it.
        """
        player = self._player
        if player is None:
            if self._recorder is None:
                return None
            self._recorder.flush(FLUSH_S)
            try:
                player = Player(Recording.of_memory(self._recorder.memory()), self._manifests, self._profile.budget)
            except (BadInput, Damaged):
                return None  # nothing has been recorded yet
            player.seek(player.length_s)
        move(player)
        return player

    def show(self, player: Player | None) -> None:
        """What is shown from now on: the moment of a player, or now."""
        if self._player is not None and self._player is not player:
            self._player.recording.close()
        self._player = player

    def position(self, now_ns: int | None) -> Position | None:
        """Where it is, for the header; ``now_ns``: the monotonic clock of the measured host."""
        player = self._player
        if player is None:
            return None
        return Position(
            host=player.recording.header.host, at_s=player.at_s, length_s=player.length_s, wall_ns=player.place.wall_ns,
            begin_wall_ns=player.recording.begin.wall_ns, playing=False, speed=1.0, at_end=player.at_end, cut=False,
            since_s=0.0, trouble=player.trouble,
            behind_s=max(0.0, ((now_ns or player.place.at_ns) - player.place.at_ns) / 1e9),
        )  # fmt: skip


def by_steps(count: int) -> Callable[[Player], object]:
    """So many intervals forward, or back."""
    return Player.step if count > 0 else Player.back


def by_seconds(seconds: float) -> Callable[[Player], object]:
    """Seconds forward, or back."""
    return partial(_seek_by, seconds)


def _seek_by(seconds: float, player: Player) -> None:
    player.seek(player.at_s + seconds)
