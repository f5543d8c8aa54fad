"""The rule of OpenFlow that drops is found on a real ovs-vswitchd, by the flow of its datapath that loses packets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from netconsole_collector.questions.known import answer
from netconsole_collector.sources.ovs.unixctl import DIRECTORY_VARIABLE
from tests.support.live.network import BARE_PYTHON
from tests.support.live.vswitchd import ADDRESSES, BRIDGE, PORTS, Vswitchd

PACED = """
import socket, sys, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("ready", flush=True)
while True:
    one.sendto(b"x", (sys.argv[1], 9))
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vswitchd]:
    running = Vswitchd(tmp_path_factory.mktemp("ovs"))
    yield running
    running.close()


@pytest.fixture
def sender(switch: Vswitchd) -> Iterator[subprocess.Popen[str]]:
    process = switch.a.start(PACED, ADDRESSES[1], python=BARE_PYTHON)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def asked(switch: Vswitchd, monkeypatch: pytest.MonkeyPatch, rules: str, by: str = "drop", port: str = PORTS[0]) -> Any:
    switch.rules(rules)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(switch.directory))
    return answer("ovs_rule", {"port": port, "by": by})


@pytest.mark.usefixtures("sender")
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (
            "cookie=0x2a,priority=100,udp,tp_dst=9,actions=drop",
            {"table": 0, "cookie": "0x2a", "priority": 100, "match": "udp,tp_dst=9", "is_miss": False},
        ),
        (
            "cookie=0x1,priority=1,actions=resubmit(,3)\ncookie=0x2b,table=3,priority=7,in_port=1,actions=drop",
            {"table": 3, "cookie": "0x2b", "priority": 7, "match": "in_port=1", "is_miss": False},
        ),
        ("cookie=0x1,priority=1,actions=drop", {"table": 0, "cookie": "0x1", "match": "everything"}),
        (
            "priority=1,actions=resubmit(,3)\ntable=3,priority=1,tcp,actions=NORMAL",
            {"table": 3, "is_miss": True, "match": None},
        ),
    ],
)
def test_a_flow_that_drops_is_led_back_to_its_rule(
    switch: Vswitchd, monkeypatch: pytest.MonkeyPatch, rules: str, expected: dict[str, object]
) -> None:
    found = asked(switch, monkeypatch, rules)
    assert {name: found[name] for name in expected} == expected, found
    assert found["bridge"] == BRIDGE and f"in_port({PORTS[0]})" in found["flow"]
    assert "drop" in switch.appctl("ofproto/trace", found["datapath"], found["flow"]).rpartition("Datapath actions:")[2]


@pytest.mark.usefixtures("sender")
@pytest.mark.parametrize("port", [PORTS[0], ""])
def test_a_meter_has_the_number_that_openflow_gives_it(
    switch: Vswitchd, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    switch.ofctl("del-meters")
    switch.ofctl("add-meter", "meter=7,kbps,band=type=drop,rate=10")
    found = asked(switch, monkeypatch, "cookie=0x2c,priority=6,udp,actions=meter:7,NORMAL", "meter", port)
    assert (found["bridge"], found["meter"], found["match"]) == (BRIDGE, 7, "udp")
    assert found["in_port"] == (None if port else PORTS[0])


def test_nothing_is_known_of_a_port_that_loses_nothing_and_of_none(
    switch: Vswitchd, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(switch, monkeypatch, "priority=1,actions=drop")["bridge"] is None, "no packet comes"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(switch.directory / "elsewhere"))
    assert answer("ovs_rule", {"port": PORTS[0], "by": "drop"})["bridge"] is None
