"""On each kernel: a collector that is killed amid traffic leaves no program, map, hook, process or file."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.kernels.compiled import shipped
from tests.lab.kernels.each import PROVEN
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import ping

pytestmark = [pytest.mark.long, pytest.mark.parametrize("testbed", PROVEN, indirect=True)]

PROBES = sorted(shipped().keys() - {"virtio_guest"})
"""All but the one of what a guest has: programs of all kinds, on functions of vmlinux and of modules."""
PINGS = 20
LIMIT_S = 60
# What the kernel, /proc and the places of temporary files have of collectors, as JSON: only what is more than in a
# former answer. With a limit in seconds, as soon as that is nothing.
LOOK = """
import glob, json, os, re, sys, time
from tests.support.live import bpf_objects

def command(process):
    if process == f"/proc/{os.getpid()}":
        return ""
    try:
        return open(process + "/cmdline").read()
    except OSError:  # it has ended
        return ""

def listed(path, pattern):
    try:
        return re.findall(pattern, open(path).read(), re.MULTILINE)
    except FileNotFoundError:  # this kernel has no such list
        return []

def look():
    return {
        "programs": bpf_objects.program_ids(),
        "maps": bpf_objects.map_ids(),
        "kprobes": listed("/sys/kernel/debug/kprobes/list", r"^\\S+\\s+(\\w\\s+\\S+)"),
        "traced functions": listed("/sys/kernel/debug/tracing/enabled_functions", r"^\\S+ .*?\\(\\d+\\)"),
        "collectors": [one for one in glob.glob("/proc/[0-9]*") if "netconsole_collector" in command(one)],
        "files": [path for place in ("/tmp", "/run", "/dev/shm") for path in glob.glob(place + "/netconsole-types-*")],
    }

before, deadline = json.loads(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while True:
    more = {what: sorted(set(map(str, now)) - set(before.get(what, ()))) for what, now in look().items()}
    if not any(more.values()) or time.monotonic() > deadline:
        break
    time.sleep(0.1)
print(json.dumps({what: ones for what, ones in more.items() if ones}))
"""


def more_than(before: dict[str, list[str]], testbed: Testbed, limit_s: int = 0) -> dict[str, list[str]]:
    """By kind. With a limit: until it is nothing."""
    shown = testbed.hypervisor.python("-c", LOOK, json.dumps(before), str(limit_s), limit_s=2 * LIMIT_S)
    found: dict[str, list[str]] = json.loads(shown)
    return found


def test_nothing_is_left_of_a_collector_that_is_killed_amid_traffic(testbed: Testbed, lab: Lab) -> None:
    """The collector of other tests stays as it is."""
    lab.collector(testbed).settle()
    before = more_than({}, testbed)
    with closing(InsideMeasurement(testbed.hypervisor)) as victim:
        with ThreadPoolExecutor() as pool:
            list(pool.map(victim.load, PROBES))
        more = more_than(before, testbed)
        assert len(more["programs"]) >= sum(len(victim.statuses[probe].attach) for probe in PROBES)
        assert len(more["maps"]) > len(PROBES)
        assert {*more} > {"programs", "maps", "collectors"}, "what is looked for is seen, hooks too"
        victim.begin()
        with ThreadPoolExecutor(1) as pool:
            traffic = pool.submit(ping, testbed.hypervisor, testbed.guests[0], PINGS)
            victim.until(lambda: victim.total("vhost_queues", "queues", "packets", device="vnet0") > 0, "a packet")
            victim.kill()
            traffic.result()
        assert more_than(before, testbed, LIMIT_S) == {}
