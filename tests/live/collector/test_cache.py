"""A probe that was compiled once starts without a compiler; one that cannot be loaded any more is compiled again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole.telemetry import frames
from netconsole_collector.compile import cache, compiled
from tests.support.live.collector_driver import LIMIT_S, PYTHON, SOURCE, Driver, call, load_command, of

pytestmark = pytest.mark.starting

WITHOUT_BCC = """#!{python}
import os, sys
os.execv("{python}", ["{python}", "-I", "-c", "import sys; sys.modules['bcc'] = None\\n" + sys.argv[3], *sys.argv[4:]])
"""
CALLS = 7


@pytest.fixture
def without_bcc(tmp_path: Path) -> str:
    """An interpreter for workers in which `import bcc` fails."""
    path = tmp_path / "python3"
    path.write_text(WITHOUT_BCC.format(python=PYTHON))
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where the tests' own probe has been compiled."""
    directory = tmp_path / "compiled"
    counted(directory, PYTHON)
    assert len(list(directory.iterdir())) == 1
    return directory


def counted(directory: Path, worker_python: str) -> int:
    """What the probe makes of CALLS calls; fails when it does not start."""
    with Driver(PYTHON, "--keep-compiled", str(directory), "--worker-python", worker_python) as driver:
        driver.load()
        call(3, CALLS)
        assert driver.ask(command="unload", probe="calls").ok
        return of(frames.Counters, driver.seen)[-1].values["calls"].total


def refused_by_the_kernel(programs: compiled.Compiled) -> compiled.Compiled:
    exit_without_a_result = bytes([0x95, 0, 0, 0, 0, 0, 0, 0])
    return programs._replace(functions=dict.fromkeys(programs.functions, exit_without_a_result))


def of_maps_that_cannot_be(programs: compiled.Compiled) -> compiled.Compiled:
    return programs._replace(maps={name: found._replace(type=9999) for name, found in programs.maps.items()})


def test_the_second_start_needs_no_compiler(tmp_path: Path, kept: Path, without_bcc: str) -> None:
    assert counted(kept, without_bcc) == CALLS
    with Driver(PYTHON, "--keep-compiled", str(tmp_path / "empty"), "--worker-python", without_bcc) as driver:
        assert "BCC is not installed" in str(driver.ask(**load_command()).error)


def test_the_second_start_needs_no_worker(tmp_path: Path, kept: Path) -> None:
    nobody = str(tmp_path / "there-is-no-such-interpreter")
    assert counted(kept, nobody) == CALLS
    with Driver(PYTHON, "--keep-compiled", str(tmp_path / "empty"), "--worker-python", nobody) as driver:
        assert "the compile worker cannot start" in str(driver.ask(**load_command()).error)


def test_what_this_host_lacks_is_told_without_a_worker(tmp_path: Path) -> None:
    command = load_command()
    command["spec"] = {**command["spec"], "probe": {**command["spec"]["probe"], "module": "no_such_module"}}
    with Driver(PYTHON, "--worker-python", str(tmp_path / "there-is-no-such-interpreter")) as driver:
        assert "no_such_module" in str(driver.ask(**command).error)


@pytest.mark.parametrize("change", [refused_by_the_kernel, of_maps_that_cannot_be])
def test_what_cannot_be_loaded_is_compiled_again(
    kept: Path, without_bcc: str, change: Callable[[compiled.Compiled], compiled.Compiled]
) -> None:
    [file] = kept.iterdir()
    folder = cache.open_folder(str(kept))
    assert folder is not None
    good = cache.find(folder, file.name)
    assert good is not None
    cache.keep(folder, file.name, change(good))
    assert counted(kept, PYTHON) == CALLS
    assert cache.find(folder, file.name) == good
    os.close(folder)
    assert counted(kept, without_bcc) == CALLS


def test_the_doctor_takes_what_is_kept_and_keeps_what_it_compiles(tmp_path: Path, kept: Path, without_bcc: str) -> None:
    def doctored(directory: Path, worker_python: str) -> str:
        options = ["--keep-compiled", str(directory), "--worker-python", worker_python]
        done = subprocess.run(
            [PYTHON, "-m", "netconsole_collector", "--doctor", *options],
            input=json.dumps([load_command()]).encode(),
            capture_output=True,
            timeout=LIMIT_S,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            check=False,
        )
        return str(json.loads(done.stdout)["probes"]["calls"]["state"])

    assert doctored(kept, without_bcc) == "unsupported"
    [file] = kept.iterdir()
    before = file.stat().st_ino
    assert doctored(kept, PYTHON) == "attached"
    assert file.stat().st_ino == before, "what is compiled again is written to a new file"
    assert doctored(tmp_path / "fresh", PYTHON) == "attached"
    assert counted(tmp_path / "fresh", without_bcc) == CALLS


def test_nothing_is_kept_unless_it_is_asked_for(kept: Path) -> None:
    [file] = kept.iterdir()
    file.unlink()
    with Driver() as driver:
        driver.load()
    assert not list(kept.iterdir())
