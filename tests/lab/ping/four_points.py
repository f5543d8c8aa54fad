"""All four vantage points of a ping between the guests of two hosts, as `ping run` measures them, kept watching."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from netconsole.far.host import AnyHost
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.cases import PingCase, case_of
from netconsole.ping.echo_log import EchoLog
from netconsole.ping.vantage import Between, request_of
from netconsole.probes.catalogue import load_all, typed_modules
from netconsole.run.ping_capture import TscPoints, VantageRun, attached, document, next_reading
from netconsole.run.ping_plan import PingTraffic
from netconsole.run.ping_run import EchoSender
from netconsole.run.stop import Stop
from netconsole.session.live import LiveSession
from tests.lab.ping.door import HYPERVISOR, Door, patient
from tests.lab.ping.two_hosts import CARDS, WIRES

T = TypeVar("T")
ADDRESSES = tuple(card.at.ip for card in CARDS)
LIMIT_S = 20.0
"""An answer that takes longer is late: everything takes long here."""
INTERVAL_S = 1.0
START_LIMIT_S = 300.0
END_LIMIT_S = 120.0
PLACES: dict[Role, tuple[str, Between]] = {
    "sender-vm": ("vm0", Between((), ("eth0",), ADDRESSES, 0, LIMIT_S)),
    "sender-host": (HYPERVISOR, Between((CARDS[0].tap,), (WIRES[0],), ADDRESSES, 0, LIMIT_S)),
    "receiver-host": (HYPERVISOR, Between((CARDS[1].tap,), (WIRES[1],), ADDRESSES, 0, LIMIT_S)),
    "receiver-vm": ("vm1", Between((), ("eth0",), ADDRESSES, 0, LIMIT_S)),
}


class FourPoints:
    """They watch from the start until `close`; each ping is a case of its own."""

    def __init__(self, door: Door) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(patient())
        self.hosts: dict[str, AnyHost] = {}
        self.runs: list[VantageRun] = []
        try:
            self._watch(door)
        except BaseException:
            self.close()
            raise

    def _watch(self, door: Door) -> None:
        manifests = load_all()
        modules = typed_modules(manifests)
        for machine in (HYPERVISOR, "vm0", "vm1"):
            way = self._stack.enter_context(contextlib.closing(door.approach(machine)))
            self.hosts[machine] = way.enter(modules)
        for role, (machine, between) in PLACES.items():
            request = request_of(role, between, manifests)
            session = LiveSession(self.hosts[machine], [request], INTERVAL_S)
            log, tsc = EchoLog(between.addresses), TscPoints(self.hosts[machine])
            run = VantageRun(role, between, session, log, tsc=tsc)
            session.attach(run.log)
            self._stack.enter_context(contextlib.closing(session))
            session.start()
            self.runs.append(run)
        until(lambda: all(run.session.settled() for run in self.runs), START_LIMIT_S)
        for run in self.runs:
            run.attach = attached(run)
            run.relate_clock()

    def close(self) -> None:
        """Ends the programs on all machines."""
        self._stack.close()

    def ping(
        self,
        count: int,
        interval_ms: int,
        fault: contextlib.AbstractContextManager[T] | None = None,
        size: int = PingTraffic().size,
    ) -> tuple[PingCase, T | None]:
        """Sends so many echoes from the first guest to the second; what all four places saw of them.

        Each carries ``size`` bytes.

        There is a fault as long as they are on their way. What it yields is the second value.
        """
        traffic = PingTraffic(count, interval_ms * 1000, size)
        for run in self.runs:
            if run.tsc is not None:
                run.tsc.points = run.tsc.points[-1:]  # emulated clocks do not drift at one rate for long
        began = time.time()
        with (
            fault or contextlib.nullcontext() as cost,
            contextlib.closing(EchoSender(self.hosts["vm0"], ADDRESSES[1], traffic, lambda: None)) as sender,
        ):
            until(lambda: sender.is_over, END_LIMIT_S + count * interval_ms / 1000)
            assert sender.why is None, sender.why
        captures = []
        for run in self.runs:
            run.id, run.sent = sender.id, dict(sender.counts)
        until(lambda: all(run.finished() >= count for run in self.runs), LIMIT_S + END_LIMIT_S)
        for run in self.runs:
            next_reading(run, Stop())
            run.relate_clock()
            with run.session.view() as state:
                captures.append(document(run, state, began, {}))
        return case_of([CaptureFile(f"{one.role}.json", one) for one in captures], "ping"), cost


def capture_of(case: PingCase, role: Role) -> PingCapture:
    return next(file.capture for file in case.files if file.capture.role == role)


def until(true: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)
