"""What facts say of a filter of traffic control: the messages are those of the kernel, byte by byte."""

from __future__ import annotations

import base64
import struct
import sys

import pytest

from netconsole.base.fact_keys import key
from netconsole.sources.facts import TcMessages, tc_facts

INGRESS = 0xFFFFFFF2
KIND, OPTIONS, MATCHALL_ACT, POLICE_TBF = 1, 2, 2, 1


def attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value.ljust((len(value) + 3) // 4 * 4, b"\0")


def police(rate: int) -> bytes:
    """struct tc_police of include/uapi/linux/pkt_cls.h: the rate, of bytes per second, is the last of a tc_ratespec."""
    limits = struct.pack("=IiIII", 1, 2, 0, 0, 0) + struct.pack("=BBHhHI", 0, 1, 0, 0, 0, rate)
    limits += struct.pack("=BBHhHI", 0, 0, 0, 0, 0, 9) + struct.pack("=iiI", 1, 1, 0)
    return attribute(KIND, b"police\0") + attribute(OPTIONS, attribute(POLICE_TBF, limits))


def matchall(*actions: bytes) -> str:
    numbered = b"".join(attribute(number, action) for number, action in enumerate(actions, 1))
    options = attribute(KIND, b"matchall\0") + attribute(OPTIONS, attribute(MATCHALL_ACT, numbered))
    message = (
        struct.pack("=BxxxiIII", 0, 7, 1, INGRESS, 5 << 16 | struct.unpack("=H", struct.pack(">H", 3))[0]) + options
    )
    return base64.b64encode(message).decode()


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([police(625_000)], "actions=police rate=625000"),
        ([attribute(KIND, b"gact\0"), police(900), police(800)], "actions=gact,police,police rate=800"),
        ([attribute(KIND, b"mirred\0")], "actions=mirred"),
        ([police(0)], "actions=police"),
        ([police((1 << 32) - 1)], "actions=police"),  # more is in another attribute
        ([attribute(KIND, b"police\0")], "actions=police"),
    ],
)
def test_a_policer_is_said_with_its_rate(actions: list[bytes], said: str) -> None:
    told = TcMessages(sys.byteorder, [(7, "vnet7")], [], [(7, INGRESS, [matchall(*actions)])], [])
    found = tc_facts(told)[key("tc", "vnet7", "filter", "ingress", 5, "1")]
    assert found.value == f"matchall protocol=all {said}"
