"""ovs_flows on a real ovs-vswitchd whose datapath is in user space: what it counts is what was sent."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.telemetry.frames import AnyFrame, Cost, Event, Row, Status, Table, Usage
from netconsole.telemetry.state import State
from netconsole_collector.sources.base import FULL_EVERY, SourceError
from netconsole_collector.sources.ovs.flows import OvsFlows
from tests.support.live.network import send_udp
from tests.support.live.vswitchd import ADDRESSES, BRIDGE, DATAPATH, PORT, PORTS, Vswitchd
from tests.support.sources import read_of

SOME, MANY = 20, 100  # fit into the buffer of the socket by which the switch receives
FRAME_BYTES = 14 + 20 + 8 + 64
END = Cost(seq=1, mono_ns=0, wall_ns=0, interval_ns=1, usage=Usage(cpu_ns=None, rss_kb=None, pss_kb=None))
NO_SUCH_KERNEL = Path("/sys/module/openvswitch")


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vswitchd]:
    running = Vswitchd(tmp_path_factory.mktemp("ovs"))
    yield running
    running.close()


@pytest.fixture
def source(switch: Vswitchd) -> Iterator[OvsFlows]:
    made = OvsFlows(where=[str(switch.directory)])
    made.open()
    yield made
    made.close()


def tables(frames: list[AnyFrame]) -> dict[str, list[Row]]:
    return {frame.name: frame.rows for frame in frames if isinstance(frame, Table)}


def all_rows(source: OvsFlows) -> dict[str, list[Row]]:
    """Reads until the tables come whole."""
    for _ in range(FULL_EVERY + 1):
        frames = read_of(source)
        if all(frame.full for frame in frames if isinstance(frame, Table)):
            return tables(frames)
    raise AssertionError("no full table")


@pytest.mark.proves(
    "ovs_flows",
    "tables.ports.{rx_packets,tx_packets,rx_bytes,tx_bytes,port,bridge,datapath}",
    "tables.datapaths.{datapath,kind,flow_limit}",
    "modes.summary",
)
def test_every_packet_is_a_hit_or_a_miss(switch: Vswitchd, source: OvsFlows) -> None:
    switch.appctl("dpctl/del-flows", f"netdev@{DATAPATH}")
    before = switch.b.statistics("eth0")["rx"]["packets"]
    all_rows(source)
    send_udp(switch.a, ADDRESSES[1], PORT, MANY)
    # It takes them from the wire when it comes to it: what has been received may still be waiting.
    switch.until(lambda: switch.b.statistics("eth0")["rx"]["packets"] - before == MANY)
    found = all_rows(source)
    (datapath,) = found["datapaths"]
    assert datapath.labels == {"datapath": DATAPATH, "kind": "user space"}
    counts = {name: count.total for name, count in datapath.counts.items()}
    assert counts["hits"] + counts["misses"] == MANY
    assert counts["misses"] >= 1
    assert counts["lost"] == 0
    assert "mask_hits" not in counts, "a datapath in user space does not tell"
    shown = re.search(r"\(limit (\d+)\)", switch.appctl("upcall/show"))
    assert shown and datapath.gauges["flow_limit"] == int(shown[1])
    assert datapath.gauges["dump_ms"] is not None
    ports = {str(row.labels["port"]): row.counts for row in found["ports"]}
    assert ports[PORTS[0]]["rx_packets"].total == ports[PORTS[1]]["tx_packets"].total == MANY
    assert ports[PORTS[0]]["rx_bytes"].total == ports[PORTS[1]]["tx_bytes"].total == MANY * FRAME_BYTES
    assert {row.labels["datapath"] for row in found["ports"]} == {DATAPATH}
    assert {row.labels["bridge"] for row in found["ports"] if row.labels["port"] in PORTS} == {BRIDGE}


@pytest.mark.proves("ovs_flows", "tables.vswitchd.{process,handlers,revalidators}")
def test_threads_and_answers_of_the_process(switch: Vswitchd, source: OvsFlows) -> None:
    (row,) = all_rows(source)["vswitchd"]
    assert row.labels == {"process": f"ovs-vswitchd/{switch.pid}"}
    comms = [comm.read_text() for comm in Path(f"/proc/{switch.pid}/task").glob("*/comm")]
    for gauge, name in (("handlers", "handler"), ("revalidators", "revalidator")):
        assert row.gauges[gauge] == sum(comm.startswith(name) for comm in comms) >= 1
    assert row.gauges["silent"] == 0
    assert row.gauges["answer_ms"] is not None


@pytest.mark.proves("ovs_flows", "events.flow.{datapath,match,actions,packets,bytes}", "modes.details")
def test_new_flows_are_told_in_words_in_mode_details(switch: Vswitchd, source: OvsFlows) -> None:
    switch.appctl("dpctl/del-flows", f"netdev@{DATAPATH}")
    source.mode = "details"
    (status,) = [frame for frame in read_of(source) if isinstance(frame, Status)]
    assert status.mode == "details"
    send_udp(switch.a, ADDRESSES[1], PORT, SOME)
    # The first one asks for the flow, and is not counted in it.
    switch.until(lambda: f"packets:{SOME - 1}, " in switch.appctl("dpctl/dump-flows", f"netdev@{DATAPATH}"))
    source._dump_at = 0.0  # now, not five seconds after the last look
    (event,) = [frame for frame in read_of(source) if isinstance(frame, Event)]
    assert event.fields["datapath"] == DATAPATH
    assert f"in_port({PORTS[0]})" in str(event.fields["match"])
    assert set(str(event.fields["actions"]).split(",")) - {BRIDGE} == {PORTS[1]}, "it may not know yet where that is"
    assert (event.fields["packets"], event.fields["bytes"]) == (SOME - 1, (SOME - 1) * FRAME_BYTES)


def test_a_switch_that_is_stopped_is_named_as_such(switch: Vswitchd, source: OvsFlows) -> None:
    all_rows(source)
    os.kill(switch.pid, signal.SIGSTOP)
    try:
        frames = read_of(source)
        (status,) = [frame for frame in frames if isinstance(frame, Status)]
        assert status.state == "degraded"
        assert "stopped (SIGSTOP)" in (status.why or "")
        (row,) = tables(frames)["vswitchd"]
        assert (row.gauges["silent"], row.gauges["answer_ms"]) == (1, None)
    finally:
        os.kill(switch.pid, signal.SIGCONT)


def test_a_switch_that_has_ended_does_not_go_on_answering(tmp_path: Path) -> None:
    one = Vswitchd(tmp_path)
    source = OvsFlows(where=[str(tmp_path)])
    source.open()
    try:
        state = State()
        for frame in (*read_of(source), END):
            state.apply(frame)
        (row,) = state.probes["ovs_flows"].tables["vswitchd"].rows.values()
        assert row.gauges["answer_ms"] is not None
        os.kill(one.pid, signal.SIGKILL)
        one.until(lambda: not Path(f"/proc/{one.pid}/fd").exists())
        for frame in (*read_of(source), END):
            state.apply(frame)
        (row,) = state.probes["ovs_flows"].tables["vswitchd"].rows.values()
        assert (row.gauges["ended"], row.gauges["answer_ms"]) == (1, None)
        (datapath,) = state.probes["ovs_flows"].tables["datapaths"].rows.values()
        assert datapath.per_s("hits") is None and datapath.total("hits") is not None
    finally:
        source.close()
        one.close()


@pytest.mark.skipif(NO_SUCH_KERNEL.exists(), reason="this kernel has Open vSwitch")
def test_without_open_vswitch_one_sentence_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match="the kernel module openvswitch is not loaded, and no ovs-vswitchd runs here"
    ) as it:
        OvsFlows(where=[str(tmp_path)]).open()
    assert it.value.state == "unsupported"
