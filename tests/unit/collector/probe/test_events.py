"""Samples are read in every interval, whatever the buffer has: nothing waits for a buffer to fill."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

from netconsole_collector.names.labels import Labeller
from netconsole_collector.probe.reading import decode
from netconsole_collector.probe.reading.events import MAX_EVENTS, EventReader, _Event

LAYOUT = decode.Layout([{"name": "port", "type": "u32"}])


class Buffer:
    """What a program has submitted and nobody has read yet."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def read(self, most: int) -> list[bytes]:
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        return taken

    def submit(self, *ports: int) -> None:
        self.waiting += [struct.pack("=I", port) for port in ports]


def reader_of(buffer: Buffer) -> EventReader:
    labels = SimpleNamespace(label=lambda _, value: value)
    reader = EventReader(cast(Labeller, labels))
    reader._buffers["nc_events"] = cast(Any, buffer)
    reader._events.append(_Event("nc_events", "drop", LAYOUT))
    return reader


def test_each_reading_has_the_events_since_the_last_one() -> None:
    buffer = Buffer()
    reader = reader_of(buffer)
    for ports in ((53,), (), (80, 443), (22,)):
        buffer.submit(*ports)
        assert [body["fields"]["port"] for body in reader.read()] == list(ports)
    assert reader.shed == 0


def test_a_flood_leaves_nothing_for_the_next_interval() -> None:
    buffer = Buffer()
    reader = reader_of(buffer)
    buffer.submit(*range(2 * MAX_EVENTS + 1))
    assert len(reader.read()) == MAX_EVENTS and reader.shed == MAX_EVENTS + 1
    buffer.submit(7)
    assert [body["fields"]["port"] for body in reader.read()] == [7]


def test_a_record_may_be_padded_to_eight_bytes_and_no_further() -> None:
    """Of several events in one buffer each is known by its size."""
    buffer = Buffer()
    reader = reader_of(buffer)
    for size, fits in ((3, False), (4, True), (11, True), (12, False)):
        buffer.waiting = [bytes(size)]
        shed = reader.shed
        assert (len(reader.read()), reader.shed - shed) == ((1, 0) if fits else (0, 1)), size
    reader._events.append(_Event("nc_events", "larger", decode.Layout([{"name": "two", "type": "u64", "count": 2}])))
    reader._events.append(_Event("other", "elsewhere", LAYOUT))
    buffer.waiting = [bytes(16), bytes(8)]
    assert [body["name"] for body in reader.read()] == ["larger", "drop"]
