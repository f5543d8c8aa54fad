"""ovs_flows with the kernel datapath: it reports what was sent, and what ovs-dpctl shows."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.lab.machine.hypervisor import CHECKOUT, Hypervisor
from tests.lab.network.testbed import Testbed

MANY = 3000
PORT = 9
PUTS = 3
COVERAGE_LIMIT_S = 40.0
DATAPATH = "ovs-system"
VSWITCHD = "/run/openvswitch/ovs-vswitchd.pid"
# Reads whole tables at every line of its input, and prints its frames as one line of JSON.
READER = """
import json
import sys
import time
from netconsole_collector.sources import base
from netconsole_collector.sources.ovs import flows
base.FULL_EVERY = 1
base.MAX_SHARE = 100.0  # every port at every reading, however slow this machine is
flows.DUMP_EVERY_S = 0.0
source, before = flows.OvsFlows(), time.monotonic()
source.mode = sys.argv[1]
source.open()
for _ in sys.stdin:
    now = time.monotonic()
    interval_ns, before = max(1, int((now - before) * 1e9)), now
    print(json.dumps(source.read(base.SourceReading(interval_ns))), flush=True)
"""


class Reading(NamedTuple):
    """Rows by table, the rest of the frames by kind."""

    tables: dict[str, list[dict[str, Any]]]
    others: dict[str, list[dict[str, Any]]]

    def datapath(self) -> dict[str, Any]:
        (row,) = self.tables["datapaths"]
        return row

    def port(self, name: str) -> dict[str, int]:
        (row,) = [row for row in self.tables["ports"] if row["labels"]["port"] == name]
        return {name: count["total"] for name, count in row["counts"].items()}

    def vswitchd(self) -> dict[str, Any]:
        (row,) = self.tables["vswitchd"]
        return row


class Reader:
    """The source, on the hypervisor."""

    def __init__(self, hypervisor: Hypervisor, mode: str) -> None:
        self.process = hypervisor.start(
            *(sys.executable, "-c", READER, mode), env={"PYTHONPATH": str(CHECKOUT / "src")}, cwd=CHECKOUT
        )

    def read(self) -> Reading:
        self.process.write(b"\n")
        tables: dict[str, list[dict[str, Any]]] = {}
        others: dict[str, list[dict[str, Any]]] = {}
        for frame in json.loads(self.process.wait_for(b"\n")):
            if frame["kind"] == "table":
                tables[frame["name"]] = frame["rows"]
            else:
                others.setdefault(frame["kind"], []).append(frame)
        return Reading(tables, others)


def send_new_flow(testbed: Testbed) -> None:
    """ovs-vswitchd puts a flow again only if it knows that it is gone (ofproto-dpif-upcall.c, ukey_install)."""
    testbed.hypervisor.run("ovs-appctl", "revalidator/purge")
    testbed.guests[0].send_udp(1, testbed.bridge, port=PORT)


@pytest.fixture
def reader(testbed: Testbed) -> Iterator[Reader]:
    one = Reader(testbed.hypervisor, "summary")
    yield one
    one.process.close_input()
    one.process.wait()


@pytest.mark.proves("ovs_flows", "tables.datapaths.{hits,misses,lost}")
def test_lookups_and_ports_are_exact(testbed: Testbed, reader: Reader) -> None:
    before, dpctl = reader.read(), testbed.ovs.upcalls()
    testbed.guests[0].send_udp(MANY, testbed.bridge, port=PORT)
    after, dpctl_after = reader.read(), testbed.ovs.upcalls()
    assert after.datapath()["labels"] == {"datapath": DATAPATH, "kind": "kernel"}
    counted = {
        name: after.datapath()["counts"][name]["total"] - before.datapath()["counts"][name]["total"]
        for name in ("hits", "misses", "lost")
    }
    shown = {name: dpctl_after[name] - dpctl[name] for name in dpctl}
    assert counted == {"hits": shown["hit"], "misses": shown["missed"], "lost": shown["lost"]}
    assert counted["hits"] + counted["misses"] >= MANY
    rx = after.port("vnet0")["rx_packets"] - before.port("vnet0")["rx_packets"]
    assert rx == MANY


SHOWN = re.compile(
    r"hit:(\d+) missed:(\d+) lost:(\d+).*?flows: (\d+).*?masks: hit:(\d+) total:(\d+).*?cache: hit:(\d+)", re.DOTALL
)
SHOWN_NAMES = ("hits", "misses", "lost", "flows", "mask_hits", "masks", "cache_hits")
READINGS = 20


def shown_by_dpctl(hypervisor: Hypervisor) -> dict[str, int]:
    found = SHOWN.search(hypervisor.run("ovs-dpctl", "show").text)
    assert found
    return dict(zip(SHOWN_NAMES, map(int, found.groups()), strict=True))


def read_still(hypervisor: Hypervisor, reader: Reader) -> tuple[Reading, dict[str, int]]:
    """While nothing happens in the datapath: as ovs-dpctl shows it before and after."""
    for _ in range(READINGS):
        before, reading = shown_by_dpctl(hypervisor), reader.read()
        if shown_by_dpctl(hypervisor) == before:
            return reading, before
    raise AssertionError("there is always something going on")


@pytest.mark.proves(
    "ovs_flows",
    "tables.datapaths.{hits,misses,lost,mask_hits,cache_hits,flows,masks,cache_size,flow_limit}",
    "tables.vswitchd.{handlers,revalidators}",
)
def test_figures_of_a_datapath_are_those_of_its_own_tools(testbed: Testbed, reader: Reader) -> None:
    hypervisor = testbed.hypervisor
    before, dpctl = read_still(hypervisor, reader)
    testbed.guests[0].send_udp(MANY, testbed.bridge, port=PORT)
    after, dpctl_after = read_still(hypervisor, reader)
    counts = {name: count["total"] for name, count in after.datapath()["counts"].items()}
    for name, count in before.datapath()["counts"].items():
        assert counts[name] - count["total"] == dpctl_after[name] - dpctl[name], name
    gauges = after.datapath()["gauges"]
    assert (gauges["flows"], gauges["masks"]) == (dpctl_after["flows"], dpctl_after["masks"])
    added = {name: dpctl_after[name] - dpctl[name] for name in dpctl}
    assert added["mask_hits"] > 0 and added["hits"] > 0
    size = re.search(r"masks-cache: size:(\d+)", hypervisor.run("ovs-dpctl", "show").text)
    assert size and gauges["cache_size"] == int(size[1])
    limit = re.search(r"\(limit (\d+)\)", hypervisor.run("ovs-appctl", "upcall/show").text)
    assert limit and gauges["flow_limit"] == int(limit[1])
    for gauge, name in (("handlers", "handler"), ("revalidators", "revalidator")):
        assert after.vswitchd()["gauges"][gauge] == threads(hypervisor, name) > 0


def threads(hypervisor: Hypervisor, name: str) -> int:
    """Of ovs-vswitchd, by the begin of their names."""
    comms = hypervisor.shell(f"cat /proc/{hypervisor.read_file(VSWITCHD).decode().strip()}/task/*/comm").split()
    return sum(comm.startswith(name) for comm in comms)


@pytest.mark.proves("ovs_flows", "tables.datapaths.handlers")
def test_gauges_of_the_flow_table(testbed: Testbed, reader: Reader) -> None:
    reader.read()
    testbed.guests[0].send_udp(MANY, testbed.bridge, port=PORT)
    gauges = reader.read().datapath()["gauges"]
    cpus = int(testbed.hypervisor.run("nproc").text)
    assert gauges["handlers"] == (cpus if testbed.ovs.asks_by_cpu else threads(testbed.hypervisor, "handler"))
    assert gauges["no_handler"] == 0
    assert gauges["flows"] >= 1 and gauges["masks"] >= 1
    assert 0 < gauges["masks_per_packet"] <= gauges["masks"]
    assert 0 <= gauges["limit_used_pct"] < 100
    assert gauges["dump_ms"] is not None


def test_flow_puts(testbed: Testbed, reader: Reader) -> None:
    before = reader.read()
    assert before.vswitchd()["gauges"]["revalidators"] >= 1
    # A thread of ovs-vswitchd tells what it has counted when it wakes the next time, and once a second at most.
    puts = 0
    deadline = time.monotonic() + COVERAGE_LIMIT_S
    while puts < PUTS and time.monotonic() < deadline:
        send_new_flow(testbed)
        puts = reader.read().vswitchd()["counts"]["flow_puts"]["total"]
    assert puts >= PUTS


def test_flows_of_the_kernel_s_datapath_are_told_in_words(testbed: Testbed) -> None:
    reader = Reader(testbed.hypervisor, "details")
    testbed.hypervisor.run("ovs-appctl", "revalidator/purge")
    reader.read()  # what is there is not new
    send_new_flow(testbed)
    events = reader.read().others["event"]
    reader.process.close_input()
    reader.process.wait()
    (fields,) = [event["fields"] for event in events if "in_port(vnet0)" in event["fields"]["match"]]
    assert fields["datapath"] == DATAPATH
    assert re.search(r",ipv4\b", fields["match"])
    assert fields["actions"]


def test_a_datapath_without_handlers_is_named(testbed: Testbed, reader: Reader) -> None:
    before = reader.read().datapath()
    testbed.hypervisor.run("ovs-appctl", "dpctl/del-flows")
    with testbed.ovs.without_handlers():
        testbed.guests[0].send_udp(MANY, testbed.bridge, port=PORT)
        row = reader.read().datapath()
    assert (row["gauges"]["handlers"], row["gauges"]["no_handler"]) == (0, 1)
    lost = {name: row["counts"][name]["total"] - before["counts"][name]["total"] for name in ("misses", "lost")}
    assert lost == {"misses": MANY, "lost": MANY}
    assert reader.read().datapath()["gauges"]["no_handler"] == 0


def test_a_stopped_switch_is_named(testbed: Testbed, reader: Reader) -> None:
    hypervisor = testbed.hypervisor
    pid = hypervisor.read_file(VSWITCHD).decode().strip()
    reader.read()
    hypervisor.run("kill", "-STOP", pid)
    try:
        reading = reader.read()
    finally:
        hypervisor.run("kill", "-CONT", pid)
    (status,) = reading.others["status"]
    assert status["state"] == "degraded"
    assert "stopped (SIGSTOP)" in status["why"]
    assert reading.vswitchd()["gauges"]["silent"] == 1
    assert reading.datapath()["gauges"]["flow_limit"] is None
    assert reading.datapath()["gauges"]["handlers"] > 0
