"""The message after the exit: what went wrong in the network, each thing once."""

from __future__ import annotations

from netconsole.tui.farewell import describe_end
from tests.support.tui.played import PlayedSession
from tests.unit.findings.test_incident import incident

SECOND = 10**9


def test_what_netconsole_did_by_itself_is_no_incident_and_what_came_again_is_one() -> None:
    there = {"total": 7, "unit": "packets", "place": {"device": "eth0"}, "cause": "lost"}
    log = [
        incident(number=1, since_ns=0, ended_ns=SECOND, **there),
        incident(number=2, cause="budget-kept", sentence="netconsole slowed itself"),
        incident(number=3, since_ns=3 * SECOND, ended_ns=4 * SECOND, **there),
    ]
    told = describe_end(PlayedSession(), 0.0, [], log).splitlines()
    assert told[2] == "netconsole: 1 incident, which has ended:" and len(told) == 4
    assert "eth0 loses; 2 times, last " in told[3] and told[3].endswith(", 14 packets in all")
