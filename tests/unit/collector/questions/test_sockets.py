"""What the counters of a namespace say of connections that were refused in TIME-WAIT."""

from __future__ import annotations

import pytest

from netconsole_collector.questions.net.sockets import refused_in

IP = b"IpExt: InNoRoutes InOctets\nIpExt: 5 7\n"


@pytest.mark.parametrize(
    ("names", "values", "refused"),
    [
        (b"SyncookiesSent PAWSEstab", b"3 0", False),
        (b"SyncookiesSent PAWSEstab", b"0 7", True),
        (b"PAWSEstab PAWSTimewait", b"7 7", False),  # such a packet has a drop reason of its own
        (b"SyncookiesSent", b"3", False),
    ],
)
def test_refused_time_stamps_are_known_by_a_counter_where_no_reason_tells(
    names: bytes, values: bytes, refused: bool
) -> None:
    assert refused_in(b"TcpExt: " + names + b"\nTcpExt: " + values + b"\n" + IP) is refused


def test_without_counters_nothing_was_refused() -> None:
    assert not refused_in(b"")
