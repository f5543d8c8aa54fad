"""The filters to which a probe is narrowed, as people read them."""

from __future__ import annotations

from netconsole.escalation import crossings
from netconsole.telemetry.frames import Scalar


def test_no_address_and_no_name_is_cut() -> None:
    address = "2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff"
    filters: dict[str, Scalar] = {"device": "fifteen-bytes-1", "netns": 4026531840, "protocol": "icmpv6", "port": 65535}
    written = crossings.written({**filters, "address": address})
    assert written == f"device=fifteen-bytes-1 netns=4026531840 protocol=icmpv6 port=65535 address={address}"
    assert len(written) > 100


def test_what_comes_from_outside_is_printable() -> None:
    assert crossings.written({"device": "\x1b[2J"}) == "device=\\x1b[2J"
