"""What a vantage point says of itself: why it does not watch, and which devices its echoes took."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from netconsole.base.errors import Unable
from netconsole.ping.capture import Role
from netconsole.ping.echo_log import POINTS, EchoLog
from netconsole.ping.vantage import VANTAGE_POINTS, Between
from netconsole.run.ping_capture import CaptureSession, VantageRun, attached, document
from netconsole.telemetry.frames import ProbeStatus, Records, Scalar
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import ProbeState, State

COLUMNS = ["source", "target", "id", "seq", *POINTS, "request_in", "reply_out", "duplicates", "repeated", "flags"]


class Told:
    """A session in which the probe has this state."""

    def __init__(self, role: Role, status: ProbeStatus, why: str | None = None) -> None:
        self.state = State()
        name = VANTAGE_POINTS[role].probe
        self.state.probes[name] = ProbeState(name, "collector", status, why=why)

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        yield self.state

    def connection(self) -> Connection:
        return Connection("live")


def run_of(role: Role, status: ProbeStatus, why: str | None = None) -> VantageRun:
    return VantageRun(role, Between(), cast(CaptureSession, Told(role, status, why)), EchoLog())


@pytest.mark.parametrize(
    ("status", "why", "said"),
    [
        ("compiling", None, "echo_host was still compiling after 120 s, because the host is busy. Try again"),
        ("attaching", None, "echo_host was still attaching after 120 s"),
        ("unsupported", "no BTF", "echo_host cannot run: no BTF; netconsole doctor says more"),
        ("failed", None, "echo_host cannot run: no reason known"),
    ],
)
def test_a_probe_that_does_not_watch_says_why(status: ProbeStatus, why: str | None, said: str) -> None:
    with pytest.raises(Unable, match=said):
        attached(run_of("sender-host", status, why))


@pytest.mark.parametrize(("came", "went", "is_said"), [("eth0", "", False), ("", "eth0", False), ("", "", True)])
def test_a_vm_that_is_pinged_says_when_its_devices_saw_no_echo(came: str, went: str, is_said: bool) -> None:
    run = run_of("receiver-vm", "attached")
    stamp: dict[str, Any] = {"seq": 1, "mono_ns": 9, "wall_ns": 9, "probe": "echo_stack"}
    row: list[Scalar] = ["192.0.2.1", "192.0.2.2", 7, 1, 1, 2, 3, 4, came, went, 0, 0, 0]
    run.log.take(State(), [Records(**stamp, name="echoes", columns=COLUMNS, records=[row])])
    with run.session.view() as state:
        found = document(run, state, 0.0, {})
    assert any("no echo left or came back" in note for note in found.notes) == is_said
