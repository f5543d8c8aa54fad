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


def times(role: Role, **times: float) -> CaptureFile:
    whole = {"total_us": sum(times.values()), **times}
    packets = [EchoTimes(seq, 7, **whole) for seq in (1, 2, 3)]  # type: ignore[arg-type]
    return CaptureFile(f"{role}.json", PingCapture(SCHEMA, role, packets=packets))


VM = times("sender-vm", request_us=10, between_us=480, reply_us=10)
SENDER = times("sender-host", request_us=20, between_us=360, reply_us=20)
RECEIVER = times("receiver-host", request_us=20, between_us=160, reply_us=20)


def test_captures_that_fit_are_not_doubted() -> None:
    assert analyze([VM, SENDER, RECEIVER]).findings[0].startswith("Most time is in ")


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ([VM, times("sender-host", request_us=20_000, between_us=360_000, reply_us=20_000)], "takes "),
        (
            [VM, times("sender-host", request_us=20, between_us=160, reply_us=20),
             times("receiver-host", request_us=20, between_us=360, reply_us=20)],
            "C+J takes -240.0 us, less than nothing",
        ),
    ],
    ids=["ns for us", "exchanged hosts"],
)  # fmt: skip
def test_captures_that_cannot_be_are_said_first(files: list[CaptureFile], what: str) -> None:
    first = analyze(files).findings[0]
    assert first.startswith("The captures contradict each other: ") and what in first
