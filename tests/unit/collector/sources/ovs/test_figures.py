"""ovs_flows from end to end: the messages of the kernel and the answers of ovs-vswitchd are ours."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import cast

import pytest

from netconsole.telemetry.frames import AnyFrame, Cost, Event, Row, Status, Table
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.ovs import flows
from tests.support.sources import read_of

DIRECTORY, PID = "/run/ours", 4711
CONTROL = f"{DIRECTORY}/ovs-vswitchd.{PID}.ctl"
DATAPATH_FAMILY, PORT_FAMILY = 30, 31
SYSTEM, NETDEV = "ovs-system", "ovs-netdev"
PER_CPU, PER_PORT = 1 << 3, 1
TOOK_S = 0.00317
FLOW = "recirc_id(0),in_port(va),eth_type(0x0800),ipv4(src=10.0.0.{0},frag=no), packets:{1}, bytes:{2}, used:1.0s, "
OLD_FLOW = FLOW.format(1, 499, 52894) + "actions:vb"
NEW_FLOWS = [FLOW.format(2, 17, 1870) + "actions:ct(commit),vc", FLOW.format(3, 18, 1980) + "actions:drop"]

REVALIDATION = """{}@{}:
  flows         : (current 1) (avg 1) (max 1) (limit {})
  dump duration : {}ms

  5: (keys 0)
"""
BRIDGES = f"""system@{SYSTEM}: hit:1 missed:1
  br0:
    br0 65534/1: (internal)
    va 3/2: (system)
  br-tun:
    vx1 1/3: (vxlan)
netdev@{NETDEV}: hit:1 missed:1
  br1:
    dpdk0 1/2: (dpdk)
"""


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def u32(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}I", *numbers)


def family(number: int, name: str) -> bytes:
    """Of generic netlink (enum CTRL_ATTR_FAMILY_*)."""
    return struct.pack("=BBxx", 1, 2) + attribute(1, struct.pack("=H", number)) + attribute(2, name.encode() + b"\0")


def datapath(
    lookups: tuple[int, int, int, int],
    masks: tuple[int, int, int],
    sockets: tuple[int, ...] = (11, 12, 0, 12, 13),
    features: int = PER_CPU,
) -> bytes:
    """As the kernel tells of one: hits, misses, lost, flows; mask hits, masks, hits of the cache of 256."""
    head = struct.pack("=BBxxi", 1, 2, 7) + attribute(1, SYSTEM.encode() + b"\0")
    stats = attribute(3, struct.pack("=4Q", *lookups)) + attribute(4, struct.pack("=QI4xQQ", *masks, 0))
    return head + stats + attribute(5, u32(features)) + attribute(7, u32(256)) + attribute(8, u32(*sockets))


def port(name: str, kind: int, counts: tuple[int, ...], sockets: tuple[int, ...] = (0,)) -> bytes:
    """As the kernel tells of one, with struct ovs_vport_stats."""
    head = struct.pack("=BBxxi", 1, 2, 7) + attribute(1, u32(3)) + attribute(2, u32(kind))
    return (
        head
        + attribute(3, name.encode() + b"\0")
        + attribute(5, u32(*sockets))
        + attribute(6, struct.pack("=8Q", *counts))
    )


def of_netdev(hits: int, misses: int, lost: int, port: int) -> str:
    """``dpctl/show -s`` of a datapath in user space; the counters of its port begin with this number."""
    rx, tx, rx_errors, tx_errors, rx_drops, tx_drops = range(port, port + 6)
    return f"""netdev@{NETDEV}:
  lookups: hit:{hits} missed:{misses} lost:{lost}
  flows: 40
  port 2: dpdk0 (dpdk: mtu=1500)
    RX packets:{rx} errors:{rx_errors} dropped:{rx_drops} overruns:? frame:?
    TX packets:{tx} errors:{tx_errors} dropped:{tx_drops} aborted:? carrier:?
    collisions:?
    RX bytes:{60 * rx} (1 KiB)  TX bytes:{60 * tx}
"""


class SwitchHost:
    """A host with Open vSwitch that says what the test wants it to."""

    def __init__(self) -> None:
        self.messages = {
            16: [family(DATAPATH_FAMILY, "ovs_datapath"), family(PORT_FAMILY, "ovs_vport")],
            DATAPATH_FAMILY: [datapath((1000, 20, 3, 450), (5000, 5, 900))],
            PORT_FAMILY: [port("va", 1, (1, 2, 3, 4, 5, 6, 7, 8)), port("vx1", 4, (0,) * 8)],
        }
        self.counters = {"dpif_flow_put": 100, "dpif_flow_del": 50, "dpif_execute": 200}
        self.netdev = of_netdev(499, 1, 0, 70)
        self.dumped = [OLD_FLOW]
        self.asked: list[str] = []
        self.is_silent = False
        self.took_s = TOOK_S
        threads = ("ovs-vswitchd", "handler4", "handler5", "handler16", "revalidator7", "revalidator8", "urcu2")
        self.files = {f"/proc/{PID}/task/{PID + n}/comm": f"{name}\n" for n, name in enumerate(threads)}
        self.files |= {f"{DIRECTORY}/ovs-vswitchd.pid": f"{PID}\n", f"/proc/{PID}/comm": "ovs-vswitchd\n"}
        self.files |= {f"/proc/{PID}/stat": f"{PID} (ovs-vswitchd) T 1 1"}

    def cpu_s(self) -> float:
        return 0.0

    def close(self) -> None:
        pass

    def read(self, path: str, limit: int = 0, from_end: bool = False) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file")
        return self.files[path].encode()

    def names(self, path: str, limit: int = 0) -> list[str]:
        return [one.split("/")[4] for one in self.files if one.startswith(f"{path}/")]

    def netlink(self, protocol: int) -> SwitchHost:
        assert protocol == 16
        return self

    def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
        if kind == PORT_FAMILY:
            assert struct.unpack("=BBxxi", request)[2] == 7, "ports of the datapath that the kernel named"
        yield from (memoryview(one) for one in self.messages[kind])

    def connect(self, path: str, timeout_s: float) -> SwitchHost:
        assert path == CONTROL
        return self

    def ask(self, request: bytes, timeout_s: float) -> bytes:
        if self.is_silent:
            raise TimeoutError(110, "no answer")
        said = json.loads(request)
        self.asked.append(" ".join((said["method"], *said["params"])))
        return json.dumps({"id": said["id"], "error": None, "result": self._answer(self.asked[-1])}).encode()

    def _answer(self, asked: str) -> str:
        command, _, last = asked.rpartition(" ")
        if command == "coverage/read-counter":
            return f"{self.counters[last]}\n"
        shown = REVALIDATION.format("system", SYSTEM, 500, 37) + REVALIDATION.format("netdev", NETDEV, 10000, 1)
        return {
            "upcall/show": shown,
            "dpif/show": BRIDGES,
            f"dpctl/show -s netdev@{NETDEV}": self.netdev,
            f"dpctl/dump-flows --names system@{SYSTEM}": "\n".join(self.dumped),
            f"dpctl/dump-flows --names netdev@{NETDEV}": "",
        }[asked]


@pytest.fixture
def host() -> SwitchHost:
    return SwitchHost()


@pytest.fixture
def source(host: SwitchHost) -> flows.OvsFlows:
    return flows.OvsFlows(cast(Here, host), where=[DIRECTORY])


def rows(frames: list[AnyFrame], table: str) -> list[Row]:
    (found,) = [frame for frame in frames if isinstance(frame, Table) and frame.name == table]
    return found.rows


def read(source: flows.OvsFlows) -> list[AnyFrame]:
    return read_of(source)


@pytest.mark.proves(
    "ovs_flows",
    "tables.datapaths.{datapath,kind,hits,misses,lost,mask_hits,cache_hits,flows,flow_limit,limit_used_pct,dump_ms}",
    "tables.datapaths.{masks,masks_per_packet,cache_size,handlers,no_handler}",
)
def test_a_datapath_of_the_kernel(source: flows.OvsFlows, host: SwitchHost) -> None:
    of_kernel, _ = rows(read(source), "datapaths")
    assert of_kernel.labels == {"datapath": "ovs-system", "kind": "kernel"}
    assert of_kernel.gauges["masks_per_packet"] is None, "nothing to compare with"
    host.messages[DATAPATH_FAMILY] = [datapath((1310, 40, 7, 460), (6155, 6, 977))]
    (of_kernel,) = rows(read(source), "datapaths")
    counts = {"hits": 310, "misses": 20, "lost": 4, "mask_hits": 1155, "cache_hits": 77}
    assert {name: (count.delta, count.total) for name, count in of_kernel.counts.items()} == {
        name: (count, count) for name, count in counts.items()
    }
    assert of_kernel.gauges == {
        "flows": 460, "flow_limit": 500, "limit_used_pct": 92.0, "dump_ms": 37,
        "masks": 6, "masks_per_packet": 3.5, "cache_size": 256, "handlers": 3, "no_handler": 0,
    }  # fmt: skip


@pytest.mark.proves("ovs_flows", "tables.datapaths.{kind,hits,misses,lost,flows,flow_limit,limit_used_pct,dump_ms}")
def test_a_datapath_in_user_space(source: flows.OvsFlows, host: SwitchHost) -> None:
    read(source)
    host.netdev = of_netdev(699, 31, 4, 70)
    (in_user_space,) = rows(read(source), "datapaths")
    assert in_user_space.labels == {"datapath": "ovs-netdev", "kind": "user space"}
    assert {name: count.delta for name, count in in_user_space.counts.items()} == {"hits": 200, "misses": 30, "lost": 4}
    assert in_user_space.gauges == {"flows": 40, "flow_limit": 10000, "limit_used_pct": 0.4, "dump_ms": 1}


@pytest.mark.proves("ovs_flows", "tables.datapaths.{handlers,no_handler}")
@pytest.mark.parametrize(
    ("of_datapath", "features", "of_port", "handlers"),
    [
        ((0,), PER_CPU, (11, 12), 0),
        ((11,), PER_CPU, (0,), 1),
        ((), PER_PORT, (21, 22), 2),
        ((11,), PER_PORT, (0,), 0),
    ],
    ids=["none", "one", "of ports", "none of ports"],
)
def test_a_datapath_without_handlers_loses_all(
    source: flows.OvsFlows,
    host: SwitchHost,
    of_datapath: tuple[int, ...],
    features: int,
    of_port: tuple[int, ...],
    handlers: int,
) -> None:
    """Since 5.15 the datapath has a list of their sockets; before, each port had its own."""
    host.messages[DATAPATH_FAMILY] = [datapath((0, 0, 0, 0), (0, 0, 0), of_datapath, features)]
    host.messages[PORT_FAMILY] = [port("va", 1, (0,) * 8, of_port)]
    of_kernel, _ = rows(read(source), "datapaths")
    assert (of_kernel.gauges["handlers"], of_kernel.gauges["no_handler"]) == (handlers, int(handlers == 0))


@pytest.mark.proves(
    "ovs_flows",
    "tables.ports.{bridge,port,type,datapath,rx_packets,tx_packets,rx_bytes,tx_bytes,rx_errors,tx_errors}",
    "tables.ports.{rx_drops,tx_drops}",
)
def test_ports_of_both_kinds_of_datapaths(source: flows.OvsFlows, host: SwitchHost) -> None:
    names = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_drops", "tx_drops")
    kernel, in_user_space = (10, 20, 30, 40, 50, 60, 70, 80), (3, 3, 180, 180, 3, 3, 3, 3)
    assert {tuple(row.labels.values()) for row in rows(read(source), "ports")} == {
        (SYSTEM, "va", "netdev", "br0"), (SYSTEM, "vx1", "vxlan", "br-tun"), (NETDEV, "dpdk0", "dpdk", "br1"),
    }  # fmt: skip
    host.messages[PORT_FAMILY][0] = port("va", 1, tuple(n + 1 + one for n, one in enumerate(kernel)))
    host.netdev = of_netdev(499, 1, 0, 73)
    va, dpdk = rows(read(source), "ports")
    assert va.labels == {"datapath": SYSTEM, "port": "va", "type": "netdev", "bridge": "br0"}
    assert dpdk.labels == {"datapath": NETDEV, "port": "dpdk0", "type": "dpdk", "bridge": "br1"}
    for row, added in ((va, kernel), (dpdk, in_user_space)):
        assert {name: count.delta for name, count in row.counts.items()} == dict(zip(names, added, strict=True))


@pytest.mark.proves(
    "ovs_flows",
    "tables.vswitchd.{process,flow_puts,flow_deletes,executed,handlers,revalidators,answer_ms,silent,ended}",
)
def test_the_process_and_its_threads(source: flows.OvsFlows, host: SwitchHost) -> None:
    read(source)
    host.counters = {"dpif_flow_put": 130, "dpif_flow_del": 57, "dpif_execute": 208}
    (row,) = rows(read(source), "vswitchd")
    assert row.labels == {"process": "ovs-vswitchd/4711"}
    counts = {"flow_puts": 30, "flow_deletes": 7, "executed": 8}
    assert {name: (count.delta, count.total) for name, count in row.counts.items()} == {
        name: (count, count) for name, count in counts.items()
    }
    of_threads = {"handlers": 3, "revalidators": 2}
    assert row.gauges == {**of_threads, "answer_ms": 3.17, "silent": 0, "ended": 0, "answered_ago_s": None}


@pytest.mark.proves("ovs_flows", "tables.vswitchd.{silent,answer_ms}", "tables.datapaths.{flow_limit,dump_ms}")
def test_a_process_that_does_not_answer(source: flows.OvsFlows, host: SwitchHost) -> None:
    """What only it knows is unknown; what the kernel knows is read all the same."""
    read(source)
    host.is_silent = True
    host.messages[DATAPATH_FAMILY] = [datapath((1010, 20, 3, 450), (5000, 5, 900))]
    frames = read(source)
    (row,) = rows(frames, "vswitchd")
    assert (row.gauges["silent"], row.gauges["answer_ms"], row.gauges["handlers"]) == (1, None, 3)
    of_kernel, *_ = rows(frames, "datapaths")
    assert of_kernel.counts["hits"].delta == 10
    assert [of_kernel.gauges[name] for name in ("flow_limit", "limit_used_pct", "dump_ms")] == [None, None, None]
    (status,) = [frame for frame in frames if isinstance(frame, Status)]
    assert status.state == "degraded" and "no answer to upcall/show within 0.25 s" in (status.why or "")
    assert "stopped (SIGSTOP)" in (status.why or "")


def test_threads_whose_names_were_too_long_are_not_counted_as_absent(source: flows.OvsFlows, host: SwitchHost) -> None:
    host.files[f"/proc/{PID}/task/{PID + 9}/comm"] = "ovs-vswitchd\n"  # the writer of logs never has a name
    (row,) = rows(read(source), "vswitchd")
    assert (row.gauges["handlers"], row.gauges["revalidators"]) == (3, 2)
    host.files[f"/proc/{PID}/task/{PID + 10}/comm"] = "handler9999\n"
    host.files[f"/proc/{PID}/task/{PID + 11}/comm"] = "ovs-vswitchd\n"  # it wanted to be revalidator10000
    (row,) = rows(read(source), "vswitchd")
    assert (row.gauges["handlers"], row.gauges["revalidators"]) == (None, None)


def ledger(frames: list[AnyFrame]) -> dict[str, tuple[int, int]]:
    (cost,) = [frame for frame in frames if isinstance(frame, Cost)]
    return {name: (count.delta, count.total) for name, count in cost.ledger.items()}


@pytest.mark.proves("ovs_flows", "tables.datapaths.{hits,misses,lost}")
def test_counters_that_somebody_clears_are_a_lower_bound(source: flows.OvsFlows, host: SwitchHost) -> None:
    """pmd-stats-clear sets back all three at once, one of which may be above its last value again."""
    read(source)
    host.netdev = of_netdev(1499, 31, 4, 70)
    assert not [frame for frame in read(source) if isinstance(frame, Cost)]
    host.netdev = of_netdev(2000, 1, 0, 70)
    frames = read(source)
    (in_user_space,) = rows(frames, "datapaths")
    assert {name: count.delta for name, count in in_user_space.counts.items()} == {"hits": 2000, "misses": 1, "lost": 0}
    assert ledger(frames) == {"set_back": (1, 1)}
    assert ledger(read(source)) == {"set_back": (0, 1)}, "the rates of an interval without a clear are exact"


@pytest.mark.proves("ovs_flows", "tables.vswitchd.{silent,answered_ago_s}")
def test_one_late_answer_is_not_a_process_that_is_silent(
    source: flows.OvsFlows, host: SwitchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("netconsole_collector.sources.ovs.vswitchd.time.monotonic", lambda: now_s)
    host.files[f"/proc/{PID}/stat"] = f"{PID} (ovs-vswitchd) R 1 1"
    read(source)
    host.is_silent = True
    states = []
    for _ in range(4):
        now_s += 1.0
        (row,) = rows(read(source), "vswitchd")
        states.append((row.gauges["silent"], row.gauges["answer_ms"], row.gauges["answered_ago_s"]))
    assert states == [(None, None, 1), (1, None, 2), (1, None, 3), (1, None, 4)]
    host.is_silent = False
    now_s += 5.0
    (row,) = rows(read(source), "vswitchd")
    assert (row.gauges["silent"], row.gauges["answered_ago_s"]) == (0, None)


@pytest.mark.parametrize(
    ("ran_ms", "waited_ms", "silent"),
    [
        (5, 400, None),  # its CPU was late
        (800, 400, 1),  # it has its CPU, and is busy
        (5, 50, 1),
    ],
)
def test_a_process_that_waits_for_a_cpu_is_not_silent(
    source: flows.OvsFlows,
    host: SwitchHost,
    monkeypatch: pytest.MonkeyPatch,
    ran_ms: int,
    waited_ms: int,
    silent: int | None,
) -> None:
    """It was seen in the lab, whose CPUs are slow."""
    now_s = 1000.0
    monkeypatch.setattr("netconsole_collector.sources.ovs.vswitchd.time.monotonic", lambda: now_s)
    host.files[f"/proc/{PID}/stat"] = f"{PID} (ovs-vswitchd) R 1 1"
    read(source)
    host.is_silent = True
    for second in range(1, 5):
        now_s += 1.0
        host.files[f"/proc/{PID}/task/{PID}/schedstat"] = f"{second * ran_ms}000000 {second * waited_ms}000000 7\n"
        (row,) = rows(read(source), "vswitchd")
    assert (row.gauges["silent"], row.gauges["answered_ago_s"]) == (silent, 4)


@pytest.mark.parametrize("has_kernel", [True, False])
def test_of_a_process_that_has_ended_nothing_is_known_but_that(
    source: flows.OvsFlows, host: SwitchHost, has_kernel: bool
) -> None:
    if not has_kernel:
        host.messages[16] = []
    read(source)
    del host.files[f"/proc/{PID}/comm"]
    frames = read(source)
    (row,) = rows(frames, "vswitchd")
    assert row.labels == {"process": "ovs-vswitchd/4711"} and not row.counts
    gauges = {name: value for name, value in row.gauges.items() if name not in ("ended", "answered_ago_s")}
    assert row.gauges["ended"] == 1 and set(gauges.values()) == {None}
    for table in ("datapaths", "ports"):
        of_it = [one for one in rows(frames, table) if one.labels["datapath"] == NETDEV]
        assert of_it and not any(one.counts for one in of_it) and not any(of_it[0].gauges.values()), table
    (status,) = [frame for frame in frames if isinstance(frame, Status)]
    assert (status.state, (status.why or "").endswith("ovs-vswitchd has ended")) == ("degraded", True)


def events(frames: list[AnyFrame]) -> list[Event]:
    return [frame for frame in frames if isinstance(frame, Event)]


def is_dump(asked: str) -> bool:
    return asked.startswith("dpctl/dump-flows")


@pytest.mark.proves("ovs_flows", "events.flow.{datapath,match,actions,packets,bytes}", "modes.{summary,details}")
def test_new_flows_are_events_of_mode_details(
    source: flows.OvsFlows, host: SwitchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("netconsole_collector.sources.ovs.flows.time.monotonic", lambda: now_s)
    assert not events(read(source)) and not any(map(is_dump, host.asked)), "summary asks for no flows"
    source.mode = "details"
    assert not events(read(source)), "what is there is not new"
    assert sum(map(is_dump, host.asked)) == 2, "each datapath once"
    host.dumped += NEW_FLOWS
    now_s += 4.9
    assert not events(read(source)) and sum(map(is_dump, host.asked)) == 2, "a dump holds the switch up"
    now_s += 0.1
    new = [(event.name, event.fields) for event in events(read(source))]
    of_both = {"datapath": "ovs-system", "match": "in_port(va),ipv4(src=10.0.0.{})"}
    shown = ((2, "ct(commit),vc", 17, 1870), (3, "drop", 18, 1980))
    assert new == [
        (
            "flow",
            {**of_both, "match": of_both["match"].format(end), "actions": actions, "packets": packets, "bytes": size},
        )
        for end, actions, packets, size in shown
    ]
    now_s += 5.0
    assert not events(read(source)), "they are known now"


@pytest.mark.proves("ovs_flows", "events.flow.{match,actions}")
def test_of_a_large_table_no_flow_is_read_and_of_a_storm_only_some_are_told(
    source: flows.OvsFlows, host: SwitchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "DUMP_EVERY_S", 0.0)
    source.mode = "details"
    host.messages[DATAPATH_FAMILY] = [datapath((0, 0, 0, 5001), (0, 0, 0))]
    read(source)
    assert [asked for asked in host.asked if is_dump(asked)] == [f"dpctl/dump-flows --names netdev@{NETDEV}"]
    host.messages[DATAPATH_FAMILY] = [datapath((0, 0, 0, 5000), (0, 0, 0))]
    read(source)
    host.dumped += [FLOW.format(number, 0, 0) + "actions:" + "x" * 257 for number in range(2, 53)]
    told = [event.fields for event in events(read(source))]
    assert len(told) == 50
    assert {len(str(fields["actions"])) for fields in told} == {256}
    assert told[-1]["match"] == "in_port(va),ipv4(src=10.0.0.51)"
