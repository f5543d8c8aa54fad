"""A baseline for the tests of comparisons."""

from __future__ import annotations

import pytest

from netconsole.snapshot.document import Snapshot
from tests.support import made_up


@pytest.fixture(scope="module")
def five() -> list[Snapshot]:
    """A baseline of five runs, each 10 % off on its own."""
    return [made_up.snapshot(seed) for seed in range(5)]
