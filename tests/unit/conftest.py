"""What several files of unit tests need: steady generated examples, and a disk that can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Generated examples are the same in every run, and judged by what comes out, not by how long a busy machine took.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 512 kB; unmounted at the end."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here: mounting a tmpfs needs root")
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)
