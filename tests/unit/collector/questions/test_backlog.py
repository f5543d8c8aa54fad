"""How many packets may wait for one CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.known import BadQuestion
from netconsole_collector.questions.net.backlog import answer


def host(tmp_path: Path, text: str) -> Here:
    setting = tmp_path / "proc/sys/net/core/netdev_max_backlog"
    setting.parent.mkdir(parents=True)
    setting.write_text(text)
    return Here(tmp_path)


def test_the_limit_is_that_of_the_host(tmp_path: Path) -> None:
    assert answer({}, host(tmp_path, "1000\n")) == {"limit": 1000}


def test_what_is_no_number_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(BadQuestion, match="netdev_max_backlog: expected a number"):
        answer({}, host(tmp_path, ""))
