"""Flows that differ in what filters ask for, and which of them each filter lets pass."""

from __future__ import annotations

from tests.support.live.contexts.packets import ICMP, TCP, Flow

NETNS = 4_026_500_001
OTHER_NETNS = NETNS + 1

FLOWS = (
    Flow(),
    Flow("192.0.2.9", "192.0.2.1", 2222, 1111),
    Flow("198.51.100.7", "203.0.113.1", 5, 6, TCP),
    Flow("198.51.100.7", "203.0.113.1", protocol=ICMP),
    Flow("2001:db8::1", "2001:db8::2", 7, 8),
    Flow("2001:db8:1::1", "2001:db8::1", 7, 9, TCP),
)
FILTERS: list[tuple[dict[str, str | int], set[int]]] = [
    ({}, {0, 1, 2, 3, 4, 5}),
    ({"address": "192.0.2.1"}, {0, 1}),
    ({"address": "192.0.2.8/29"}, {1}),
    ({"address": "203.0.113.0/24"}, {2, 3}),
    ({"address": "2001:db8::1"}, {4, 5}),
    ({"address": "2001:db8::/48"}, {4, 5}),
    ({"address": "2001:db8:1::/48"}, {5}),
    ({"port": 1111}, {0, 1}),
    ({"port": 8}, {4}),
    ({"port": 7}, {4, 5}),
    ({"protocol": "tcp"}, {2, 5}),
    ({"protocol": "icmp"}, {3}),
    ({"protocol": "17", "port": 2222}, {0, 1}),
    ({"protocol": "tcp", "address": "2001:db8::1"}, {5}),
    ({"device": "eth0"}, {0, 1, 2, 3, 4, 5}),
    ({"device": "eth1"}, set()),
    ({"netns": NETNS}, {0, 1, 2, 3, 4, 5}),
    ({"netns": OTHER_NETNS}, set()),
    ({"netns": NETNS, "device": "eth0", "port": 9}, {5}),
    ({"address": "192.0.2.2,192.0.2.1"}, {0}),
    ({"address": "192.0.2.1,192.0.2.0/24"}, {0, 1}),
    ({"address": "from:192.0.2.1"}, {0}),
    ({"address": "to:192.0.2.1"}, {1}),
    ({"address": "from:2001:db8::1,to:2001:db8::/48"}, {4}),
    ({"address": "from:2001:db8::2,to:2001:db8::1"}, set()),
    ({"port": "1111,2222"}, {0, 1}),
    ({"port": "1111,9"}, set()),
    ({"port": "to:1111"}, {1}),
    ({"port": "from:7,to:9"}, {5}),
    ({"address": "from:192.0.2.1", "port": "to:1111"}, set()),
    ({"address": "to:192.0.2.1", "port": "from:2222"}, {1}),
]
"""Knobs, and the numbers of the flows that pass. All are of the device eth0 in NETNS."""

TAGGED = Flow(vlan=42)
STRANGER = Flow(mac="02:00:00:00:00:0c")
FRAMES = (*FLOWS, TAGGED, STRANGER)
BY_FRAME: list[tuple[dict[str, str | int], set[Flow]]] = [
    ({"vlan": 42}, {TAGGED}),
    ({"vlan": 43}, set()),
    ({"ethertype": 0x86DD}, {FLOWS[4], FLOWS[5]}),
    ({"ethertype": 0x0800, "vlan": 42}, {TAGGED}),
    ({"mac": STRANGER.mac}, {STRANGER}),
    ({"mac": "02:00:00:00:00:0B"}, set(FRAMES)),
    ({"mac": Flow().mac, "port": 8}, {FLOWS[4]}),
    ({"mac": "02:00:00:00:00:0d"}, set()),
]
"""The same of what an Ethernet frame says, among these."""
