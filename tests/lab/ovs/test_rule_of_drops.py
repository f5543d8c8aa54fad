"""What the kernel's datapath drops is led back to its rule: by the flow that loses packets now."""

from __future__ import annotations

import json
import sys

from tests.lab.machine.hypervisor import CHECKOUT, on_a_still_checkout
from tests.lab.network.testbed import BRIDGE
from tests.lab.ovs.ends import Ends
from tests.support.live.ovs_frames import Frame

DROPPED = Frame("10.9.0.1", "10.9.0.2", target_port=4444)
SENDER = 77
"""All frames have one source, and so one flow."""
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from netconsole_collector.questions.known import answer
print("ready", flush=True)
while True:
    found = answer("ovs_rule", {"port": "va", "by": "drop"})
    if found["bridge"]:
        print(json.dumps(found), flush=True)
        break
"""
LIMIT_S = 120.0


def test_a_drop_of_the_kernel_is_led_back_to_its_rule(ends: Ends) -> None:
    with ends.rule("priority=400,in_port=va", "resubmit(,7)"), ends.rule("priority=9,table=7,udp", "drop"):
        asking = ends.hypervisor.start(*on_a_still_checkout(sys.executable, "-c", ASK, f"{CHECKOUT}/src"))
        asking.wait_for(b"ready\n", LIMIT_S)
        while asking.code is None and b"\n" not in asking.out:
            ends.sender.send("a", [DROPPED] * 5, sender=SENDER)
        found = json.loads(asking.wait_for(b"\n", LIMIT_S))
    assert (found["bridge"], found["table"], found["cookie"]) == (BRIDGE, 7, "0x0")
    assert (found["match"], found["priority"], found["is_miss"]) == ("udp", 9, False)
    assert "in_port(va)" in found["flow"]
