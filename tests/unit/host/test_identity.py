"""What a host says of itself is taken within the bounds of a frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.host.identity import describe
from netconsole.telemetry import frames
from netconsole_collector.primitives import here
from netconsole_collector.primitives.here import Here


def test_a_host_that_says_too_much_of_itself_still_fits_a_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here.Here, "nodename", lambda _: ("\ud800" + "n" * 300, "6.1", "x86_64"))
    host = describe(Here(tmp_path))
    hello = frames.Hello(seq=1, mono_ns=0, wall_ns=0, host=host, collector={}, capabilities={})
    assert frames.decode(frames.encode(hello)) == hello
    assert host.name.startswith("?nnn")
