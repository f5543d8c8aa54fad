"""docs/reference/probes.md followed word by word: its smallest probe, in an empty directory, is a whole probe."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole.cli.measuring import Measuring
from netconsole.compare.compare import compare
from netconsole.host import identity
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import Recorder, describe
from netconsole.run.assembly import live_run
from netconsole.telemetry.state import State
from tests.support.live.network import Namespace
from tests.support.live.watched_console import WatchedConsole
from tests.support.tui.played import screen_text

pytestmark = pytest.mark.starting

PAGE = Path(__file__).parents[3] / "docs/reference/probes.md"
FILES = {"toml": "probe.toml", "c": "probe.bpf.c"}
PACKETS = 20_000
"""Other tests send at the same time: a row of traffic is a finding from a twentieth of the whole table on."""
LIMIT_S = 120.0
SEND = """
import socket, sys
receiver, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
receiver.bind(("127.0.0.1", 0))
for _ in range(int(sys.argv[1])):
    sender.sendto(b"netconsole", receiver.getsockname())
"""


def follow(directory: Path) -> str:
    """Write the files of the page's smallest probe; its name."""
    section = PAGE.read_text().partition("## The smallest probe\n")[2].partition("\n## ")[0]
    blocks = dict(re.findall(r"^```(toml|c)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
    [name] = re.findall(r'^name = "(.*)"$', blocks["toml"].partition("[[")[0], re.MULTILINE)
    probe = directory / "probes" / name
    probe.mkdir(parents=True)
    for language, file in FILES.items():
        (probe / file).write_text(blocks[language])
    return str(name)


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The probe of the page, in what stands for /etc/netconsole."""
    monkeypatch.setattr(paths, "SYSTEM", tmp_path)
    return follow(tmp_path)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    one = Namespace()
    yield one
    one.remove()


def packets(state: State, probe: str, netns: str) -> int:
    """What the probe's table has of a network namespace."""
    table = state.probes[probe].tables.get("devices")
    return sum(row.total("count") or 0 for row in table.rows.values() if row.labels["netns"] == netns) if table else 0


async def test_who_follows_the_page_has_a_whole_probe(probe: str, namespace: Namespace, tmp_path: Path) -> None:
    plan = Measuring("summary", [probe]).plan()
    manifests, profile = plan.manifests, plan.profile
    screens: list[str] = []
    recorder = Recorder(tmp_path / "small.ncrec", describe(profile, {probe: "summary"}, manifests, identity.describe()))
    with live_run(plan) as live, contextlib.closing(recorder):
        console = WatchedConsole(live, LIMIT_S)
        live.session.attach(recorder)
        live.session.start()
        await console.until(lambda state: state.probes[probe].settled)
        with live.session.view() as state:
            if state.probes[probe].status == "unsupported":
                pytest.skip(f"cannot run here: {state.probes[probe].why}")
            assert state.probes[probe].measuring, state.probes[probe].why
        async with console.app.run_test(size=(120, 40)) as pilot:

            async def send() -> None:
                await asyncio.to_thread(namespace.python, SEND, PACKETS)
                await console.until(lambda state: packets(state, probe, namespace.name) >= PACKETS)
                for key in ("1", "5"):
                    await pilot.press(key)
                    await pilot.pause()
                    screens.append(screen_text(console.app))

            before, after = await console.snapshot(), await console.snapshot(send)
    overview, queues = screens
    said = f"lo (netns {namespace.name}): receives"
    assert any(said in line and line.split()[:2] == ["!", "small"] for line in overview.splitlines()), overview
    assert "Small packets by device" in queues and namespace.name in queues, queues

    rows = after.probes[probe].tables["devices"]
    assert [row["count"] for row in rows if row["netns"] == namespace.name] == [PACKETS], "counted exactly"

    found = compare(after, [before], (), manifests).findings
    assert f"{probe}/table/devices/device=lo,netns={namespace.name}" in [one.metric for one in found]

    with contextlib.closing(Recording(tmp_path / "small.ncrec")) as recording:
        player = Player(recording, manifests, profile.budget)
        while not player.at_end:
            player.step()
        assert packets(player.place.state, probe, namespace.name) == PACKETS
