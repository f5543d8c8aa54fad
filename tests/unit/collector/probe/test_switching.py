"""Programs that are attached again while the kernel still detaches them: it refuses a program that is attached."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from netconsole_collector.kernel import attach, loading, syscalls
from netconsole_collector.kernel.attach import CannotAttach
from netconsole_collector.probe import attached_program, running
from netconsole_collector.probe.attached_program import AttachedProgram
from netconsole_collector.probe.sampler import Closing
from tests.support.running_probe import Made

pytestmark = pytest.mark.usefixtures("no_kernel")


class Kernel:
    """Detaches nothing before somebody waits for it, and refuses a program that is attached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attached: dict[int, int] = {}
        """Link → program."""
        self.is_waited_for = threading.Event()
        self.closing = Closing()
        wait = attached_program.Released.wait

        def waited(released: attached_program.Released) -> None:
            self.is_waited_for.set()
            wait(released)

        monkeypatch.setattr(attached_program.Released, "wait", waited)
        monkeypatch.setattr("os.close", self._close)
        monkeypatch.setattr(attach, "parse", lambda text: text)
        monkeypatch.setattr(attach, "attach", self.attach)
        info = syscalls.ProgramInfo(loading.TRACING, 0, "", None, None, None)
        monkeypatch.setattr(syscalls, "program_info", lambda fd: info)

    def attach(self, _: object, program: int, is_typed: bool) -> int:
        if program in self.attached.values():
            raise CannotAttach("Device or resource busy")
        link = 100 + program
        self.attached[link] = program
        return link

    def _close(self, link: int) -> None:
        self.is_waited_for.wait()
        self.attached.pop(link, None)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr(running, "AttachedProgram", AttachedProgram)
    kernel = Kernel(monkeypatch)
    yield kernel
    kernel.is_waited_for.set()
    assert kernel.closing._thread is not None
    kernel.closing._thread.join()


def resting(kernel: Kernel) -> Made:
    """A probe that rests, and whose programs are still being detached."""
    kernel.attached = {1: 1, 2: 2, 3: 3}
    knobs = {"device": "", "events_per_s": 100, "threshold_us": 0, "seen_pct": 10}
    made = Made(probe={"modes": ["summary", "details"]}, knobs=knobs)
    made.probe.configure("details", {})
    kernel.closing.close(made.probe.rest())
    assert kernel.attached == {1: 1, 2: 2, 3: 3}
    return made


@pytest.mark.parametrize("mode", ["summary", "details"])
def test_a_probe_that_no_longer_rests_waits_until_its_programs_are_detached(kernel: Kernel, mode: str) -> None:
    made = resting(kernel)
    made.probe.configure(mode, {"seen_pct": 100})
    assert made.probe.missing == []
    wanted = [one for one in made.probe.programs if one.is_of(mode)]
    assert all(one.is_attached for one in wanted) and {one.fd for one in wanted} <= set(kernel.attached.values())


def test_a_program_that_the_sampler_attaches_again_at_once_waits_too(kernel: Kernel) -> None:
    made = resting(kernel)
    while made.probe.attach_next():
        pass
    made.probe.wake()
    assert made.probe.missing == [] and sorted(kernel.attached) == [101, 102, 103]


def test_a_probe_goes_while_its_programs_are_being_detached(kernel: Kernel) -> None:
    made = resting(kernel)
    kernel.is_waited_for.set()
    made.probe.close()
    assert made.probe.programs == []


def test_what_cannot_be_closed_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError("bad descriptor")

    monkeypatch.setattr("os.close", refuse)
    released = attached_program.Released(7)
    released.close()
    released.wait()
