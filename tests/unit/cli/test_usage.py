"""What people type: a word that is nearly right is told the right one, once; shells complete; the manual is true."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netconsole.cli import main as cli
from netconsole.cli.options import BAD_USAGE
from tests.conftest import CANNOT
from tools import man

MANUAL = Path(__file__).parents[3] / "docs/reference/netconsole.1"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("snapsot", 'unknown command "snapsot"; did you mean "snapshot"? (netconsole --help)'),
        ("ping rum", 'unknown command "rum"; did you mean "run"? (netconsole ping --help)'),
        ("--porfile x", 'unknown option "--porfile"; did you mean "--profile"? (netconsole --help)'),
        (
            "snapshot --durtion 5s",
            'unknown option "--durtion"; did you mean "--duration"? (netconsole snapshot --help)',
        ),
        ("profiles show sumary", '--profile: sumary: unknown profile; did you mean "summary"?'),
        ("probes show kernel_drop", 'netconsole probes show: kernel_drop: unknown probe; did you mean "kernel_drops"?'),
        ("probes show nix", "netconsole probes show: nix: unknown probe; netconsole probes lists all"),
        ("snapshot --probe nix", "--probe: nix: unknown probe; netconsole probes lists all"),
        ("snapshot --\x1b[31m", 'unknown option "--\\x1b[31m" (netconsole snapshot --help)'),
    ],
)
def test_a_word_that_is_nearly_right_is_told_the_right_one_once(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(typed.split()) == BAD_USAGE
    assert capsys.readouterr().err == f"netconsole: {said}\n"


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--host ssh://hv2", "host"),
        ("web --probe softnet", "probe"),
        ("--device eth0", "device"),
        ("--duration 9s", "duration"),
        ("web --guest ssh://web", "guest"),
    ],
)
def test_what_a_saved_snapshot_would_ignore_is_refused(
    options: str, refused: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["vm", "--snapshot", str(tmp_path / "none.json"), *options.split()]) == BAD_USAGE
    said = f"netconsole: --{refused}: with --snapshot nothing is measured: leave out one of the two\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--guest ssh://web", "say which VM that is: netconsole vm NAME --guest ssh://…"),
        (
            "web --guest ssh://web --probe softnet",
            "nothing here measures disks: use --profile disk, or add --probe block_path",
        ),
    ],
)
def test_a_guest_is_measured_for_one_vm_and_its_disks(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["vm", *options.split()]) == BAD_USAGE
    assert capsys.readouterr().err == f"netconsole: --guest: {said}\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason=f"{CANNOT}no bash")
def test_bash_completes_commands_options_profiles_and_probes(tmp_path: Path) -> None:
    program = tmp_path / "netconsole"
    program.write_text(f"#!{sys.executable}\nfrom netconsole.cli.main import main\nmain()\n")
    program.chmod(0o700)
    script = ['eval "$(_NETCONSOLE_COMPLETE=bash_source netconsole)"', "complete -p netconsole >/dev/null || exit 1"]
    for words in ("netconsole snapsh", "netconsole snapshot --profile summ", "netconsole snapshot --probe kernel_d"):
        at = len(words.split()) - 1
        script.append(f"COMP_WORDS=({words}); COMP_CWORD={at}; COMPREPLY=(); _netconsole_completion netconsole '' ''")
        script.append('echo "${COMPREPLY[@]}"')
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["snapshot", "summary", "kernel_drops"], done.stderr


def test_the_manual_page_is_what_the_commands_say() -> None:
    assert MANUAL.read_text() == man.text(), "python -m tools.man docs/reference/netconsole.1"
    assert ".SS netconsole doctor" in man.text()
