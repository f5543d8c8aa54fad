"""How many packets a host has received is what all its CPUs have processed, or not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.questions.machine import answer, packets


@pytest.mark.parametrize(
    ("text", "expected"), [(b"10 1 2\n5 0 0\n", 21), (b"zz\n", None), (b"\xff\n", None), (None, None)]
)
def test_packets_of_a_host_that_tells_none_are_not_known(
    tmp_path: Path, text: bytes | None, expected: int | None
) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    if text is not None:
        (tmp_path / "proc/net/softnet_stat").write_bytes(text)
    assert packets(Here(tmp_path)) == expected


def test_this_machine_answers() -> None:
    told = answer({})
    assert 0 < told["busy_ms"] < told["all_ms"] and told["packets"] > 0
