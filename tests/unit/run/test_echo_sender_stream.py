"""What comes from the far end that sends the echoes is counts, or is left out: never an error, never without end."""

from __future__ import annotations

import sys
import threading

import pytest

from netconsole.far.host import ThisHost
from netconsole.far.program import Launch
from netconsole.run.ping_plan import PingTraffic
from netconsole.run.ping_run import EchoSender

LIMIT_S = 60.0


class FakeHost(ThisHost):
    """Runs a line of Python instead of the sender."""

    def __init__(self, code: str) -> None:
        self.code = code

    def launch_of(self, module: str, *arguments: str) -> Launch:
        return Launch([sys.executable, "-ISc", self.code])


def told_by(code: str) -> EchoSender:
    over = threading.Event()
    sender = EchoSender(FakeHost(code), "192.0.2.1", PingTraffic(), over.set)
    try:
        while not sender.is_over:
            assert over.wait(LIMIT_S)
            over.clear()
    finally:
        sender.close()
    return sender


def test_counts_are_those_of_the_last_line() -> None:
    lines = ('{"id": 7, "source": "a"}', '{"sent": 3, "answered": 1}', '{"sent": 5, "answered": 5, "is_over": true}')
    sender = told_by("\n".join(f"print({line!r})" for line in lines))
    assert (sender.id, sender.counts, sender.why) == (7, {"sent": 5, "answered": 5}, None)


@pytest.mark.parametrize(
    "code",
    [
        "print('{' * 3000)",
        "print('[]'); print('7'); print('null'); print(chr(0xfc))",
        'print(\'{"id": 70000, "sent": "many", "answered": null}\')',
        "import sys; sys.stdout.write('x' * 1000000)",
        "import sys\nwhile True: sys.stdout.write('endless')",
        "import sys; sys.exit('no such network')",
    ],
)
def test_garbage_is_left_out_and_an_early_end_is_said(code: str) -> None:
    sender = told_by(code)
    assert (sender.id, sender.counts) == (None, {})
    assert sender.why
    assert "\n" not in sender.why
