"""The panes OVS and Path with figures of real runs, as text: compared with files beside it (see test_pictures)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import zstandard

from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.screens import main
from netconsole.tui.widgets import table_model
from tests.support.tui.pictures import looks_as_it_did
from tests.support.tui.played import PROFILE, PlayedSession

RECORDINGS = Path(__file__).parents[2] / "support/tui/recordings"
SHIPPED = Path(__file__).parents[3] / "probes"
VIEWS = {
    "switch": ("switch", ("3",)),
    "switch-datapath": ("switch", ("3", "enter")),
    "upcalls": ("upcalls", ("3",)),
    "upcalls-port": ("upcalls", ("3", "tab", "enter")),
    "path": ("path", ("9",)),
    "path-direction": ("path", ("9", "enter")),
    "path-stage": ("path", ("9", "down", "down", "enter")),
    "path-slow": ("path", ("9", "shift+tab")),
}
"""Recording and keys."""
SIZES = {"120x40": (120, 40), "80x24": (80, 24)}


def recorded(name: str) -> list[frames.AnyFrame]:
    """The frames of a recording."""
    packed = (RECORDINGS / f"{name}.jsonl.zst").read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(packed).read()
    return list(with_ends(frames.decode(line) for line in text.splitlines()))


def with_ends(sent: Iterable[frames.AnyFrame]) -> Iterator[frames.AnyFrame]:
    """With the ends of the console's own intervals where a recording lacks them: else all its readings are of one."""
    last: frames.AnyFrame | None = None
    for frame in sent:
        if isinstance(frame, (frames.Table, frames.Cost)) and frame.source == "console":
            if isinstance(last, frames.Table) and frame.mono_ns > last.mono_ns:
                yield frames.Cost(
                    source="console",
                    probe=None,
                    seq=last.seq,
                    mono_ns=last.mono_ns,
                    wall_ns=last.wall_ns,
                    interval_ns=last.interval_ns,
                )
            last = frame
        yield frame


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
async def test_it_looks_as_it_did(view: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # In the order of worth, and with the lines that were needed once, however long the test takes.
    monkeypatch.setattr(table_model, "HOLD_S", 0.0)
    monkeypatch.setattr(main, "STRIP_HOLD_S", math.inf)
    recording, keys = VIEWS[view]
    session, sent = PlayedSession(), recorded(recording)
    for frame in sent:
        if isinstance(frame, (frames.Hello, frames.Status)):
            session.take(frame)  # the panes are made of the probes that are there
    app = ConsoleApp(WatchedHost(session, PROFILE, catalogue.load_all([SHIPPED])))
    async with app.run_test(size=SIZES[size]) as pilot:
        await pilot.pause()
        for frame in sent:
            session.take(frame)
            if isinstance(frame, frames.Cost) and frame.probe is None:
                await pilot.pause()
        await pilot.pause()
        await looks_as_it_did(app, pilot, keys, f"{view}-{size}")
