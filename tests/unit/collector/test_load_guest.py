"""The guest's side of vhost that a calibration plays: the test is vhost, and gives back what it is offered."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest

from netconsole_collector import load_guest
from netconsole_collector.load_guest import SIZE, LoadGuest

SET_VRING_ADDR, SET_VRING_KICK, SET_BACKEND = 0x4028AF11, 0x4008AF20, 0x4008AF30


class EndingThread(threading.Thread):
    """Ends where what it waits for says so."""

    def run(self) -> None:
        with suppress(SystemExit):
            super().run()


class Vhost:
    """Hears what vhost is told, and answers kicks: at most so many buffers of a ring at once."""

    def __init__(self, most: int = SIZE) -> None:
        self.most = most
        self.rings: dict[int, tuple[int, int]] = {}
        """By number: where the ring's used and available parts are in memory."""
        self.kicks: dict[int, int] = {}
        self.backends: list[int] = []
        self._workers: list[threading.Thread] = []
        self._is_over = threading.Event()

    def told(self, _: int, request: int, argument: object = 0) -> int:
        if request == SET_VRING_ADDR:
            number, _flags, _desc, used, avail, _log = struct.unpack("=IIQQQQ", _bytes(argument))
            self.rings[number] = used, avail
        elif request == SET_VRING_KICK:
            number, kick = struct.unpack("=Ii", _bytes(argument))
            self.kicks[number] = kick
        elif request == SET_BACKEND:
            number, _tap = struct.unpack("=Ii", _bytes(argument))
            self.backends.append(number)
            self._workers.append(threading.Thread(target=self._work, args=(number,)))
            self._workers[-1].start()
        return 3

    def _work(self, number: int) -> None:
        used_at, avail_at = self.rings[number]
        used = 0
        while True:
            os.read(self.kicks[number], 8)
            if self._is_over.is_set():
                return
            while used != (offered := load(avail_at + 2)):
                used = (used + min(self.most, (offered - used) & 0xFFFF)) & 0xFFFF
                store(used_at + 2, used)

    def rest(self, seconds: float) -> None:
        """Instead of time.sleep: ends the thread of the guest when the test is over."""
        if self._is_over.wait(seconds):
            raise SystemExit

    def end(self, before: set[threading.Thread]) -> None:
        """All threads that the test has started."""
        self._is_over.set()
        for number in self.backends:
            os.write(self.kicks[number], struct.pack("=Q", 1))
        for thread in set(threading.enumerate()) - before:
            thread.join()


def _bytes(argument: object) -> bytes:
    assert isinstance(argument, bytes)
    return argument


def load(address: int) -> int:
    return int(ctypes.c_uint16.from_address(address).value)


def store(address: int, value: int) -> None:
    ctypes.c_uint16.from_address(address).value = value


@pytest.fixture
def vhost(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vhost]:
    made, before = Vhost(), set(threading.enumerate())
    opened = os.open
    monkeypatch.setattr(fcntl, "ioctl", made.told)
    monkeypatch.setattr(load_guest, "is_loaded", lambda module: module != "kvm")
    monkeypatch.setattr(os, "open", lambda path, flags: opened(os.devnull, flags))
    monkeypatch.setattr(load_guest, "time", SimpleNamespace(monotonic=time.monotonic, sleep=made.rest))
    monkeypatch.setattr(load_guest, "threading", SimpleNamespace(Thread=EndingThread, Lock=threading.Lock))
    yield made
    made.end(before)


def test_it_counts_what_vhost_takes_beyond_16_bits(vhost: Vhost) -> None:
    guest = LoadGuest()
    assert sorted(vhost.backends) == [0, 1]
    sent, until = 0, time.monotonic() + 60
    while sent <= 1 << 16 and time.monotonic() < until:
        sent += guest.send(0.05)
    ring = guest._rings[1]
    assert sent == ring.used() == ring.offered > 1 << 16 and ring.pending() == 0


def test_what_it_receives_is_counted_and_its_buffers_are_offered_again(vhost: Vhost) -> None:
    guest = LoadGuest()
    until = time.monotonic() + 10
    while guest.received() < 3 * SIZE and time.monotonic() < until:
        time.sleep(0.001)
    before = guest.received()
    assert before >= 3 * SIZE and guest.received() >= before


def test_without_the_modules_it_loads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_guest, "is_loaded", lambda module: "vhost" not in module)
    with pytest.raises(RuntimeError, match="vhost_net is not loaded"):
        LoadGuest()
