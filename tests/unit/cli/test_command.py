"""The command, which is a shell script: with which Python it runs, from where, and with which priority."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netconsole.base.paths import PACKAGE

COMMAND = Path(sys.executable).with_name("netconsole")
SCRIPT = PACKAGE / "cli/netconsole.sh"
SAYS = """#!/bin/sh
echo "priority $(nice), raised to ${NETCONSOLE_RAISED-nothing}"
"""
CROWDED = """
mount --bind "$1" /proc/loadavg
exec nice -n "$2" "$3"
"""


def version(command: Path, place: Path) -> str:
    done = subprocess.run([command, "--version"], cwd=place, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout


def test_it_runs_by_its_path_and_by_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(COMMAND)
    (tmp_path / "link to it").symlink_to("link")
    for command in (COMMAND, tmp_path / "link", tmp_path / "link to it"):
        assert version(command, tmp_path).startswith("netconsole ")


def test_a_python_beside_a_link_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 77\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "netconsole").symlink_to(COMMAND)
    assert version(tmp_path / "netconsole", tmp_path).startswith("netconsole ")


def test_it_takes_no_module_of_the_current_directory(tmp_path: Path) -> None:
    """Who starts it as root in a directory that others may write must not run what they put there."""
    for name in ("netconsole", "site", "signal", "typing", "typer", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)\n")
    assert version(COMMAND, tmp_path).startswith("netconsole ")


def test_who_may_not_read_its_place_is_told_so_in_a_sentence(tmp_path: Path) -> None:
    """Then it runs with the Python of the system, which has no netconsole."""
    (tmp_path / "command").write_text(SCRIPT.read_text())
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -E -s "$@"\n')
    for name in ("command", "python3"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([tmp_path / "command"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("netconsole: this user cannot read") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("handler", "code", "said"), [(signal.SIG_DFL, -signal.SIGINT, ""), (signal.SIG_IGN, 0, "went on\n")]
)
def test_ctrl_c_while_it_imports_prints_no_traceback(
    tmp_path: Path, handler: signal.Handlers, code: int, said: str
) -> None:
    package = tmp_path / "netconsole/cli"
    package.mkdir(parents=True)
    (tmp_path / "netconsole/__init__.py").touch()
    (package / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (package / "start.py").write_text("def main() -> None:\n    print('went on')\n")
    (tmp_path / "command").write_text(SCRIPT.read_text())
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for name in ("command", "python3"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [tmp_path / "command"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")


def test_ctrl_c_once_it_runs_is_130() -> None:
    code = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL)\nfrom netconsole.cli import main\n"
    code += "main._commands = lambda: os.kill(os.getpid(), signal.SIGINT)\nmain.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "netconsole: interrupted\n")


@pytest.mark.parametrize(
    ("wanting", "chosen", "says"),
    [
        ("100000/100000", "0", "priority -20, raised to -20"),
        ("1/100000", "0", "priority 0, raised to nothing"),
        ("100000/100000", "5", "priority 5, raised to nothing"),
    ],
)
def test_it_raises_the_usual_priority_on_a_crowded_host(tmp_path: Path, wanting: str, chosen: str, says: str) -> None:
    if os.geteuid() != 0 or os.getpriority(os.PRIO_PROCESS, 0) != 0:
        pytest.skip("needs root and the usual priority")
    (tmp_path / "load").write_text(f"9.00 9.00 9.00 {wanting} 77\n")
    (tmp_path / "command").write_text(SCRIPT.read_text())
    (tmp_path / "python3").write_text(SAYS)
    for name in ("command", "python3"):
        (tmp_path / name).chmod(0o755)
    words = [str(tmp_path / "load"), chosen, str(tmp_path / "command")]
    terminal, inside = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as said, os.fdopen(inside, "wb", buffering=0) as own:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-ec", CROWDED, "sh", *words], stdin=own, stdout=own, stderr=subprocess.PIPE
        )
        if done.returncode and b"unshare" in done.stderr:
            pytest.skip(f"no mount namespace here: {done.stderr.decode().strip()}")
        assert done.returncode == 0, done.stderr
        assert said.read(200).decode().strip() == says
