"""What STANDS OUT says of a device that fails, and of a VM that its own limit holds back, with profile disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes.catalogue import load_all
from netconsole.profile.loader import load
from netconsole.profile.plan import plan
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from tests.support.live.disks import PAGE, limited, loop
from tests.support.live.slow_file import slow_file

PROBES = ("block_path", "io_limits")
LIMIT_S = 60.0
READS, READS_PER_S = 400, 40
SLOW_S, AT_ONCE, TIMES = 0.04, 8, 25
VM = f"made-held-{os.getpid()}"


class Told:
    """A session of these probes, and its incidents."""

    def __init__(self) -> None:
        manifests = load_all()
        profile = load("disk", manifests)
        requests = [one for one in plan(profile, manifests, PROBES) if one.name in PROBES]
        self._session = session_of(RunPlan(profile, manifests, requests))
        self._incidents, self._heard = Incidents(manifests), threading.Condition()
        self._session.on_news(self._note)
        self._session.start()
        with self._heard:
            assert self._heard.wait_for(self._measures, LIMIT_S)

    def _measures(self) -> bool:
        """With an interval before this one: of the first nobody knows how long it was."""
        with self._session.view() as state:
            return state.collector.intervals >= 2 and all(
                name in state.probes and state.probes[name].settled for name in PROBES
            )

    def _note(self, _news: object) -> None:
        with self._session.view() as state:
            self._incidents.update(state, self._session.connection())
            self._incidents.look_into(self._session)
        with self._heard:
            self._heard.notify_all()

    def incident(self, cause: str, *, is_answered: bool = False, **where: str) -> Incident:
        """Waits for it, and until the host has answered about it."""

        def found() -> Incident | None:
            with self._session.view():
                wanted = (one for one in self._incidents.log if one.cause == cause and (one.answer or not is_answered))
                return next((one for one in wanted if where.items() <= dict(one.where).items()), None)

        with self._heard:
            assert self._heard.wait_for(lambda: found() is not None, LIMIT_S), f"no {cause}"
        one = found()
        assert one is not None
        return one

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    with closing(Told()) as one:
        yield one


@pytest.mark.proves("block_path", "findings.ios.errors.!!")
def test_a_device_that_fails_is_named_with_who_asked_it(told: Told, tmp_path: Path) -> None:
    with loop(tmp_path / "short") as short:
        if not short.is_direct():
            pytest.skip("cannot run here: without O_DIRECT a loop device reads zeros beyond its file")
        os.truncate(tmp_path / "short", 1 << 20)
        short.ask("beyond", 20, (1 << 20) - PAGE)
        found = told.incident("disk-errors", device=short.name)
    assert found.level == "!!" and found.sentence.startswith(f"{short.name}: "), found.sentence
    assert "of python" in found.sentence and "end with an error (read)" in found.sentence


@pytest.mark.proves("io_limits", "findings.limits.used_pct.!")
def test_a_vm_that_its_own_limit_holds_back_is_named_with_the_limit(told: Told, tmp_path: Path) -> None:
    with (
        loop(tmp_path / "image") as disk,
        disk.asked_by(VM, "read", READS) as process,
        limited(disk, READS_PER_S, process.pid),
    ):
        print(file=process.stdin, flush=True)
        found = told.incident("io-limit", vm=VM)
    said = f"{VM}: reaches its own limit of reads on {disk.name} (io.max): "
    assert found.level == "!" and found.sentence.startswith(said), found.sentence
    assert f"of {READS_PER_S} per second" in found.sentence


def test_the_host_is_asked_about_a_device_that_is_slow(told: Told, tmp_path: Path) -> None:
    """Of reads that come at once, each waits for those before it."""
    with slow_file(tmp_path / "slow", read_s=SLOW_S) as file, loop(file) as slow:
        if not slow.is_direct():
            pytest.skip("cannot run here: without O_DIRECT what was written is read from the page cache")
        asking = threading.Thread(target=slow.ask, args=("apart", TIMES))
        asking.start()
        found = told.incident("disk-slow", is_answered=True, device=slow.name)
        asking.join()
    assert found.sentence.startswith(f"{slow.name}: slow device, half of the reads of python take over"), found.sentence
    assert found.answer["stack"] == f"{slow.name} (loop)" and found.answer["adds"] == slow.name
    mean_ms = found.answer["mean_ms"]
    assert isinstance(mean_ms, float) and mean_ms > 1000 * SLOW_S * AT_ONCE / 2
