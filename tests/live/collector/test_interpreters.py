"""The collector runs on the oldest Python there is on a host, its worker on the one that has bcc; packed or not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipapp
from pathlib import Path

import pytest

from netconsole.telemetry import frames
from netconsole_collector.doctor import BY_HELPERS
from tests.support.live.collector_driver import PYTHON, SOURCE, Driver, call, load_command, of, source

pytestmark = pytest.mark.starting

OLDEST = (3, 6)
LIMIT_S = 120


def interpreters() -> list[str]:
    """One interpreter for each version of Python that is found here, oldest first, but none before 3.6."""
    places = [*Path("/usr/bin").glob("python3.*"), *Path.home().glob(".pyenv/versions/3.*/bin/python3")]
    found: dict[tuple[int, int], str] = {}
    for place in places:
        if "config" in place.name:
            continue
        code = "import sys; print(*sys.version_info[:2])"
        done = subprocess.run([str(place), "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            major, minor = (int(word) for word in done.stdout.split())
            if (major, minor) >= OLDEST:
                found.setdefault((major, minor), str(place))
    return [found[version] for version in sorted(found)]


FOUND = interpreters()


@pytest.mark.parametrize("python", [*FOUND[:2], FOUND[-1]])
def test_the_collector_runs_on(python: str) -> None:
    with Driver(python, "--worker-python", PYTHON) as driver:
        driver.ask(command="interval", ms=100)
        driver.load(mode="details", knobs={"pid": os.getpid(), "events_per_s": 1000})
        call(12, 40)
        driver.until(frames.Event)
        assert driver.ask(command="set", probe="calls", mode="summary").ok
        call(12, 2)
        driver.send(command="stop")
        rest = driver.rest()
        assert isinstance(rest[-1], frames.Bye)
        assert driver.process.wait(5) == 0
        assert driver.complaint() == ""
        assert of(frames.Counters, rest)[-1].values["calls"].total == 42
        hello = driver.seen[0]
        assert isinstance(hello, frames.Hello)
        assert str(hello.collector["python"]).startswith(Path(os.path.realpath(python)).name.removeprefix("python"))


def test_it_runs_packed_in_one_file(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")  # others write there meanwhile
    shutil.copytree(SOURCE / "netconsole_collector", package / "netconsole_collector", ignore=ignored)
    archive = tmp_path / "collector.pyz"
    zipapp.create_archive(package, archive, main="netconsole_collector.__main__:run", filter=_no_caches)
    commands = [load_command(id=1), {"id": 2, "command": "interval", "ms": 100}]
    process = subprocess.Popen(
        [PYTHON, "-I", str(archive)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for command in commands:
        process.stdin.write(json.dumps(command).encode() + b"\n")
    process.stdin.flush()
    replies = {}
    for line in process.stdout:
        frame = frames.decode(line)
        if isinstance(frame, frames.Reply):
            replies[frame.id] = (frame.ok, frame.error)
        if len(replies) == len(commands):
            break
    _, complaint = process.communicate(b'{"id": 3, "command": "stop"}\n', timeout=LIMIT_S)
    assert replies == {1: (True, None), 2: (True, None)}
    assert complaint == b""
    assert process.returncode == 0


def _no_caches(path: Path) -> bool:
    return "__pycache__" not in path.parts


def test_the_doctor_tries_and_lets_go_again() -> None:
    spec = load_command()
    broken = load_command(probe="broken", source="this is no C")
    wrong = "#if NC_CAST || NC_DIRECT\n*(u64 *)key->argument = 1;\n#endif\nnc_count(0);"
    refused = load_command(probe="refused", source=source("calls").replace("nc_count(0);", wrong))
    done = subprocess.run(
        [PYTHON, "-m", "netconsole_collector", "--doctor", "--progress"],
        input=json.dumps([spec, broken, refused]).encode(),
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    lines = done.stdout.splitlines(keepends=True)
    steps = [json.loads(line) for line in lines[:6]]
    assert {step["trying"] for step in steps if "trying" in step} == {"calls", "broken", "refused"}
    states = {step["tried"]: step["state"] for step in steps if "tried" in step}
    assert states == {"calls": "attached", "broken": "failed", "refused": "attached"}
    document = json.loads(b"".join(lines[6:]))
    assert done.returncode == 0
    assert document["schema"] == "netconsole.collector-doctor/1"
    calls = document["probes"]["calls"]
    assert (calls["state"], calls["programs"][0]["attach"]) == ("attached", "raw_tracepoint:sys_enter")
    assert calls["why"] is None
    assert document["probes"]["broken"]["state"] == "failed"
    dearer = document["probes"]["refused"]
    assert dearer["state"] == "attached"
    assert dearer["notes"] == [dearer["why"]]
    assert dearer["why"].startswith(BY_HELPERS.format("")), dearer["why"]
    assert "invalid mem access" in dearer["why"] and "cannot be measured" not in dearer["why"]
    assert document["capabilities"]["bcc"]["ok"]


def test_the_doctor_of_a_wrong_input_is_one_line() -> None:
    done = subprocess.run(
        [PYTHON, "-m", "netconsole_collector", "--doctor"],
        input=b"{nonsense",
        capture_output=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
