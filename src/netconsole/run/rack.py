"""Several far hosts at once: each is entered, measured and lost by itself, and holds up none of the others.

Questions of ssh and sudo are asked one after another, before the screen opens. So every host is first tried without a
question. Who has one waits for its turn; all others measure meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from netconsole.base.errors import BadInput, Unable, bad
from netconsole.base.figure import safe
from netconsole.far import address
from netconsole.far.door import Approach
from netconsole.far.troubles import NeedsAnswer
from netconsole.run.assembly import LiveRun, open_run
from netconsole.run.preflight import RunPlan

MAX_HOSTS = 16
"""Each takes memory and CPU here (docs/use/hosts.md). Above it is the place of engines for fleets."""
PATIENCE_S = 4.0
"""The screen opens when every host has answered, at the latest after so long."""
RETRY_S = (3.0, 60.0)
"""A host that was refused is tried again after so long; ask it seldom: each time costs it some CPU."""
CLOSE_S = 1.5
"""How long the hosts together may take to close, of the 2 s in which the console ends."""

RackPhase: TypeAlias = Literal["connecting", "asks", "refused", "measured"]


class RackHost:
    """One of the hosts. Raises BadInput for what is no address."""

    def __init__(self, text: str, plan: RunPlan, changed: Callable[[], None]) -> None:
        """``changed`` is called, in any thread, when its phase is another."""
        self.name = str(address.parse(text)).removeprefix("ssh://")
        self.phase: RackPhase = "connecting"
        self.why = ""
        """Of ``asks`` and ``refused``: one sentence."""
        self.run: LiveRun | None = None
        self._text = text
        self._plan = plan
        self._changed = changed
        self._lock = threading.Lock()
        self._is_closed = False
        self._again = threading.Event()
        self._trying: threading.Thread | None = None
        self._way: Approach | None = None
        self._undo = contextlib.ExitStack()

    def begin(self) -> None:
        """Enter it in a thread, asking nobody. When it is refused, this tries again at once."""
        self._again.set()
        with self._lock:
            if self._is_closed or self.phase == "measured" or (self._trying is not None and self._trying.is_alive()):
                return
            self._trying = threading.Thread(target=self._keep_trying, name="rack", daemon=True)
            self._trying.start()

    def ask(self) -> None:
        """Enter it, with questions on the terminal. Main thread: Ctrl-C at a question ends the console."""
        self._try(True)

    def close(self) -> None:
        """End its measurement, or its login. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._again.set()
            way, undo = self._way, self._undo.pop_all()
        if way is not None and self.run is None:
            way.close()  # ends a login that waits
        undo.close()

    def _keep_trying(self) -> None:
        for wait_s in itertools.chain(RETRY_S, itertools.repeat(RETRY_S[-1])):
            self._again.clear()
            self._try(False)
            if self.phase != "refused":
                return
            self._again.wait(wait_s)
            if self._is_closed:
                return

    def _try(self, may_ask: bool) -> None:
        self._become("connecting")
        try:
            self._enter(may_ask)
        except NeedsAnswer as error:
            self._become("asks", str(error))
        except (Unable, BadInput) as error:
            self._become("refused", str(error))
        except Exception as error:  # what makes no sense, or a defect: the other hosts go on
            self._become("refused", f"{type(error).__name__}: {safe(error, 160)}")
        else:
            self._become("measured")

    def _enter(self, may_ask: bool) -> None:
        with contextlib.ExitStack() as undone:
            way = undone.enter_context(contextlib.closing(Approach(self._text, may_ask)))
            with self._lock:
                self._way = way
                if self._is_closed:
                    raise Unable("closed")
            live = undone.enter_context(open_run(self._plan, way, defers=True, say=_drop))
            live.start()
            with self._lock:
                if self._is_closed:
                    raise Unable("closed")
                self._undo = undone.pop_all()
            self.run = live

    def _become(self, phase: RackPhase, why: str = "") -> None:
        self.phase, self.why = phase, why.removeprefix(f"ssh://{self.name}: ")
        self._changed()


class Rack:
    """All hosts, in the order in which they were given. Raises BadInput."""

    def __init__(self, texts: Sequence[str], plan: RunPlan) -> None:
        if len(texts) > MAX_HOSTS:
            raise bad("--host", "", f"at most {MAX_HOSTS} hosts; for more, see docs/use/hosts.md")
        self._news = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self.hosts = [RackHost(text, plan, self._heard) for text in texts]
        for host in self.hosts:
            if sum(other.name == host.name for other in self.hosts) > 1:
                raise bad("--host", "", f"ssh://{host.name} is given twice")

    def open(self, say: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
        """Enter them all. ``say`` tells, on the terminal, who asks the next question. Main thread."""
        for host in self.hosts:
            host.begin()
        until_s = time.monotonic() + patience_s
        while True:
            asking = next((host for host in self.hosts if host.phase == "asks"), None)
            if asking is not None:
                say(f"{asking.name} asks:")
                asking.ask()
                continue
            with self._news:
                is_waiting = any(host.phase == "connecting" for host in self.hosts)
                left_s = until_s - time.monotonic()
                if not is_waiting or left_s <= 0:
                    return
                if not any(host.phase == "asks" for host in self.hosts):
                    self._news.wait(left_s)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, in any thread, when a host's phase is another."""
        self._listeners.append(callback)

    def close(self) -> None:
        """Close them all, side by side. Takes CLOSE_S at most; what takes longer ends with the process."""
        closing = [threading.Thread(target=host.close, name="rack-close", daemon=True) for host in self.hosts]
        for thread in closing:
            thread.start()
        until_s = time.monotonic() + CLOSE_S
        for thread in closing:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _heard(self) -> None:
        with self._news:
            self._news.notify_all()
        for callback in self._listeners:
            callback()


def _drop(_line: str) -> None:
    """Forecasts have no place on a terminal that shows a screen: the pane Cost has them."""
