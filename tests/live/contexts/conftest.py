"""Fixtures of tests that run a probe's programs themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.live.contexts.hooks import Functions
from tests.support.live.contexts.modules import OF_PROBE
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

Load = Callable[..., UnattachedProbe]


@pytest.fixture(scope="session")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each probe is compiled once, in each way."""
    return tmp_path_factory.mktemp("compiled", numbered=True)


@pytest.fixture
def plain() -> bool:
    """Whether programs read the kernel by helpers alone, as before Linux 6.2. Some directories have both."""
    return False


@pytest.fixture
def load(_kept: Path, plain: bool) -> Iterator[Load]:
    """Loads a probe that is attached to nothing. The test stays on the first CPU, and so do the programs."""
    with ExitStack() as stack:
        stack.enter_context(on_cpu(0))

        def load_one(name: str, functions: Functions | None = None, /, **room: int) -> UnattachedProbe:
            probe = UnattachedProbe(name, _kept, room, functions or {}, OF_PROBE.get(name, {}), plain=plain)
            stack.callback(probe.close)
            return probe

        yield load_one
