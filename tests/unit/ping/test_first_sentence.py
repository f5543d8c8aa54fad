"""The first sentence of a breakdown without a round trip: that all was lost, or what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.ping.analysis.analyze import analyze
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.capture import SCHEMA, EchoTimes, PingCapture, Role


def capture(role: Role, *outcomes: Any) -> CaptureFile:
    packets = [EchoTimes(seq, 7, outcome=outcome) for seq, outcome in enumerate(outcomes, 1)]
    return CaptureFile(f"{role}.json", PingCapture(SCHEMA, role, packets=packets))


@pytest.mark.parametrize(
    ("files", "first"),
    [
        (
            [capture("sender-vm", "lost_outside", "lost_outside"), capture("sender-host", *["lost_outside"] * 2)],
            "No echo was answered in time: 2 echoes, lost beyond sender-host.",
        ),
        ([capture("sender-vm", "late")], "No echo was answered in time: 1 echo, the answer came late at sender-vm."),
        (
            [capture("sender-vm"), capture("sender-host", "lost_outside")],
            "The round trip is not known: the machine that pings saw no echo. Do the addresses and devices fit?",
        ),
        (
            [capture("sender-host", "lost_outside")],
            "The round trip is not known: there is no capture of the machine that pings.",
        ),
    ],
)
def test_the_first_sentence_is_the_loss_or_what_is_missing(files: list[CaptureFile], first: str) -> None:
    assert analyze(files).findings[0] == first


def test_a_capture_without_anything_is_said_to_be_empty() -> None:
    assert [one.is_empty for one in analyze([capture("sender-vm"), capture("sender-host", "late")]).captures] == [
        True,
        False,
    ]
