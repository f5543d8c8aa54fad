"""What Open vSwitch says, read: control socket, its texts, and the netlink messages of its kernel module."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.ovs.datapaths import _datapath, _port
from netconsole_collector.sources.ovs.unixctl import Refused, Unixctl, UnixctlError, directories, running_vswitchd
from netconsole_collector.sources.ovs.vswitchd import bridges_in, flows_in, members_in, revalidation_in, userspace_in

ANSWERS = Path(__file__).parents[4] / "support/data/ovs-pmd"
"""Of ovs-vswitchd 3.1, 3.5 and 4.0 with a datapath in user space, as ovs-appctl printed them."""
UPCALL_SHOW = """netdev@ovs-netdev:
  flows         : (current 0) (avg 0) (max 0) (limit 10000)
  dump duration : 1ms
  ufid enabled : true

  5: (keys 0)
system@ovs-system:
  flows         : (current 8412) (avg 8100) (max 9000) (limit 200000)
  offloaded flows : 12
  dump duration : 37ms
  ufid enabled : true

  23: (keys 4206)
"""
DPCTL_SHOW = """netdev@ovs-netdev:
  lookups: hit:499 missed:1 lost:0
  flows: 1
  port 0: ovs-netdev (tap)
    RX packets:0 errors:0 dropped:0 overruns:0 frame:0
    TX packets:0 errors:0 dropped:7 aborted:0 carrier:0
    collisions:0
    RX bytes:0  TX bytes:0
  port 2: veth-a
    RX packets:500 errors:1 dropped:2 overruns:0 frame:0
    TX packets:3 errors:4 dropped:5 aborted:0 carrier:0
    collisions:0
    RX bytes:53000 (51.8 KiB)  TX bytes:6
  port 4: vx1 (vxlan: packet_type=ptap)
    RX packets:9 errors:0 dropped:0 overruns:0 frame:0
    TX packets:0 errors:0 dropped:0 aborted:0 carrier:0
    collisions:0
    RX bytes:1  TX bytes:0
  port 5: dpdk0 (dpdk: configured_rx_queues=2, configured_rxq_descriptors=2048, mtu=1500, requested_rx_queues=2)
    RX packets:71 errors:1 dropped:3 overruns:? frame:?
    TX packets:72 errors:2 dropped:4 aborted:? carrier:?
    collisions:?
    RX bytes:4260 (4.2 KiB)  TX bytes:4320 (4.2 KiB)
  port 6: vhost-user-1 (dpdkvhostuserclient: configured_rx_queues=1, mtu=1500, requested_tx_queues=1)
    RX packets:9 errors:? dropped:3 overruns:? frame:?
    TX packets:8 errors:? dropped:4 aborted:? carrier:?
    collisions:?
    RX bytes:900  TX bytes:800
"""
FLOWS = """flow-dump from the main thread:
recirc_id(0),in_port(vnet0),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b),eth_type(0x0800),\
ipv4(frag=no), packets:499, bytes:52894, used:1.041s, actions:vnet1,ct(commit)
recirc_id(0x2),in_port(vnet0),eth_type(0x0806),arp(sip=10.0.0.1), packets:0, bytes:0, used:never, actions:drop
"""


def serve(path: Path, answer: Callable[[dict[str, object]], bytes]) -> threading.Thread:
    """A server that answers one request after another on one connection, and ends with it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def run() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            while request := connection.recv(65536):
                for part in answer(json.loads(request)).split(b"|"):
                    connection.sendall(part)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def reply(request: dict[str, object], **content: object) -> bytes:
    return json.dumps({"id": request["id"], "result": None, "error": None, **content}).encode()


def test_questions_and_answers(tmp_path: Path) -> None:
    def answer(request: dict[str, object]) -> bytes:
        if request["method"] == "nonsense":
            return reply(request, error='"nonsense" is not a valid command')
        # In two parts, the first of which ends with a brace.
        return reply(request, result=f"{{{request['params']}}} and more").replace(b"}", b"}|", 1)

    thread = serve(tmp_path / "ctl", answer)
    unixctl = Unixctl(str(tmp_path / "ctl"))
    assert unixctl.ask("dpctl/show", "-s") == "{['-s']} and more"
    with pytest.raises(Refused, match=r"nonsense: .*not a valid command"):
        unixctl.ask("nonsense")
    assert unixctl.ask("again") == "{[]} and more"
    unixctl.close()
    thread.join(10)


@pytest.mark.parametrize("said", [b"[]}", b'{"id": 77}', b"\xff}"])
def test_what_is_no_answer_is_refused(tmp_path: Path, said: bytes) -> None:
    thread = serve(tmp_path / "ctl", lambda request: said)
    unixctl = Unixctl(str(tmp_path / "ctl"))
    with pytest.raises(UnixctlError, match="upcall/show"):
        unixctl.ask("upcall/show", timeout_s=0.05)
    unixctl.close()
    thread.join(10)


def test_without_a_server_the_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnixctlError, match=r"nobody\.ctl: No such file"):
        Unixctl(str(tmp_path / "nobody.ctl"))


def test_the_directory_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OVS_RUNDIR", raising=False)
    assert directories()[0] == "/run/openvswitch"
    monkeypatch.setenv("OVS_RUNDIR", "/elsewhere")
    assert directories() == ["/elsewhere"]


def test_revalidation_of_each_datapath() -> None:
    found = revalidation_in(UPCALL_SHOW)
    assert {name: (one.dump_ms, one.flow_limit) for name, one in found.items()} == {
        "netdev@ovs-netdev": (1, 10000),
        "system@ovs-system": (37, 200000),
    }


def test_ports_are_told_by_bridge() -> None:
    text = """system@ovs-system: hit:5 missed:1
  br-int:
    br-int 65534/1: (internal)
    patch-tun 2/none: (patch: peer=patch-int)
    vnet0 3/4: (system)
  br-tun:
    vxlan-1 2/5: (vxlan: key=flow, remote_ip=192.0.2.1)
netdev@ovs-netdev: hit:0 missed:0
  br-dpdk:
    dpdk0 1/1: (dpdk: configured_rx_queues=2, mtu=1500)
"""
    of_kernel = {"br-int": "br-int", "patch-tun": "br-int", "vnet0": "br-int", "vxlan-1": "br-tun"}
    assert bridges_in(text) == {
        **{("ovs-system", port): bridge for port, bridge in of_kernel.items()},
        ("ovs-netdev", "dpdk0"): "br-dpdk",
    }
    assert bridges_in("nothing of the kind\n    vnet3 5/3:\n") == {}
    assert [one.number for one in members_in(text)] == ["65534", "2", "3", "2", "1"]


def test_names_may_hold_spaces_colons_and_brackets() -> None:
    text = """netdev@my dp: hit:5 missed:1
  br 1:
    br 1 65534/1: (tap)
    gre:to (b) 2/none: (gre: remote_ip=192.0.2.1)
  a: b:
    n0 7/2: (dpdk: mtu=1500)
"""
    of_first = {("my dp", "br 1"): "br 1", ("my dp", "gre:to (b)"): "br 1"}
    assert bridges_in(text) == {**of_first, ("my dp", "n0"): "a: b"}
    assert list(revalidation_in(UPCALL_SHOW.replace("ovs-netdev", "my dp: x"))) == [
        "netdev@my dp: x",
        "system@ovs-system",
    ]
    shown = DPCTL_SHOW.replace("vx1 (vxlan", "my (old) tunnel (vxlan").replace("veth-a", "ve(th)")
    assert [(port.name, port.type) for port in userspace_in("x", shown).ports][1:3] == [
        ("ve(th)", "netdev"),
        ("my (old) tunnel", "vxlan"),
    ]


@pytest.mark.parametrize(
    "path", sorted(ANSWERS.glob("*/*.dpctl-show-s.txt")), ids=lambda one: f"{one.parent.name}-{one.name}"
)
def test_no_port_of_a_real_answer_is_left_out(path: Path) -> None:
    """Where ovs-vswitchd cannot count a port, its complaint has no line end: the next port is glued to it."""
    text = path.read_text()
    found = userspace_in("ovs-netdev", text)
    expected = re.findall(r"port \d+: (\S+) \((\w+)|port \d+: (\S+)$", text, re.M)
    assert [(port.name, port.type) for port in found.ports] == [
        (name or plain, kind or "netdev") for name, kind, plain in expected
    ]
    uncounted = [port.name for port in found.ports if set(port.counts) == {None}]
    assert len(uncounted) == text.count("could not retrieve stats")
    received = [int(one) for one in re.findall(r"RX packets:(\d+)", text)]
    assert [port.counts[0] for port in found.ports if port.counts[0] is not None] == received
    assert f"hit:{found.hits} missed:{found.misses} lost:{found.lost}" in text


@pytest.mark.parametrize(
    "path", sorted(ANSWERS.glob("*/*.dpif-show.txt")), ids=lambda one: f"{one.parent.name}-{one.name}"
)
def test_every_port_of_a_real_answer_has_its_bridge(path: Path) -> None:
    ports = re.findall(r"^    (\S+) \d+/\d+:", path.read_text(), re.M)
    assert bridges_in(path.read_text()) == {("ovs-netdev", port): "br0" for port in ports}


@pytest.mark.parametrize(
    "path", sorted(ANSWERS.glob("*/*.upcall-show.txt")), ids=lambda one: f"{one.parent.name}-{one.name}"
)
def test_every_datapath_of_a_real_answer_has_its_limit(path: Path) -> None:
    limit = re.search(r"\(limit (\d+)\)", path.read_text())
    found = {name: one.flow_limit for name, one in revalidation_in(path.read_text()).items()}
    assert found == ({"netdev@ovs-netdev": int(limit[1])} if limit else {})


@pytest.mark.parametrize(("name", "comm"), [("ovs-vswitchd", "ovs-vswitchd"), ("ovs-vswitchd-dpdk", "ovs-vswitchd-dp")])
def test_a_build_with_dpdk_is_found_by_its_own_pidfile(tmp_path: Path, name: str, comm: str) -> None:
    (tmp_path / f"{name}.pid").write_text("4711\n")
    files = {"/proc/4711/comm": f"{comm}\n".encode()}

    class Host(Here):
        def read(self, path: str, limit: int = 0, from_end: bool = False, /) -> bytes:
            return files.get(path) or super().read(path, limit, from_end)

    found = running_vswitchd(["/nowhere", str(tmp_path)], Host())
    assert found == (4711, f"{tmp_path}/{name}.4711.ctl")
    files["/proc/4711/comm"] = b"bash\n"
    assert running_vswitchd([str(tmp_path)], Host()) is None, "the number belongs to another program now"


def test_a_datapath_in_user_space() -> None:
    found = userspace_in("ovs-netdev", DPCTL_SHOW)
    assert (found.hits, found.misses, found.lost, found.flows) == (499, 1, 0, 1)
    assert [(port.name, port.type) for port in found.ports] == [
        ("ovs-netdev", "tap"),
        ("veth-a", "netdev"),
        ("vx1", "vxlan"),
        ("dpdk0", "dpdk"),
        ("vhost-user-1", "dpdkvhostuserclient"),
    ]
    assert found.ports[1].counts == (500, 3, 53000, 6, 1, 4, 2, 5)
    of_dpdk, of_guest = found.ports[3:]
    assert of_dpdk.counts == (71, 72, 4260, 4320, 1, 2, 3, 4)
    assert of_guest.counts == (9, 8, 900, 800, None, None, 3, 4), "what it does not count is not zero"
    with pytest.raises(UnixctlError, match="cannot read"):
        userspace_in("x", "nothing of the kind")


def test_flows_without_what_every_flow_has() -> None:
    first, second = flows_in(FLOWS)
    assert first.match == "in_port(vnet0),eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b),ipv4"
    assert (first.actions, first.packets, first.bytes) == ("vnet1,ct(commit)", 499, 52894)
    assert (second.match, second.actions) == ("recirc_id(0x2),in_port(vnet0),arp(sip=10.0.0.1)", "drop")


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(index: int, *attributes: bytes) -> memoryview:
    return memoryview(struct.pack("=BBxxi", 1, 2, index) + b"".join(attributes))


def u32(*numbers: int) -> bytes:
    return struct.pack(f"={len(numbers)}I", *numbers)


NAME = attribute(1, b"ovs-system\0")
STATS = attribute(3, struct.pack("=4Q", 1000, 20, 3, 17))
MEGAFLOWS = attribute(4, struct.pack("=QI4xQQ", 5000, 4, 900, 0))


@pytest.mark.parametrize(
    ("pids", "handlers"), [(attribute(8, u32(11, 12, 11, 0)), 2), (attribute(8, u32(0)), 0), (b"", None)]
)
def test_a_datapath_that_dispatches_by_cpu(pids: bytes, handlers: int) -> None:
    found = _datapath(message(7, NAME, STATS, MEGAFLOWS, attribute(5, u32(1 << 3)), attribute(7, u32(256)), pids))
    assert (found.ifindex, found.name) == (7, "ovs-system")
    assert (found.hits, found.misses, found.lost, found.flows) == (1000, 20, 3, 17)
    assert (found.masks, found.mask_hits, found.cache_hits, found.cache_size) == (4, 5000, 900, 256)
    assert (found.per_cpu, found.sockets) == (True, handlers)


def test_what_an_older_kernel_does_not_tell_is_unknown() -> None:
    found = _datapath(message(7, NAME, STATS, MEGAFLOWS, attribute(5, u32(1))))
    assert (found.cache_hits, found.cache_size, found.sockets) == (None, None, None)


def test_a_port_with_its_own_handlers() -> None:
    counts = tuple(range(8))
    body = message(
        7, attribute(1, u32(3)), attribute(2, u32(4)), attribute(3, b"vx\xff\0"),
        attribute(5, u32(11, 12)), attribute(6, struct.pack("=8Q", *counts)),
    )  # fmt: skip
    found = _port(body)
    assert (found.number, found.name, found.type, found.sockets) == (3, r"vx\xff", "vxlan", 2)
    assert found.counts == counts


@pytest.mark.proves("ovs_flows", "tables.vswitchd.answer_ms")
def test_the_time_of_an_answer_is_that_of_who_answers(tmp_path: Path) -> None:
    """It takes at least what the other side takes by its own clock, and at most what the caller waits."""
    waited_s: list[float] = []

    def answer(request: dict[str, object]) -> bytes:
        began = time.monotonic()
        time.sleep(0.2 if request["method"] == "slow" else 0.0)
        waited_s.append(time.monotonic() - began)
        return reply(request, result="")

    thread = serve(tmp_path / "ctl", answer)
    unixctl = Unixctl(str(tmp_path / "ctl"))
    for command in ("quick", "slow"):
        began = time.monotonic()
        unixctl.ask(command, timeout_s=60.0)
        answer_ms, whole_ms = unixctl.took_s * 1e3, (time.monotonic() - began) * 1e3
        assert waited_s[-1] * 1e3 <= answer_ms <= whole_ms
    unixctl.close()
    thread.join(10)
