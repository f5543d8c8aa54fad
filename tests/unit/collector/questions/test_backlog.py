"""How many packets may wait for one CPU, and which program does not take those that wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.known import BadQuestion
from netconsole_collector.questions.net.backlog import ProgramQueue, answer, queues_in


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


def test_the_queues_of_programs_are_those_of_the_file() -> None:
    """As seq_show of net/netfilter/nfnetlink_queue.c writes them."""
    content = (
        b"    0   4711     12 2 65531     0     3       99  1\n    7 -49152      0 1     0   200     0      5  1\n"
    )
    assert queues_in(content) == [ProgramQueue(0, 4711, 12, 3), ProgramQueue(7, -49152, 0, 200)]
    assert queues_in(b"") == []


def test_a_file_of_another_layout_is_no_answer() -> None:
    with pytest.raises(ValueError, match="0 4711"):
        queues_in(b"0 4711\n")
