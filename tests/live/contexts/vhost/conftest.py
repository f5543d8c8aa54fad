"""Each test here runs programs that load by themselves, and programs that call helpers, as before Linux 6.2."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["loads", "helpers"])
def plain(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
