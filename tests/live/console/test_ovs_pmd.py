"""What PMD threads do is in snapshots, recordings and comparisons: two cases under load, and the same two idle."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.compare.compare import compare
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.snapshot.document import Snapshot, load
from tests.support.console_command import COMMAND
from tests.support.live.pmd_switch import CPU, PmdSwitch

pytestmark = pytest.mark.starting

LIMIT_S = 90.0
AT_A_TIME = 1000
MANIFESTS: dict[str, Manifest] = {"ovs_pmd": catalogue.shipped("ovs_pmd")}


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PmdSwitch]:
    running = PmdSwitch(tmp_path_factory.mktemp("pmd"))
    # Its rule looks at ports, so that the simple match cannot take the packets.
    running.ofctl("add-flow", "in_port=p0,udp,tp_dst=9,actions=output:p1")
    running.ofctl("del-flows", "in_port=p0", "--strict")
    yield running
    running.close()


def measured(switch: PmdSwitch, file: Path, *words: str) -> Path:
    command = [*COMMAND, *words, "--probe", "ovs_pmd", "--duration", "4s", "-o", str(file)]
    environment = {**os.environ, **switch.environment}
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=LIMIT_S)
    return file


def snapshot(switch: PmdSwitch, file: Path, at_once: int = 0, flows: int = 1) -> Snapshot:
    """Of four seconds, in which so many packets come at once; 0: none come."""
    ended = threading.Event()

    def load_it() -> None:
        while not ended.is_set():
            switch.forward(AT_A_TIME, at_once, flows)

    loading = threading.Thread(target=load_it)
    if at_once:
        loading.start()
    try:
        return load(measured(switch, file, "snapshot", "--format", "json"))
    finally:
        ended.set()
        if at_once:
            loading.join()


def emc(switch: PmdSwitch, inverse: int) -> None:
    """One of so many new flows is put into the cache; 0: none is."""
    switch.vsctl("set", "Open_vSwitch", ".", f"other_config:emc-insert-inv-prob={inverse}")


def test_two_cases_under_load_and_idle(switch: PmdSwitch, tmp_path: Path) -> None:
    emc(switch, 1)
    idle = snapshot(switch, tmp_path / "idle.json")
    healthy = snapshot(switch, tmp_path / "healthy.json", at_once=50)
    emc(switch, 0)
    idle_again = snapshot(switch, tmp_path / "idle-again.json")
    sick = snapshot(switch, tmp_path / "sick.json", at_once=1, flows=5000)

    found = compare(sick, [healthy], manifests=MANIFESTS)
    assert found.verdict == "regressed"
    ratios = [one for one in found.findings if one.metric.startswith("ovs_pmd/gauge")]
    worse = [one.metric.split("/")[2] for one in ratios if one.significant and one.direction == "worse"]
    assert worse[0] == "threads.emc_pct" and found.findings[0].metric == ratios[0].metric
    # By how much each packet costs more depends on who else needs the CPU: a ratio of 2 is not sure here.
    assert set(worse[1:]) <= {"threads.cycles_per_packet"}, [one.why for one in found.findings]

    found = compare(idle_again, [idle], manifests=MANIFESTS)
    assert not [one for one in found.findings if one.metric.startswith("ovs_pmd/gauge")]
    reasons = {one.metric: one.why for one in found.not_comparable}
    assert {why for metric, why in reasons.items() if "threads.emc_pct/" in metric} == {
        "too few packets: fewer than 1000"
    }


def test_a_recording_has_the_threads(switch: PmdSwitch, tmp_path: Path) -> None:
    player = Player(Recording(measured(switch, tmp_path / "pmd.ncrec", "record")), MANIFESTS, Budget())
    player.seek(player.length_s)
    cores = {row.labels["core"] for row in player.place.state.rows("ovs_pmd", "threads")}
    assert CPU in cores
