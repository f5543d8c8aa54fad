"""doctor where it has something to explain, each simulated for real: not root, no BCC, no BTF, no system Python."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.starting

RUN = "import sys; from netconsole.cli.main import main; main()"
LIMIT_S = 600.0
AS_ORDINARY_USER = """
import contextlib, io, os, sys
from netconsole.cli import main as cli
# Once with privileges, so that all is imported: the interpreter's own files may be root's alone.
os.environ["NETCONSOLE_PYTHON"] = "/nonexistent/python3"
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())), contextlib.redirect_stderr(io.StringIO()):
    cli.run(["doctor"])
    cli.run(["snapshot", "--probe", "link_rates", "--duration", "1ms"])
del os.environ["NETCONSOLE_PYTHON"]
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
sys.exit(cli.run(sys.argv[1:]))
"""
HIDE_BTF = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'


def run(
    *arguments: str, code: str = RUN, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_host_that_can_do_it_says_which_attach_points_are_taken() -> None:
    done = run("doctor", "--json")
    document = report(done)
    lacking = [name for name in ("bcc", "btf", "raw_tracepoint") if not document["capabilities"][name]["ok"]]
    if lacking:
        pytest.skip(f"cannot run here: no {', '.join(lacking)}")
    assert document["broken"] == []
    assert (document["ok"], done.returncode) == (True, 0)
    drops = document["probes"]["kernel_drops"]
    assert drops["state"] == "attached"
    assert [program["attach"] for program in drops["programs"]] == ["raw_tracepoint:kfree_skb"]
    assert document["probes"]["link_rates"]["state"] == "attached"


def test_an_ordinary_user_is_told_to_use_sudo() -> None:
    done = run("doctor", "--json", code=AS_ORDINARY_USER)
    document = report(done)
    assert done.returncode == 3
    assert not document["capabilities"]["privileges"]["ok"]
    assert "sudo" in document["capabilities"]["privileges"]["why"]
    assert document["probes"]["kernel_drops"]["state"] == "unsupported"
    assert document["probes"]["link_rates"]["state"] == "attached"


def test_an_ordinary_user_gets_one_line_instead_of_a_console_or_a_snapshot() -> None:
    done = run("snapshot", "--duration", "1s", code=AS_ORDINARY_USER)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("netconsole: not root")
    assert len(done.stderr.splitlines()) == 1


def test_an_ordinary_user_may_read_what_needs_no_privileges() -> None:
    done = run("snapshot", "--probe", "link_rates", "--duration", "100ms", code=AS_ORDINARY_USER)
    assert done.returncode == 0, done.stderr
    assert report(done)["probes"]["link_rates"]["status"] == "attached"


def test_without_bcc_it_names_the_package() -> None:
    # This interpreter is the console's own, in an environment that holds no bcc.
    assert subprocess.run([sys.executable, "-I", "-c", "import bcc"], capture_output=True, check=False).returncode != 0
    done = run("doctor", "--json", environment={"NETCONSOLE_PYTHON": sys.executable})
    document = report(done)
    assert done.returncode == 3
    assert not document["capabilities"]["bcc"]["ok"]
    assert "python3-bpfcc" in document["capabilities"]["bcc"]["why"]
    assert document["probes"]["kernel_drops"]["state"] == "unsupported"


def test_without_btf_and_headers_it_says_so() -> None:
    if Path(f"/lib/modules/{platform.release()}/build").is_dir():
        pytest.skip("cannot run here: kernel headers stand in for the hidden BTF")
    done = run("doctor", "--json", before=["unshare", "--mount", "sh", "-c", HIDE_BTF, "sh"])
    document = report(done)
    assert done.returncode == 3
    assert not document["capabilities"]["btf"]["ok"]
    assert "CONFIG_DEBUG_INFO_BTF" in document["capabilities"]["btf"]["why"]
    assert document["probes"]["kernel_drops"]["state"] in ("unsupported", "failed")


def test_without_the_interpreter_it_names_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "python3")
    done = run("doctor", environment={"NETCONSOLE_PYTHON": missing})
    assert done.returncode == 3
    assert missing.rpartition("/")[0] in done.stdout.replace("\n", "").replace(" ", "")


def test_the_text_fits_80_columns() -> None:
    done = run("doctor", code=AS_ORDINARY_USER)
    assert done.returncode == 3
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert done.stderr == ""
