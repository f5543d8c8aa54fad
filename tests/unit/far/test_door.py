"""Before a host is measured it is clear whether that can work: if not, one sentence says why and what to do."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole.base.errors import Unable
from netconsole.cli.main import run
from netconsole.far import far_host
from netconsole.far.archive import ARRIVED
from netconsole.far.door import Approach
from netconsole.far.far_host import FarHost
from tests.support.local_line import script

ADDRESS = "ssh://hv"
SOUND = {
    "python": "3.11", "uid": 0, "release": "6.1", "machine": platform.machine(), "page": 4096, "cpus": 2, "modules": [],
    "files": {}, "build_ids": {}, "has_kprobes": True, "has_bcc": True, "lockdown": "none", "sudo": "root",
}  # fmt: skip


@pytest.fixture
def saying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Every host that is visited says this of itself."""

    def says(**told: object) -> None:
        said = ARRIVED + b"3.11\n" + json.dumps({**SOUND, **told}).encode() + b"\n"
        (tmp_path / "said").write_bytes(said)
        monkeypatch.setattr(far_host, "FarHost", lambda *_: script(f"cat {tmp_path}/said; cat >/dev/null"))

    monkeypatch.setenv("NETCONSOLE_PYTHON", sys.executable)  # the environment of the tests has no bcc
    return says


def entered() -> FarHost:
    with contextlib.closing(Approach(ADDRESS, may_ask=False)) as way:
        found = way.enter([])
    assert isinstance(found, FarHost)
    return found


@pytest.mark.parametrize("lockdown", ["", "none", "integrity"])
def test_a_kernel_that_lets_programs_read_is_measured_and_compiles_where_bcc_is(
    lockdown: str, saying: Callable[..., None]
) -> None:
    saying(lockdown=lockdown)
    assert entered().compiler is None


def test_a_kernel_that_is_locked_down_is_said_in_one_line_with_exit_code_3(
    saying: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    saying(lockdown="confidentiality")
    assert run(["snapshot", "--host", ADDRESS, "--duration", "1s"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        "the host's kernel is locked down (confidentiality): no program may read the kernel's memory; boot the host"
        in line
    )


def test_a_host_whose_programs_talk_nonsense_is_said_with_its_address_and_exit_code_3(
    saying: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    saying()
    assert run(["snapshot", "--host", ADDRESS, "--probe", "softnet", "--duration", "1s"]) == 3
    said = capsys.readouterr().err
    assert "softnet: failed: ssh://me@hv:2222: the host sent what netconsole cannot read\n" in said


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"machine": "s390x"}, f"the host's architecture is s390x, and this machine's is {platform.machine()}"),
        ({}, "the host's kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"),
        ({"page": 65536}, "the host's memory pages have another size than this machine's"),
    ],
)
def test_where_nothing_can_compile_for_it_is_said(
    told: dict[str, object], says: str, saying: Callable[..., None]
) -> None:
    saying(has_bcc=False, **told)
    with pytest.raises(Unable) as caught:
        entered()
    assert f"nothing can compile for the host: {says}, and the host has no BCC itself; install" in str(caught.value)


@pytest.mark.parametrize(
    ("sudo", "says"),
    [
        ("refused", "sudo refuses this user: name another one, ssh://USER@HOST"),
        ("none", "the host has no sudo: log in as root"),
        ("tty", "asks for a terminal (requiretty)"),
        ("password", "there is no terminal to type one"),
    ],
)
def test_who_does_not_become_root_there_is_told(sudo: str, says: str, saying: Callable[..., None]) -> None:
    saying(uid=1000, sudo=sudo)
    with pytest.raises(Unable) as caught:
        entered()
    assert says in str(caught.value)
