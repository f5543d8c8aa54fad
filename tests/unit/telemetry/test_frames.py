"""Frames: docs/reference/frames.md and the types agree; whatever bytes come, decoding ends in one error."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.telemetry import frames
from netconsole.telemetry.frames import FrameError, decode, encode
from netconsole.telemetry.ledger import LEDGER
from tests.support.stamp import Stamp

DOC = (Path(__file__).parents[3] / "docs" / "reference" / "frames.md").read_text()
COMMON = {"kind", "v", "source", "probe", "seq", "mono_ns", "wall_ns"}
STAMP: Stamp = {"seq": 1, "mono_ns": 2, "wall_ns": 3}
KINDS = {struct.__name__.lower(): struct for struct in get_args(frames.AnyFrame)}


def section(title: str) -> str:
    return DOC.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", cell))


def test_the_page_names_every_kind_and_no_other() -> None:
    assert {word for row in rows(section("Kinds")) for word in words(row[0])} == set(KINDS)


def test_the_page_names_what_every_frame_carries() -> None:
    assert {word for row in rows(section("What every frame carries")) for word in words(row[0])} == COMMON


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_the_keys_of_a_kind(kind: str) -> None:
    keys = next(row[2] for row in rows(section("Kinds")) if words(row[0]) == {kind})
    own = {field.encode_name for field in msgspec.structs.fields(KINDS[kind])} - COMMON
    assert words(keys) == own


@pytest.mark.parametrize(
    ("kind", "key", "struct"),
    [
        ("hello", "host", frames.Host),
        ("counters", "values", frames.Count),
        ("histogram", "delta", frames.Buckets),
        ("cost", "programs", frames.Program),
        ("cost", "statistics", frames.Statistics),
        ("cost", "usage", frames.Usage),
    ],
)
def test_the_page_names_the_keys_inside(kind: str, key: str, struct: type[msgspec.Struct]) -> None:
    keys = next(row[2] for row in rows(section("Kinds")) if words(row[0]) == {kind})
    after = keys.split(f"`{key}`")[1]
    inside = re.sub(r"\[.*\]", "", after.split("}")[0].rpartition("{")[2])
    named = {word.partition(" ")[0] for word in inside.split(", ")}
    assert named == {field.encode_name for field in msgspec.structs.fields(struct)}


def test_the_page_names_the_states_of_a_probe() -> None:
    keys = next(row[2] for row in rows(section("Kinds")) if words(row[0]) == {"status"})
    states = keys.split("`state`")[1].split(",")[0]
    assert {word.strip() for word in states.split("·")} == set(get_args(frames.ProbeStatus))


def test_the_page_names_the_entries_of_the_ledger() -> None:
    entries = {word for row in rows(section("The ledger")) for word in words(row[0])}
    assert entries == set(LEDGER)


def test_a_frame_survives_encoding() -> None:
    row = frames.Row(labels={"device": "[bold]\x1b[31m"}, counts={"count": frames.Count(delta=1, total=2)})
    table = frames.Table(**STAMP, probe="kernel_drops", name="drops", interval_ns=10**9, full=True, rows=[row])
    assert decode(encode(table).rstrip(b"\n")) == table


def test_a_frame_without_a_source_is_the_collectors() -> None:
    assert decode(b'{"kind":"bye","seq":1,"mono_ns":2,"wall_ns":3,"why":"stop"}').source == "collector"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b'{"kind":"unheard","seq":1,"mono_ns":2,"wall_ns":3}',
        b'{"kind":"bye","seq":1,"mono_ns":2,"wall_ns":3}',
        b'{"kind":"bye","seq":1,"mono_ns":2,"wall_ns":3,"why":"stop","more":1}',
        b'{"kind":"bye","v":2,"seq":1,"mono_ns":2,"wall_ns":3,"why":"stop"}',
        b'{"kind":"bye","seq":1.5,"mono_ns":2,"wall_ns":3,"why":"stop"}',
        b"[" * 100_000,
        b'{"kind":"bye","seq":1,"mono_ns":2,"wall_ns":3,"why":"\xff"}',
        b" " * (frames.MAX_LINE_BYTES + 1),
    ],
)
def test_what_is_no_frame_is_refused_in_one_line(line: bytes) -> None:
    with pytest.raises(FrameError) as error:
        decode(line)
    assert "\n" not in str(error.value)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_frame_or_in_one_error(line: bytes) -> None:
    with contextlib.suppress(FrameError):
        decode(line)


VALID = encode(frames.Counters(**STAMP, probe="p", interval_ns=9, values={"a": frames.Count(delta=1, total=2)}))


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=3))
def test_a_damaged_frame_ends_in_a_frame_or_in_one_error(at: int, damage: bytes) -> None:
    with contextlib.suppress(FrameError):
        decode(VALID[:at] + damage + VALID[at + 1 :])


BOUNDED = '{"kind":"%s","probe":"p","seq":1,"mono_ns":2,"wall_ns":3,%s}'
LONG = "x" * 5000
HISTOGRAM = '"name":"h","interval_ns":1,"unit":"ns","labels":{},"delta":%s,"total":%s'
MANY = json.dumps({f"f{n}": 1 for n in range(100)})
TABLE = '"name":"t","interval_ns":1,"full":true,"rows":[{%s}]'
BUCKETS = '{"count":1,"sum":1,"min":1,"max":1,"buckets":[[%s,1]]}'


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("counters", f'"interval_ns":1,"values":{{"a":{{"delta":1,"total":1{"0" * 400}}}}}'),
        ("counters", f'"interval_ns":1,"values":{{"{LONG}":{{"delta":1,"total":1}}}}'),
        ("counters", '"interval_ns":-1,"values":{}'),
        ("status", f'"state":"failed","mode":"summary","why":"{LONG}"'),
        ("event", f'"name":"e","fields":{{"stack":["{LONG}"]}}'),
        ("event", f'"name":"e","fields":{MANY}'),
        ("histogram", HISTOGRAM % (BUCKETS % 1, BUCKETS % (10**15))),
        ("histogram", HISTOGRAM % (BUCKETS % -1, BUCKETS % 1)),
        ("table", TABLE % f'"labels":{{"a":"{LONG}"}},"counts":{{}}'),
        ("table", TABLE % f'"labels":{{}},"counts":{{}},"gauges":{{"g":1{"0" * 400}}}'),
    ],
)
def test_what_would_fill_memory_or_overflow_is_refused(kind: str, rest: str) -> None:
    with pytest.raises(FrameError):
        decode((BOUNDED % (kind, rest)).encode())


HOST = {"name": "h", "kernel": "k", "arch": "a", "os": "o", "cpus": 1, "boot_id": "b"}
COUNT = {"delta": 1, "total": 2}
WHOLE: dict[str, dict[str, Any]] = {
    "hello": {"host": HOST, "collector": {}, "capabilities": {}},
    "counters": {"interval_ns": 1, "values": {"n": COUNT}},
    "table": {"name": "t", "interval_ns": 1, "full": True, "rows": [{"labels": {}, "counts": {"n": COUNT}}]},
    "cost": {
        "interval_ns": 1, "usage": {"cpu_ns": 1, "rss_kb": 1, "pss_kb": None},
        "programs": [{"name": "p", "attach": "x", "run_count": 1, "run_time_ns": 1, "missed": None}],
        "statistics": {"window_ns": 1, "interval_ns": 1, "estimated": False},
    },
}  # fmt: skip


def line_of(kind: str, **more: Any) -> bytes:
    return json.dumps(
        {"kind": kind, "v": frames.VERSION, "probe": "p", **STAMP, **WHOLE.get(kind, {}), **more}
    ).encode()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("hello", ["host"]), ("counters", ["values", "n"]), ("table", ["rows", 0]), ("cost", ["usage"]),
        ("cost", ["programs", 0]), ("cost", ["statistics"]), ("cost", []),
    ],
)  # fmt: skip
def test_a_key_that_is_not_known_is_refused_wherever_it_is(kind: str, path: list[Any]) -> None:
    """A frame of another version says so; one of this version has no others."""
    decode(line_of(kind))
    document = json.loads(line_of(kind))
    inner = document
    for step in path:
        inner = inner[step]
    inner["more"] = 1
    with pytest.raises(FrameError, match="unknown field `more`"):
        decode(json.dumps(document).encode())


def test_a_line_may_be_four_megabytes_long() -> None:
    assert frames.MAX_LINE_BYTES == 4 * 1024 * 1024
    line = line_of("bye", why="x")
    longest = line + b" " * (frames.MAX_LINE_BYTES - len(line))
    assert isinstance(decode(longest), frames.Bye)
    with pytest.raises(FrameError, match="frame of 4194305 bytes: longer than 4194304"):
        decode(longest + b" ")


def test_what_a_frame_leaves_out() -> None:
    records = decode(line_of("records", name="r", columns=["a"], records=[[1]]))
    assert isinstance(records, frames.Records) and records.waiting == 0
    table = decode(line_of("table"))
    assert isinstance(table, frames.Table) and table.omitted == 0 and table.rows[0].gauges == {}
    cost = decode(line_of("cost", programs=[], statistics=None, usage=None))
    assert isinstance(cost, frames.Cost) and (cost.events, cost.ledger, cost.maps_kb) == ({}, {}, None)


def test_a_histogram_has_each_of_its_buckets_once_at_most() -> None:
    def line(buckets: int) -> bytes:
        one = '{"count":1,"sum":1,"min":1,"max":1,"buckets":[' + ",".join(["[0,1]"] * buckets) + "]}"
        return (
            '{"kind":"histogram","seq":1,"mono_ns":0,"wall_ns":0,"probe":"p","name":"h","interval_ns":1,"unit":"ns",'
            f'"labels":{{}},"delta":{one},"total":{one}}}'
        ).encode()

    assert isinstance(frames.decode(line(frames.SLOTS)), frames.Histogram)
    with pytest.raises(frames.FrameError, match="length <= 496"):
        frames.decode(line(frames.SLOTS + 1))
