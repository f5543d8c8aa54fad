"""A measurement without a screen: what it says on standard error before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from netconsole.run import headless
from netconsole.telemetry.state import ProbeState, State


class Session:
    """In place of a session whose probes have these states and reasons."""

    def __init__(self, **probes: tuple[str, str | None]) -> None:
        self._state = State()
        for name, (status, why) in probes.items():
            probe = self._state.probes[name] = ProbeState(name, "collector")
            probe.status, probe.why = status, why  # type: ignore[assignment]

    @contextmanager
    def view(self) -> Iterator[State]:
        yield self._state


def test_a_reason_that_several_probes_have_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "this kernel has no kprobes"
    session: Any = Session(
        vhost_queues=("unsupported", f"{why}; netconsole cannot measure runs"),
        kernel_drops=("attached", None),
        tun_queues=("unsupported", f"{why}; netconsole cannot measure packets"),
        ovs_drops=("failed", None),
    )
    assert headless._say_refused(session)
    assert capsys.readouterr().err.splitlines() == [
        "netconsole: vhost_queues, tun_queues: unsupported: this kernel has no kprobes",
        "netconsole: ovs_drops: failed: no reason known",
    ]
    nothing: Any = Session(ovs_drops=("failed", "no types"))
    assert not headless._say_refused(nothing)
