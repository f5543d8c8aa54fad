"""A program of a probe that the kernel runs: attached to its own point, or called by another program there."""

import os
import struct
import threading
from contextlib import suppress
from typing import Any, Dict, List, Optional

from netconsole_collector.kernel import attach, bpf_maps, loading, syscalls

Json = Dict[str, Any]

_KEY = bytes(4)
"""A leader has room for one follower."""


class Released:
    """An attachment that its program has given up. Who has it closes it: that detaches the program, after a while."""

    def __init__(self, link: int) -> None:
        self._link = link
        self._is_closed = threading.Event()

    def close(self) -> None:
        """The kernel waits in it until no CPU runs the program any more."""
        with suppress(OSError):  # the descriptor is gone then, too (man 2 close)
            os.close(self._link)
        self._is_closed.set()

    def wait(self) -> None:
        """Until it is closed, by another thread."""
        self._is_closed.wait()


class AttachedProgram:
    """Owns the descriptors of the program and of its attachment.

    A program that *leads* calls another one by a tail call, through its map ``nc_followers``. A program that *follows*
    can be called so instead of being attached itself.
    """

    def __init__(self, entry: Json, point: str, fd: int, link: int) -> None:
        """``entry`` is what the manifest says of the program; ``link`` is the descriptor of the attachment."""
        self.name: str = entry["name"]
        self.measures: str = entry.get("measures") or self.name
        self.point = point
        self.fd = fd
        self.follows: bool = entry.get("follows", False)
        self.modes: Optional[List[str]] = entry.get("modes")
        """The modes in which it runs; None: in all of them."""
        self.goes_on: bool = entry.get("goes_on", False)
        """Whether it stays attached while the probe rests."""
        self.why_not: Optional[str] = None
        """Why it does not run any more, although it should; None while there is no such reason."""
        self.leader: "Optional[AttachedProgram]" = None
        """The program that calls this one; None while it does not follow."""
        self._calls: Optional[bpf_maps.Map] = None
        self._link = link
        self._released: Optional[Released] = None
        """The attachment that was given up last."""
        self._missed_behind = 0
        """Runs that earlier leaders missed while this program ran behind them."""
        self._leader_had_missed = 0

    def is_of(self, mode: str) -> bool:
        """Whether it runs in this mode."""
        return not self.modes or mode in self.modes

    @property
    def leads(self) -> bool:
        return self._calls is not None

    @property
    def is_attached(self) -> bool:
        """Whether it is attached to its own point."""
        return self._link >= 0

    def why_lost(self) -> Optional[str]:
        """Why it is no more at the device to which it was attached; None while it is there. Raises OSError."""
        if not self.point.startswith(attach.XDP) or not self.is_attached:
            return None
        return attach.why_lost(self._link, attach.parse(self.point).name)

    @property
    def runs(self) -> bool:
        return self.is_attached or self.leader is not None

    @property
    def place(self) -> str:
        """Where it runs, for people. The kernel counts runs and time of a program that follows as its leader's."""
        return self.point + (" (behind another probe's)" if self.leader is not None else "")

    def missed(self) -> Optional[int]:
        """Runs that the kernel has skipped in all: its own, and those of its leaders while it ran behind them.

        None on kernels that do not tell.
        """
        own = syscalls.program_info(self.fd).missed
        return None if own is None else own + self._missed_behind_leaders()

    def attach(self) -> None:
        """Attaches it to its own point once more. Raises attach.CannotAttach.

        If another thread still closes the attachment before, it waits: the kernel refuses a program that is attached.
        """
        if self._released is not None:
            self._released.wait()
        is_typed = syscalls.program_info(self.fd).type == loading.TRACING
        self._link = attach.attach(attach.parse(self.point), self.fd, is_typed)

    def lead(self, calls: bpf_maps.Map) -> None:
        """Lets it call another program, through its map ``nc_followers``."""
        self._calls = calls

    def follow(self, leader: "AttachedProgram") -> None:
        """Lets a leader call this program, and gives up its own attachment.

        It stays attached where the kernel refuses: one of the two is BTF-typed and the other is not.
        """
        try:
            leader._call(self)
        except OSError:
            return
        self.leader, self._leader_had_missed = leader, leader._missed_by_itself()
        self._close_link()

    def leave_leader(self) -> None:
        """Ends the calls of its leader, if it has one."""
        if self.leader is not None:
            self.leader._call(None)
            self._missed_behind = self._missed_behind_leaders()
            self.leader = None

    def detach(self) -> None:
        """Stops it. It stays loaded, and what it has counted can be read."""
        self.leave_leader()
        if self.is_attached:
            self._close_link()

    def release(self) -> List[Released]:
        """Gives up its attachment, if it has one. Whoever closes that detaches it: it may take long."""
        self.leave_leader()
        if not self.is_attached:
            return []
        self._released, self._link = Released(self._link), -1
        return [self._released]

    def close(self) -> None:
        """Gives it back to the kernel."""
        self.detach()
        os.close(self.fd)

    def _call(self, follower: "Optional[AttachedProgram]") -> None:
        """Calls this program from now on, or none. Raises OSError."""
        assert self._calls is not None, "only a program that leads has followers"
        if follower is None:
            self._calls.delete(_KEY)
        else:
            self._calls.set(_KEY, struct.pack("=I", follower.fd))

    def _close_link(self) -> None:
        os.close(self._link)
        self._link = -1

    def _missed_behind_leaders(self) -> int:
        if self.leader is None:
            return self._missed_behind
        return self._missed_behind + self.leader._missed_by_itself() - self._leader_had_missed

    def _missed_by_itself(self) -> int:
        return syscalls.program_info(self.fd).missed or 0


class Unseen:
    """Adds up the rests of one probe."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._since_ns: Optional[int] = None
        self._taken_ns = 0

    def begin(self, now_ns: int) -> None:
        """The probe rests from now on."""
        if self._since_ns is None:
            self._since_ns = now_ns

    def end(self, now_ns: int) -> None:
        """It is attached again."""
        if self._since_ns is not None:
            self.total_ns += max(0, now_ns - self._since_ns)
            self._since_ns = None

    def take(self, now_ns: int) -> int:
        """How long it has rested since the last call."""
        if self._since_ns is not None:
            self.end(now_ns)
            self.begin(now_ns)
        taken, self._taken_ns = self.total_ns - self._taken_ns, self.total_ns
        return taken
