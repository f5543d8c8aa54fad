"""The capture document: what is read and written, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from netconsole.base.errors import BadInput
from netconsole.ping import capture

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs/reference/schema/ping-capture-1.json").read_text())
FULL: dict[str, Any] = {
    "schema": "netconsole.ping-capture/1",
    "role": "receiver-host",
    "host": "hv-017",
    "packets": [
        {"id": 7, "seq": 1, "request_us": 12.5, "between_us": 91.0, "reply_us": 9.5, "total_us": 113.0, "at_ns": 5},
        {"id": 7, "seq": 2, "outcome": "reply_lost_inside", "duplicates": 1},
    ],
    "summary": {"request_us": {"mean": 12.5, "n": 1, "p50": 12.5}},
    "vhost_irq": {"packets": [{"id": 7, "seq": 1, "s1_s2": 22, "total": 42}], "summary": {"total": {"mean": 42}}},
    "vhost_kick": {"summary": {"k1_k2": {"mean": 20, "n": 3}, "total": {"mean": 25, "n": 3}}},
    "boundary": "before_driver",
    "clock": {"boot_id": "b", "tsc": [{"ns": 1, "tsc": 2, "hz": 2.5e9, "accuracy_us": 0.1}]},
    "guest_tsc": {"offset": -5, "vm": "web-07"},
    "facts": {"cpu/idle/state3/exit_latency_us": {"value": 133, "source": "/sys"}},
    "a_later_version": {"has": "more"},
}


def parse(document: object) -> capture.PingCapture:
    return capture.parse(json.dumps(document).encode(), "a.json")


def test_what_is_written_is_read_again_and_fits_the_schema() -> None:
    read = parse(FULL)
    assert read.packets[1].outcome == "reply_lost_inside" and read.packets[1].request_us is None
    assert read.vhost_irq is not None and read.vhost_irq.packets[0].total == 42
    assert read.facts["cpu/idle/state3/exit_latency_us"].value == 133
    assert capture.parse(capture.encode(read), "again") == read
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(capture.encode(read)))


@pytest.mark.parametrize("role", capture.ROLES)
def test_means_alone_and_nothing_at_all_are_captures(role: str) -> None:
    assert parse({"schema": capture.SCHEMA, "role": role}).packets == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"role": "router"}, "role: not a ping capture: Invalid enum value 'router'"),
        ({"schema": "netconsole.snapshot/1"}, 'schema: this netconsole cannot read "netconsole.snapshot/1"'),
        ({"packets": [{"seq": -1}]}, "packets[0].seq: not a ping capture"),
        ({"packets": [{"seq": 1, "total_us": "fast"}]}, "packets[0].total_us: not a ping capture"),
        ({"packets": [{"seq": 1, "total_us": 1e300}]}, "packets[0].total_us: not a ping capture"),
        ({"packets": [{"seq": 1, "outcome": "\x1b[31m"}]}, "packets[0].outcome: not a ping capture"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse({**FULL, **change})
    assert f"a.json: {said}" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [b"", b"[1, 2", json.dumps(FULL).encode()[:200], b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_one_line(content: bytes) -> None:
    with pytest.raises(BadInput, match=r"^a\.json: not a ping capture"):
        capture.parse(content, "a.json")
