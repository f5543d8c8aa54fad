"""Records of a probe: each is sent when it changed, none is left out, and an old one makes room."""

from __future__ import annotations

import struct

import pytest

from netconsole_collector.probe.reading import records
from netconsole_collector.probe.reading.decode import LayoutError
from netconsole_collector.probe.reading.records import RecordReader
from tests.support.fake_map import FakeMap, labels

KEY = [{"name": "number", "type": "u32"}]
VALUE = [{"name": "began_ns", "type": "u64"}, {"name": "ended_ns", "type": "u64"}]
SPEC = {"key": KEY, "value": VALUE, "since": "began_ns", "keep": "keep_ms"}
KEEP_MS = 100
MS = 1_000_000


class Records(FakeMap):
    """A plain hash: one value, whatever the CPU."""

    def __init__(self, **more: int) -> None:
        super().__init__(**{"key_size": 4, "value_size": 16, "max_entries": 64, **more})

    def begin(self, number: int, began_ns: int, ended_ns: int = 0) -> None:
        self.content[struct.pack("=I", number)] = struct.pack("=QQ", began_ns, ended_ns)


@pytest.fixture
def fake() -> Records:
    return Records()


@pytest.fixture
def reader(fake: Records) -> RecordReader:
    return RecordReader("echoes", SPEC, fake, labels())  # type: ignore[arg-type]


def test_a_record_is_sent_when_it_begins_and_when_it_changes(fake: Records, reader: RecordReader) -> None:
    fake.begin(7, 10 * MS)
    assert reader.columns == ["number", "began_ns", "ended_ns"]
    assert reader.read(20 * MS, KEEP_MS)["records"] == [[7, 10 * MS, 0]]
    assert reader.read(30 * MS, KEEP_MS)["records"] == []
    fake.begin(7, 10 * MS, 40 * MS)
    assert reader.read(50 * MS, KEEP_MS)["records"] == [[7, 10 * MS, 40 * MS]]


def test_an_old_record_makes_room_when_it_was_sent(fake: Records, reader: RecordReader) -> None:
    fake.begin(7, 10 * MS)
    reader.read(20 * MS, KEEP_MS)
    assert reader.read(110 * MS, KEEP_MS)["records"] == []
    assert len(fake.content) == 1
    reader.read(111 * MS, KEEP_MS)
    assert fake.content == {}
    fake.begin(8, 10 * MS, 90 * MS)  # nobody has read it so far
    assert reader.read(500 * MS, KEEP_MS)["records"] == [[8, 10 * MS, 90 * MS]]
    assert fake.content == {}


def test_the_same_key_again_is_another_record(fake: Records, reader: RecordReader) -> None:
    fake.begin(7, 10 * MS, 11 * MS)
    reader.read(200 * MS, KEEP_MS)
    fake.begin(7, 300 * MS, 301 * MS)
    assert reader.read(302 * MS, KEEP_MS)["records"] == [[7, 300 * MS, 301 * MS]]


def test_what_does_not_fit_comes_with_the_next_frame(
    fake: Records, reader: RecordReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_RECORDS", 4)
    for number in range(10):
        fake.begin(number, 10 * MS)
    sent = []
    waiting = []
    for now_ms in (500, 501, 502, 503):  # all are old by now, and stay until they are sent
        read = reader.read(now_ms * MS, KEEP_MS)
        sent += [row[0] for row in read["records"]]
        waiting.append(read["waiting"])
    assert sorted(sent) == list(range(10))
    assert waiting == [6, 2, 0, 0]
    assert fake.content == {}


def test_a_record_that_is_being_filled_waits(fake: Records, reader: RecordReader) -> None:
    fake.begin(7, 0)
    assert reader.read(500 * MS, KEEP_MS) == {"columns": reader.columns, "records": [], "waiting": 0}
    assert len(fake.content) == 1


def test_manifest_and_program_must_agree(fake: Records) -> None:
    with pytest.raises(LayoutError, match="value of records echoes: 8 bytes in the manifest, 16 in the program"):
        RecordReader("echoes", {**SPEC, "value": VALUE[:1]}, fake, labels())  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="no value first_ns"):
        RecordReader("echoes", {**SPEC, "since": "first_ns"}, fake, labels())  # type: ignore[arg-type]
