"""Snapshots load for ever, and nothing that calls itself one does harm."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.snapshot import document as snapshot_file
from tools import schemas as schema

DATA = Path(__file__).parents[2] / "support" / "data"
VERSION_1 = DATA / "snapshot-version-1.json"
SCHEMAS = Path(__file__).parents[3] / "docs/reference/schema"


def test_a_snapshot_of_version_1_loads_in_this_version() -> None:
    snapshot = snapshot_file.load(VERSION_1)
    drops = snapshot.probes["kernel_drops"]
    assert drops.counters["drops"].total == 20310
    assert drops.tables["drops"][0]["reason"] == "FULL_RING"
    assert snapshot.probes["tx_queue_latency"].histograms["wait"].by[0].labels == {"device": "eth1", "queue": 0}
    assert snapshot.probes["vhost"].why == "vhost_net is not loaded on this host"
    assert snapshot.facts["cpu/governor"].value is None


def test_buckets_may_touch_and_a_file_may_have_64_megabytes() -> None:
    assert snapshot_file.HistogramData(buckets=[(1.0, 2.0, 1), (2.0, 3.0, 1)]).count == 0
    assert snapshot_file.MAX_BYTES == 64 * 1024 * 1024


def test_what_is_written_reads_back_the_same() -> None:
    snapshot = snapshot_file.load(VERSION_1)
    assert snapshot_file.parse(snapshot_file.encode(snapshot), "again") == snapshot


def test_the_committed_snapshot_satisfies_the_committed_schema() -> None:
    committed = json.loads((SCHEMAS / "snapshot-1.json").read_text())
    jsonschema.Draft202012Validator(committed).validate(json.loads(VERSION_1.read_text()))


@pytest.mark.parametrize("name", schema.DOCUMENTS)
def test_the_committed_schemas_are_those_of_the_types(name: str) -> None:
    assert (SCHEMAS / name).read_text() == schema.text(schema.DOCUMENTS[name]), (
        "python -m tools.schemas docs/reference/schema"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "netconsole.snapshot/9"}, 'x.json: schema: this netconsole cannot read "netconsole.snapshot/9"'),
        ({"duration_s": -1}, "x.json: duration_s: not a snapshot"),
        ({"host": None}, "x.json: host: not a snapshot"),
        ({"probes": {"a": {"status": "attached", "counters": {"b": {"total": 1.5}}}}}, "Expected `int"),
        ({"probes": {"a": {"status": "\x1b[31m"}}}, "x.json: probes[...].status: not a snapshot"),
        ({"probes": {"a": {"status": "attached", "histograms": {"h": {"buckets": [[2, 1, 1]]}}}}}, "must ascend"),
        ({"probes": {"a": {"status": "attached", "histograms": {"h": {"buckets": [[2, 2, 1]]}}}}}, "must ascend"),
        ({"probes": {"a": {"status": "attached", "histograms": {"h": {"buckets": [[1, 3, 1], [2, 4, 1]]}}}}}, "must"),
    ],
)
def test_a_bad_value_is_one_line_with_file_and_key(change: dict[str, object], message: str) -> None:
    document = {**json.loads(VERSION_1.read_text()), **change}
    with pytest.raises(BadInput) as caught:
        snapshot_file.parse(json.dumps(document).encode(), "x.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_even_parsed(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as stream:
        stream.truncate(snapshot_file.MAX_BYTES + 1)  # sparse
    with pytest.raises(BadInput, match="longer than"):
        snapshot_file.load(tmp_path / "large.json")


@given(st.binary())
def test_any_bytes_load_or_are_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(BadInput) as caught:
        snapshot_file.parse(content, "x")
    assert len(str(caught.value).splitlines()) == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from(sorted(json.loads(VERSION_1.read_text()))), _JSON)
def test_any_value_of_any_key_loads_or_is_refused_in_one_line(name: str, value: object) -> None:
    document = {**json.loads(VERSION_1.read_text()), name: value}
    try:
        snapshot_file.parse(json.dumps(document).encode(), "x")
    except BadInput as error:
        assert len(str(error).splitlines()) == 1


@given(st.data())
def test_a_mutilated_snapshot_loads_or_is_refused(data: st.DataObject) -> None:
    content = bytearray(VERSION_1.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for one in (bytes(content), bytes(content[:cut])):
        try:
            snapshot_file.parse(one, "x")
        except BadInput as error:
            assert len(str(error).splitlines()) == 1
