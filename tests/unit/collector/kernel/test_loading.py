"""What is said of a program that the kernel refuses."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from netconsole_collector.kernel import loading

REASON = "R1 invalid mem access 'scalar'"


def test_the_end_of_a_long_log_is_kept_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 probes a document has to have room for all logs."""

    def refused(*arguments: Any) -> int:
        if (log := arguments[-1]) is not None:
            log.value = b"17: (79) r1 = *(u64 *)(r1 +0)\n" * 30_000 + REASON.encode() + b"\n"
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(loading, "_load", refused)
    with pytest.raises(loading.LoadRefused, match=REASON) as error:
        loading.load("count", b"", 5)
    assert len(error.value.log) == loading.KEPT_LOG and error.value.log.rstrip().endswith(REASON)
