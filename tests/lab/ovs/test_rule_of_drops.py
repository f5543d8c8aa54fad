"""What the kernel's datapath drops is led back to its rule: by the flow that loses packets now."""

from __future__ import annotations

import contextlib
import json
import signal
import sys

from tests.lab.machine.errors import CommandTimeout
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
MOST_SENT = 60


def test_a_drop_of_the_kernel_is_led_back_to_its_rule(ends: Ends) -> None:
    with ends.rule("priority=400,in_port=va", "resubmit(,7)"), ends.rule("priority=9,table=7,udp", "drop"):
        asking = ends.hypervisor.start(*on_a_still_checkout(sys.executable, "-c", ASK, f"{CHECKOUT}/src"))
        asking.wait_for(b"ready\n", LIMIT_S)
        said = b""
        for _ in range(MOST_SENT):
            ends.sender.send("a", [DROPPED] * 5, sender=SENDER)
            with contextlib.suppress(CommandTimeout):
                said = asking.wait_for(b"\n", 1.0)
                break
        asking.signal(signal.SIGKILL)
    found = json.loads(said)
    assert (found["bridge"], found["table"], found["cookie"]) == (BRIDGE, 7, "0x0")
    assert (found["match"], found["priority"], found["is_miss"]) == ("udp", 9, False)
    assert "in_port(va)" in found["flow"]
