"""Writes sampled packets into a pcapng file, for Wireshark (docs/use/packets.md), while a session runs.

Blocks and options: draft-ietf-opsawg-pcapng. The file can be read up to the last packet, however the console ends.
"""

from __future__ import annotations

import os
import queue
import re
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import netconsole
from netconsole.base.errors import bad
from netconsole.base.figure import count, safe, things
from netconsole.base.files import new_file
from netconsole.recording.recorder import CLOSE_S
from netconsole.recording.writer import MAX_BYTES
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State

KNOB = "packets"
"""Of a probe whose samples can have the begin of their packets."""
FIELD = "packet"
"""Of such a sample: ``LINK:LENGTH:HEX``, the link type of pcap, the bytes of the whole packet, how it begins."""
MAX_INTERFACES = 4096
_MAX_WAITING = 20_000
"""Frames that wait for a slow disk. What comes then is counted as not written."""
_MAX_COMMENT = 8000
"""Characters. A comment may have 65 535 bytes."""
_PACKET = re.compile(r"(1|101):([0-9]{1,9}):((?:[0-9a-f]{2}){1,128})")
_SECTION, _INTERFACE, _PACKET_BLOCK = 0x0A0D0D0A, 1, 6
_COMMENT, _IF_NAME, _IF_DESCRIPTION, _USER_APPLICATION, _DROP_COUNT, _RESOLUTION = 1, 2, 3, 4, 4, 9
_SNAP_BYTES = 128
_NANOSECONDS = b"\x09"
"""if_tsresol: times are in 10 to the power of -9 s."""


@dataclass(slots=True)
class _Counted:
    """What a probe has counted, and how much of it is in the file."""

    total: int = 0
    written: int = 0
    missing: int = 0
    """So many are known to be in no block."""
    told: int = 0


@dataclass(slots=True)
class PacketFile:
    """A sink of a session (:meth:`take`). A thread writes, so that a slow disk delays nothing."""

    path: Path
    counters: Mapping[str, str]
    """By probe: the counter that its samples are taken from."""
    max_bytes: int = MAX_BYTES
    """The file ends there; the measurement goes on."""
    packets: int = 0
    ended: str | None = None
    """Why it ended by itself."""
    _file: int = -1
    _bytes: int = 0
    _interfaces: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _waiting: queue.Queue[AnyFrame | None] = field(default_factory=lambda: queue.Queue(_MAX_WAITING))
    _thread: threading.Thread | None = None

    def open(self) -> PacketFile:
        """Raises BadInput when the file exists, or cannot be made."""
        if self.path == Path("-"):
            raise bad("--pcap", "", "packets go to a file, not to standard output: name one")
        self._file = new_file(self.path, "a file of packets")
        application = f"netconsole {netconsole.__version__}".encode()
        body = struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1) + _options((_USER_APPLICATION, application))
        self._append(_block(_SECTION, body))
        self._thread = threading.Thread(target=self._run, name="packets", daemon=True)
        self._thread.start()
        return self

    def take(self, state: State, batch: Sequence[AnyFrame]) -> None:
        """Takes frames. Called under the session's lock, so it is short."""
        for frame in batch:
            is_wanted = isinstance(frame, frames.Event) and FIELD in frame.fields
            if (is_wanted or isinstance(frame, frames.Counters)) and frame.probe in self.counters:
                try:
                    self._waiting.put_nowait(frame)
                except queue.Full:
                    return

    def close(self) -> None:
        """Writes what waits, and closes the file. Waits at most CLOSE_S. Idempotent."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)
        self._thread = None

    @property
    def outcome(self) -> str:
        """How many packets are in the file, and how many are not."""
        missing = sum(max(0, one.total - one.written) for one in self._counted.values())
        more = f"; {count(missing)} more were counted, and are not in it" if missing else ""
        ended = f" ({self.ended})" if self.ended else ""
        return f"{things(self.packets, 'packets')} in {safe(self.path)}{more}{ended}"

    def _run(self) -> None:
        try:
            while (frame := self._waiting.get()) is not None:
                if isinstance(frame, frames.Counters):
                    self._count(frame)
                elif isinstance(frame, frames.Event) and self.ended is None:
                    try:
                        self._write(frame)
                    except OSError as error:  # what comes now is still counted, as not written
                        self.ended = str(error.strerror or error).lower()
        finally:
            os.close(self._file)

    def _count(self, frame: frames.Counters) -> None:
        """What was counted before this interval, and has not come as a sample by now, is in no block."""
        probe = frame.probe or ""
        one = self._counted.setdefault(probe, _Counted())
        one.missing = max(one.missing, one.total - one.written)
        counted = frame.values.get(self.counters[probe])
        if counted is not None and counted.total is not None:
            one.total = max(one.total, counted.total)

    def _write(self, event: frames.Event) -> None:
        match = _PACKET.fullmatch(str(event.fields[FIELD]))
        if match is None:
            return
        link, length, begin = int(match[1]), int(match[2]), bytes.fromhex(match[3])
        one = self._counted.setdefault(event.probe or "", _Counted())
        content = b""
        place = safe(event.fields.get("device") or "", 64), safe(event.fields.get("netns") or "", 64), link
        if place not in self._interfaces and len(self._interfaces) >= MAX_INTERFACES:
            place = "others", "", link
        if place not in self._interfaces:
            self._interfaces[place] = len(self._interfaces)
            content += _interface(*place)
        content += _packet(
            self._interfaces[place], event.happened_ns, begin, max(length, len(begin)),
            comment(event.fields), max(0, one.missing - one.told),
        )  # fmt: skip
        if self._bytes + len(content) > self.max_bytes:
            self.ended = f"it is full: {self.max_bytes >> 20} MB"
            return
        self._append(content)
        one.told = max(one.told, one.missing)
        one.written += 1
        self.packets += 1

    def _append(self, content: bytes) -> None:
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self._bytes)  # back to the end of the last whole packet
            raise
        self._bytes += len(content)


def comment(fields: Mapping[str, object]) -> str:
    """Why and where it was dropped, or by which tunnel it came, in one line: dissectors take each line for a field."""
    why = " at ".join(safe(fields[name], 128) for name in ("reason", "location") if fields.get(name))
    cpu = f"CPU {fields['cpu']}" if isinstance(fields.get("cpu"), int) else ""
    tunnel = f"{safe(fields['tunnel'], 16)} {safe(fields.get('vni'), 16)}" if fields.get("tunnel") else ""
    # A tag that the kernel keeps beside the packet; that of a packet in a tunnel is in it.
    tag = f"VLAN {fields['vlan']}" if fields.get("vlan") and not tunnel else ""
    stack = fields.get("stack")
    calls = " < ".join(safe(call, 128) for call in stack) if isinstance(stack, list) else ""
    return "; ".join(part for part in (why, tunnel, tag, cpu, f"stack: {calls}" if calls else "") if part)[
        :_MAX_COMMENT
    ]


def _interface(device: str, netns: str, link: int) -> bytes:
    body = struct.pack("=HHI", link, 0, _SNAP_BYTES)
    name = device or "no device"
    about = f"network namespace {netns}" if netns else ""
    options = ((_IF_NAME, name.encode()), (_IF_DESCRIPTION, about.encode()), (_RESOLUTION, _NANOSECONDS))
    return _block(_INTERFACE, body + _options(*(one for one in options if one[1])))


def _packet(interface: int, at_ns: int, begin: bytes, length: int, told: str, missing: int) -> bytes:
    body = struct.pack("=IIIII", interface, at_ns >> 32, at_ns & 0xFFFFFFFF, len(begin), length) + _padded(begin)
    options = [(_COMMENT, told.encode())] if told else []
    if missing:
        options.append((_DROP_COUNT, struct.pack("=Q", missing)))
    return _block(_PACKET_BLOCK, body + _options(*options))


def _options(*options: tuple[int, bytes]) -> bytes:
    """Each with its number and length; the last one has the number 0. Nothing where there are none."""
    told = b"".join(struct.pack("=HH", number, len(value)) + _padded(value) for number, value in options)
    return told + bytes(4) if told else b""


def _block(kind: int, body: bytes) -> bytes:
    """Its length stands at its begin and at its end."""
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)
