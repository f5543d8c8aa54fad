"""Which tests of the lab one kernel alone has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.lab.machine.hypervisor import CHECKOUT

pytestmark = pytest.mark.computing

ARM64 = "debian-6.12-arm64"


def test_a_kernel_of_another_architecture_has_what_is_for_it_alone() -> None:
    """Nothing boots it as a machine of this architecture."""
    chosen = collected(ARM64)
    assert {one.partition("::")[0] for one in chosen} == {
        "tests/lab/itself/test_btf.py",
        "tests/lab/probes/test_arm64.py",
    }
    assert all(f"[{ARM64}" in one for one in chosen if "test_btf.py" in one)


def test_another_kernel_has_all_that_boots() -> None:
    chosen = collected("debian-6.12")
    files = {one.partition("::")[0] for one in chosen}
    assert {"tests/lab/probes/test_live_inside.py", "tests/lab/ovs/test_upcall_times.py"} < files
    assert "tests/lab/probes/test_arm64.py" not in files
    assert not any("debian-6.1]" in one or ARM64 in one for one in chosen)


def collected(kernel: str) -> list[str]:
    """What `make test-lab KERNEL=…` runs of the lab's own tests."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        "-m",
        "long or booting",
    ]
    environment = {**os.environ, "NETCONSOLE_LAB_KERNEL": kernel}
    result = subprocess.run(
        [*command, "tests/lab"], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return [line for line in result.stdout.splitlines() if "::" in line]
