"""What a breakdown and a capture leave out when they are written, and what a reader takes for what is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netconsole.base.errors import BadInput
from netconsole.ping import breakdown, capture

MIB = 1 << 20
SHORT: list[tuple[msgspec.Struct, str]] = [
    (breakdown.PathTime(None, None, False), '{"mean_us":null,"n":null,"measured":false}'),
    (breakdown.BreakdownCheck("a", True, "b"), '{"check":"a","ok":true,"detail":"b"}'),
    (breakdown.Vantage("host"), '{"role":"host"}'),
    (breakdown.Loss("here", 1), '{"where":"here","count":1}'),
    (breakdown.FactShown("a", 1, "ok"), '{"fact":"a","value":1,"word":"ok"}'),
    (
        breakdown.PingAdvice("A", "b", "c", "?", "d"),
        '{"segment":"A","topic":"b","host":"c","word":"?","reason":"d"}',
    ),
    (
        breakdown.TimeChange(1.0, 2.0, 1.0, 2.0),
        '{"baseline_us":1.0,"current_us":2.0,"difference_us":1.0,"ratio":2.0}',
    ),
    (
        breakdown.PingComparison(breakdown.TimeChange(None, None, None, None), {}, {}, {}, {}, []),
        '{"round_trip":{"baseline_us":null,"current_us":null,"difference_us":null,"ratio":null},'
        '"segments":{},"stages":{},"parts":{},"layers":{},"findings":[]}',
    ),
    (
        breakdown.Breakdown(breakdown.SCHEMA, None, 0, {}, {}, {}, {}, []),
        f'{{"schema":"{breakdown.SCHEMA}","round_trip_us":null,"paired_packets":0,'
        '"segments":{},"stages":{},"parts":{},"layers":{},"checks":[]}',
    ),
    (capture.TimeSummary(1.0), '{"mean":1.0}'),
    (capture.EchoTimes(1), '{"seq":1}'),
    (capture.EchoSummary(), "{}"),
    (capture.IrqTimes(1), '{"seq":1}'),
    (capture.IrqSummary(), "{}"),
    (capture.VhostIrq(), "{}"),
    (capture.KickTimes(1), '{"seq":1}'),
    (capture.KickSummary(), "{}"),
    (capture.VhostKick(), "{}"),
    (capture.TscPoint(1, 2, 3.0, 0.5), '{"ns":1,"tsc":2,"hz":3.0,"accuracy_us":0.5}'),
    (capture.WallPoint(1, 2), '{"ns":1,"unix_ns":2}'),
    (capture.CaptureClock(), "{}"),
    (capture.GuestTsc(5), '{"offset":5}'),
    (capture.PingCapture(capture.SCHEMA, "host"), f'{{"schema":"{capture.SCHEMA}","role":"host"}}'),
]


@pytest.mark.parametrize(("short", "written"), SHORT, ids=lambda one: type(one).__name__)
def test_what_is_not_known_is_not_written(short: msgspec.Struct, written: str) -> None:
    assert msgspec.json.encode(short).decode() == written
    assert msgspec.json.decode(written, type=type(short)) == short


@pytest.mark.parametrize("short", [short for short, _ in SHORT], ids=lambda one: type(one).__name__)
def test_what_was_read_cannot_be_changed(short: msgspec.Struct) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        setattr(short, short.__struct_fields__[0], None)


def test_what_is_not_there_counts_as_nothing() -> None:
    assert breakdown.Vantage("host").echoes == 0
    assert breakdown.PathTime(None, None, False).contains == []
    echo, guest = capture.EchoTimes(1), capture.GuestTsc(5)
    assert (echo.outcome, echo.duplicates) == ("answered", 0)
    assert (guest.ratio, guest.fraction_bits) == (0, 0)
    assert not capture.PingCapture(capture.SCHEMA, "host").one_host


@pytest.mark.parametrize(("kind", "most"), [(breakdown, 16 * MIB), (capture, 128 * MIB)], ids=["breakdown", "capture"])
def test_a_file_that_is_too_large_is_not_read(kind: Any, most: int, tmp_path: Path) -> None:
    assert most == kind.MAX_BYTES and capture.MAX_ECHOES == 500_000
    file = tmp_path / "large.json"
    with file.open("wb") as empty:
        empty.truncate(most + 1)
    with pytest.raises(BadInput, match="large"):
        kind.load(file)


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("id", 0, 0xFFFF),
        ("seq", 0, 2**63 - 1),
        ("at_ns", -(2**63), 2**63 - 1),
        ("total_us", -1e12, 1e12),
        ("duplicates", 0, 2**63 - 1),
    ],
)
def test_figures_of_an_echo_have_bounds(key: str, least: float, most: float) -> None:
    def read(value: float) -> capture.PingCapture:
        document = {"schema": capture.SCHEMA, "role": "host", "packets": [{"seq": 1, key: value}]}
        return capture.parse(json.dumps(document).encode(), "a")

    for value in (least, most):
        assert getattr(read(value).packets[0], key) == value
    for value in (least * 1.01 or -1, most + max(1, most // 100)):
        with pytest.raises(BadInput, match=rf"packets\[0\]\.{key}"):
            read(value)


def with_point(**changes: float) -> dict[str, Any]:
    return {"clock": {"tsc": [{"ns": 1, "tsc": 0, "hz": 1e12, "accuracy_us": 0.0, **changes}]}}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"error_us": 0.0}, {"error_us": -0.1}),
        ({"error_us": 1e9}, {"error_us": 1.1e9}),
        ({"guest_tsc": {"offset": 0, "fraction_bits": 64}}, {"guest_tsc": {"offset": 0, "fraction_bits": 65}}),
        ({"guest_tsc": {"offset": -(2**63)}}, {"guest_tsc": {"offset": -(2**63) - 1}}),
        (with_point(), with_point(tsc=-1)),
        (with_point(hz=1e-9), with_point(hz=0.0)),
        (with_point(hz=1e12), with_point(hz=1.1e12)),
        (with_point(accuracy_us=1e9), with_point(accuracy_us=1.1e9)),
        (with_point(accuracy_us=0.0), with_point(accuracy_us=-0.1)),
        ({"clock": {"wall": [{"ns": 1, "unix_ns": 2}] * 16}}, {"clock": {"wall": [{"ns": 1, "unix_ns": 2}] * 17}}),
        ({"summary": {"total_us": {"mean": 1, "stdev": 0}}}, {"summary": {"total_us": {"mean": 1, "stdev": -1}}}),
    ],
)
def test_clocks_and_errors_have_bounds(good: dict[str, Any], bad: dict[str, Any]) -> None:
    def read(more: dict[str, Any]) -> None:
        capture.parse(json.dumps({"schema": capture.SCHEMA, "role": "host", **more}).encode(), "a")

    read(good)
    with pytest.raises(BadInput):
        read(bad)
