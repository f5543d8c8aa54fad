"""No counter of this kernel's protocols is one that nobody has decided on: a loss, noise, or none of both."""

from __future__ import annotations

from pathlib import Path

from tests.support.counter_names import FILES, names, unknown


def read(file: str) -> str | None:
    path = Path("/proc/net", file)
    return path.read_text("ascii") if path.exists() else None


def test_each_counter_of_this_kernel_is_known() -> None:
    found = names(read)
    assert len(found) > 300, FILES
    assert not unknown(found), "add them to provoked-counters.toml, and to protocol_losses.py what means a loss"
    assert unknown([*found, "TcpExtTCPNewDrop"]) == ["TcpExtTCPNewDrop"]
