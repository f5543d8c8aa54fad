"""A made-up source: one file, its line in the list, and its manifest make it a whole probe, here and on a far host."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole.cli.measuring import Measuring
from netconsole.compare.compare import compare
from netconsole.far import archive
from netconsole.far.door import Approach
from netconsole.probes import manifest_reader
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.run.assembly import open_run
from netconsole.telemetry.state import State
from tests.support.live.ssh_server import ADDRESS, SshServer
from tests.support.live.watched_console import WatchedConsole
from tests.support.tui.played import screen_text

pytestmark = pytest.mark.starting

NAME = "made_up"
TICKS = 30_000
LIMIT_S = 120.0
SOURCE = '''
"""Made up: how often each clock has ticked, from a file."""

from netconsole_collector.sources.base import KernelSource, RowMaker


class Clocks(KernelSource):
    def __init__(self):
        self._rows = RowMaker(("ticks",), 16)

    def read(self, reading):
        with open({file!r}) as file:
            words = [line.split() for line in file]
        rows = [({{"clock": name}}, (int(ticks),), {{}}) for name, ticks in words]
        return [reading.table("made_up", "clocks", self._rows.rows(rows))]
'''
KNOWN = '    "made_up": _late("made_up", "Clocks"),\n'
MANIFEST = """
[probe]
name = "made_up"
version = 1
title = "Made up"
topic = "clocks"
summary = "Per clock: how often it has ticked."
cannot_see = "Why."
cost = "per interval"
modes = ["summary"]
source = "made_up"

[tables.clocks]
title = "Clocks that tick"
max_rows = 16
key = [{ name = "clock", type = "char[16]", as = "text" }]
value = [{ name = "ticks", unit = "ticks", worse = "up" }]
sort = "ticks"

[[findings]]
table = "clocks"
value = "ticks"
level = "!"
over = 1000.0
cause = "clock-ticks"
place = ["clock"]
say = "clock {clock}: ticks {rate} times/s"
next = "Wait."

[[panes]]
pane = "host"
order = 90
tab = "Clocks"
"""


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the source reads. The collector's package has the source, /etc/netconsole its manifest."""
    file, package = tmp_path / "clocks", tmp_path / "netconsole_collector"
    file.write_text("wall 7\n")
    shutil.copytree(paths.collector_package(), package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "sources" / f"{NAME}.py").write_text(SOURCE.format(file=str(file)))
    known = package / "sources" / "known.py"
    head, mark, tail = known.read_text().partition("] = {\n")
    known.write_text(f"{head}{mark}{KNOWN}{tail}")
    for module in (paths, archive):
        monkeypatch.setattr(module, "collector_package", lambda: package)
    monkeypatch.setattr(manifest_reader, "SOURCES", (*manifest_reader.SOURCES, NAME))
    monkeypatch.setattr(paths, "SYSTEM", tmp_path / "etc")
    probe = tmp_path / "etc" / "probes" / NAME
    probe.mkdir(parents=True)
    (probe / "probe.toml").write_text(MANIFEST)
    archive.collector_archive.cache_clear()
    monkeypatch.setattr(archive, "collector_archive", archive.collector_archive.__wrapped__)
    return file


def ticks(state: State) -> int:
    table = state.probes[NAME].tables.get("clocks")
    return sum(row.total("ticks") or 0 for row in table.rows.values()) if table is not None else 0


@pytest.mark.parametrize("address", [None, ADDRESS])
async def test_a_file_and_a_manifest_are_a_whole_source(
    address: str | None, clocks: Path, server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, server.environment[name])
    plan = Measuring("summary", [NAME], host=[address] if address else None).plan()
    screens: list[str] = []
    with (
        contextlib.closing(Approach(address, may_ask=False)) as way,
        open_run(plan, way) as live,
        contextlib.closing(live.recorder(tmp_path / "made-up.ncrec")) as recorder,
    ):
        console = WatchedConsole(live, LIMIT_S)
        live.session.attach(recorder)
        live.session.start()
        await console.until(lambda state: state.probes[NAME].measuring and state.collector.intervals > 1)
        async with console.app.run_test(size=(120, 40)) as pilot:

            async def tick() -> None:
                clocks.write_text(f"wall {7 + TICKS}\n")
                await console.until(lambda state: ticks(state) == TICKS)
                for key in ("1", "6"):
                    await pilot.press(key)
                    await pilot.pause()
                    screens.append(screen_text(console.app))

            before, after = await console.snapshot(), await console.snapshot(tick)
    overview, host = screens
    assert "clock wall: ticks" in overview, overview
    assert "Clocks that tick" in host and "wall" in host, host

    assert [(row["clock"], row["ticks"]) for row in after.probes[NAME].tables["clocks"]] == [("wall", TICKS)]
    found = compare(after, [before], (), plan.manifests).findings
    assert f"{NAME}/table/clocks/clock=wall" in [one.metric for one in found]
    with contextlib.closing(Recording(tmp_path / "made-up.ncrec")) as recording:
        player = Player(recording, plan.manifests, plan.profile.budget)
        while not player.at_end:
            player.step()
        assert ticks(player.place.state) == TICKS
