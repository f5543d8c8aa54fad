"""A program of ours starts behind every login shell; where it cannot, one sentence says why and what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from netconsole.base.errors import Unable
from netconsole.far import far_host
from netconsole.far.archive import ARRIVED, COMMAND
from netconsole.far.far_host import FarHost
from netconsole.far.program import MAX_BEFORE
from netconsole.host.collector_process import CollectorProcess
from netconsole.telemetry.frames import Hello
from tests.support.local_line import host, script

LIMIT_S = 60
QUIET = 'exec sh -c "$1"'


def visit(one: FarHost) -> str:
    """The kernel release that it says it has."""
    return one.visit([], lambda _: [])[0].release


def refusal(one: FarHost) -> str:
    with pytest.raises(Unable) as caught:
        visit(one)
    said = str(caught.value)
    assert said.startswith("ssh://me@hv:2222: ") and len(said.splitlines()) == 1 and said.isprintable()
    return said


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "tcsh", "fish"])
def test_a_collector_runs_behind_this_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell} (tools/setup.sh installs it)")
    one = host(shell, "-c")
    assert visit(one) == os.uname().release
    process = CollectorProcess(one.launch_of("netconsole_collector.__main__", "--silence-ends", "1.5"))
    try:
        first = next(process.frames())
    finally:
        process.close()
    assert isinstance(first, Hello) and first.host.kernel == os.uname().release


def test_what_a_shell_prints_before_is_left_out() -> None:
    assert (
        visit(script(f"echo 'Welcome to hv!'; printf 'no end of line'; echo banner >&2; {QUIET}")) == os.uname().release
    )


def test_a_shell_that_prints_without_end_is_said() -> None:
    said = refusal(script("yes 'All your packets'"))
    assert "the login shell of the host does not run python3; its last line: All your packets" in said


def test_a_shell_that_prints_much_and_then_runs_it_is_fine_up_to_a_bound() -> None:
    assert visit(script(f"head -c {MAX_BEFORE // 2} /dev/zero; {QUIET}")) == os.uname().release


@pytest.mark.parametrize(
    "says",
    [
        "sh: 1: exec: /usr/bin/python3: not found",
        "/usr/bin/python3: Command not found.",
        "fish: Unknown command: python3",
    ],
)
def test_no_python_is_said(says: str) -> None:
    assert "the host has no python3, which netconsole needs there: install python3" in refusal(
        script(f"echo '{says}' >&2; exit 127")
    )


def test_the_python_of_rhel_8_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_host, "PYTHONS", ("/nowhere/python3", "/usr/bin/python3"))
    assert visit(host()) == os.uname().release


def test_a_python_that_is_too_old_is_said() -> None:
    said = refusal(script(f"printf '{ARRIVED.decode()}3.5\\n'; exit 3"))
    assert "the host's python3 is 3.5, and netconsole needs 3.6 or later" in said


def test_a_user_without_a_shell_is_said() -> None:
    assert "may not run programs on the host" in refusal(
        script("echo This account is currently not available.; exit 1")
    )


@pytest.mark.parametrize(
    "answer", ["{}", "garbage", '{"python": "\x1b[2J"}', "[" * 2000, '{"release": "x; id", "uid": 0}', "x" * 2_000_000]
)
def test_a_host_that_talks_nonsense_is_said(answer: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(f"{ARRIVED.decode()}3.11\n{answer}\n")
    said = refusal(script(f"cat {tmp_path}/answer"))
    assert "description of itself cannot be read" in said or "description of itself is too long" in said


def test_a_line_that_breaks_before_the_login_is_done_ends_what_waits_there() -> None:
    """The program has nothing on its input: it waits for two seconds, not for ever."""
    with subprocess.Popen(["sh", "-c", f"exec python3 {COMMAND}"], stdin=subprocess.PIPE) as waiting:
        assert waiting.wait(LIMIT_S) == -signal.SIGALRM
