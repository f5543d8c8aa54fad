"""Baselines are saved whole, private and under safe names, and say what they are good for."""

from __future__ import annotations

import json
import shutil
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.compare import baseline
from netconsole.snapshot.document import HostData
from tests.support import made_up

SCHEMA = Path(__file__).parents[3] / "docs/reference/schema/baseline-1.json"
CASE_A = Path(__file__).parents[2] / "support/data/ping-case-a"
NOW = datetime(2026, 11, 20, tzinfo=timezone.utc)
HERE = HostData(name="hv-017", kernel="6.1.0")


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An XDG data directory of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def files(folder: Path, count: int) -> list[Path]:
    """So many snapshot files."""
    made = []
    for seed in range(count):
        path = folder / f"run-{seed}.json"
        path.write_text(json.dumps(made_up.document(seed, samples=50)))
        made.append(path)
    return made


def test_what_is_saved_is_listed_loaded_and_removed(tmp_path: Path, data_home: Path) -> None:
    saved = baseline.save("monday", files(tmp_path, 3))
    [path] = (data_home / "netconsole/baselines").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert baseline.names() == ["monday"]
    assert baseline.load("monday") == saved
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(path.read_text()))
    snapshots, names = baseline.resolve("monday")
    assert (len(snapshots), names[0]) == (3, "monday: run-0.json")
    baseline.remove("monday")
    assert baseline.names() == []
    with pytest.raises(BadInput, match="no baseline of this name; there is none yet"):
        baseline.load("monday")


def test_a_file_is_a_baseline_of_one(tmp_path: Path) -> None:
    [file] = files(tmp_path, 1)
    snapshots, names = baseline.resolve(str(file))
    assert (len(snapshots), names) == (1, ["run-0.json"])


NO_NAMES = ["../x", "a/b", "/etc/passwd", ".hidden", "", "x" * 65, "a\0b", "-o", "ä", "a b", "a\n"]
EMPTY = b'{"schema":"netconsole.baseline/1","name":"x","saved":"","files":[],"snapshots":[]}'


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_is_never_a_path(tmp_path: Path, data_home: Path, name: str) -> None:
    for act in (baseline.load, baseline.remove, lambda given: baseline.save(given, files(tmp_path, 1))):
        with pytest.raises(BadInput, match="expected a name of letters"):
            act(name)
    assert not data_home.exists()


def test_it_says_what_it_is_good_for(tmp_path: Path) -> None:
    baseline.save("five", files(tmp_path, 5))
    [summary] = baseline.summaries(HERE, "summary", NOW)
    assert summary.notes == ["this host", "the same profile: summary", "14 days old", "variation known from 5 runs"]
    assert summary.probes == ["kernel_drops", "link_rates", "tx_queue_latency"]
    [other] = baseline.summaries(HostData(name="hv-2", kernel="6.1.0"), "drops", NOW.replace(year=2027))
    assert other.notes[:2] == ["another host: hv-017", "another profile than drops: summary"]
    assert other.notes[2].endswith("days old: old")
    baseline.save("five", files(tmp_path, 1))
    [single] = baseline.summaries(HostData(name="hv-017", kernel="6.12"), None, NOW)
    assert "another kernel: 6.1.0" in single.notes
    assert "variation not known: 1 of 3 runs; save it again from more snapshots" in single.notes


def test_runs_that_are_too_short_tell_no_variation(tmp_path: Path) -> None:
    def notes(*times_s: float) -> list[str]:
        runs = []
        for seed, time_s in enumerate(times_s):
            document = made_up.document(seed, samples=1) | {"duration_s": time_s}
            runs.append(tmp_path / f"{seed}.json")
            runs[-1].write_text(json.dumps(document))
        return baseline.summary(baseline.save("some", runs), None, None, NOW).notes[1:]

    assert notes(10.0, 0.3, 0.9, 0.4) == [
        "variation not known: 2 of 3 runs; save it again from more snapshots",
        "2 of 4 runs are too short to compare: less than 1 s",
    ]
    assert notes(10.0, 0.6, 0.9, 0.4) == [
        "variation known from 3 runs",
        "1 of 4 runs is too short to compare: less than 1 s",
    ]


@pytest.mark.parametrize(("days", "note"), [(30, "30 days old"), (31, "31 days old: old")])
def test_a_baseline_is_old_after_a_month(tmp_path: Path, days: int, note: str) -> None:
    saved = baseline.save("one", files(tmp_path, 1))
    taken = datetime.fromisoformat(saved.snapshots[-1].created.replace("Z", "+00:00"))
    assert note in baseline.summary(saved, HERE, None, taken + timedelta(days=days)).notes


def test_other_files_beside_baselines_are_none(tmp_path: Path, data_home: Path) -> None:
    baseline.save("one", files(tmp_path, 1))
    for name in ("notes.txt", "a b.json", "one.json.tmp"):
        (data_home / "netconsole/baselines" / name).write_text("{}")
    assert baseline.names() == ["one"]


def test_a_snapshot_of_another_schema_within_a_baseline_is_refused(tmp_path: Path, data_home: Path) -> None:
    baseline.save("one", files(tmp_path, 1))
    path = data_home / "netconsole/baselines/one.json"
    document = json.loads(path.read_text())
    document["snapshots"][0]["schema"] = "netconsole.snapshot/99"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match=r"one\.json: schema"):
        baseline.load("one")


def test_a_snapshot_that_measured_nothing_is_no_baseline(tmp_path: Path) -> None:
    document = made_up.document(1, samples=1)
    document["probes"] = {"a": {"status": "failed", "why": "no BTF"}}
    (tmp_path / "empty.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match=r"empty.json: probes: this snapshot cannot be a baseline"):
        baseline.save("monday", [tmp_path / "empty.json"])
    assert baseline.names() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.just(EMPTY))
def test_a_damaged_file_is_one_line_and_the_others_are_listed(data_home: Path, content: bytes) -> None:
    folder = data_home / "netconsole/baselines"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bad.json").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        baseline.load("bad")
    assert len(str(caught.value).splitlines()) == 1
    assert [summary.name for summary in baseline.summaries(HERE, None, NOW)] == ["bad"]


def test_a_damaged_file_is_listed_with_its_key_and_without_its_path(data_home: Path) -> None:
    folder = data_home / "netconsole/baselines"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_bytes(EMPTY)
    (listed,) = baseline.summaries(HERE, None, NOW)
    assert listed.notes == ["schema: expected netconsole.baseline/1 with at least one snapshot or capture"]


def test_the_captures_of_a_ping_are_a_baseline_of_their_own(tmp_path: Path, data_home: Path) -> None:
    captures = sorted(CASE_A.glob("*.json"))
    saved = baseline.save("ping", captures)
    assert baseline.load("ping") == saved and saved.snapshots == [] and len(saved.ping) == 4
    found = json.loads((data_home / "netconsole/baselines/ping.json").read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(found)
    (listed,) = baseline.summaries(HERE, "summary", NOW)
    assert listed.notes == ["a ping, seen by receiver-host, receiver-vm, sender-host, sender-vm"]
    with pytest.raises(BadInput, match="holds a ping and no snapshot"):
        baseline.resolve("ping")
    assert listed.hosts and listed.kernels == list(dict.fromkeys(one.kernel for one in saved.ping if one.kernel))
    both = baseline.save("both", [*files(tmp_path, 1), *captures])
    assert len(both.snapshots) == 1 and len(both.ping) == 4 and len(baseline.resolve("both")[0]) == 1
    assert baseline.summary(both, HERE, None, NOW).notes[-1] == listed.notes[0]
    with pytest.raises(BadInput, match=r"from receiver-host\.json already"):
        baseline.save("twice", [captures[0], _copy(captures[0], tmp_path)])


def _copy(file: Path, folder: Path) -> Path:
    return Path(shutil.copy(file, folder / "copy.json"))
