"""Sources and facts of a far host: a program in namespaces of its own tells of those, and of nothing else."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from netconsole.base.fact_keys import parts
from netconsole.host import door
from netconsole.probes.catalogue import shipped
from netconsole.sources.facts import collect
from netconsole.telemetry.frames import Row, Table
from tests.live.probes.test_nic_counters import DROP_ALL
from tests.support.far_host import NearHost
from tests.support.live.collector_driver import PYTHON, Driver, of
from tests.support.live.network import SEND_FRAMES, run

SOME = 300
SET_UP = """
set -e
hostname farhost
mount -t proc proc /proc
mount -t tmpfs none /run
mkdir /run/netns /run/openvswitch
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add fareth type veth peer name farpeer
ip link set fareth up
ip link set farpeer up
tc qdisc add dev farpeer root tbf rate 5mbit burst 10kb limit 20kb
tc qdisc add dev lo root tbf rate 40gbit burst 10mb latency 10ms
ip netns add inner
ip -n inner link add innereth type bridge
bash -c 'exec -a qemu-system-x86_64 bash -c "sleep 600; :" -name guest=far-vm' &
exec "$1" -c "$2"
"""
VSWITCHD = """
import json, os, signal, socket, sys, threading
signal.alarm(600)
shared = []
for _ in range(2):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("127.0.0.1", 7654))
    shared.append(one)
open("/proc/self/comm", "w").write("ovs-vswitchd")
where = "/run/openvswitch/ovs-vswitchd"
open(where + ".pid", "w").write(str(os.getpid()))
listener = socket.socket(socket.AF_UNIX)
listener.bind("%s.%d.ctl" % (where, os.getpid()))
listener.listen()
print("ready", flush=True)
UPCALLS = '''netdev@far-dp:
  flows         : (current 0) (avg 0) (max 0) (limit 777)
  dump duration : 3ms
'''
DATAPATH = '''far-dp:
  lookups: hit:5 missed:6 lost:7
  flows: 8
'''
PERFORMANCE = '''
Time: 05:30:21.380
Measurement duration: 56.372 s

pmd thread numa_id 1 core_id 77:

  Iterations:            195719624  (0.29 us/it)
  Rx packets:                    0
  Tx packets:                    0
'''
def serve(connection):
    while True:
        try:
            asked = connection.recv(65536)
            if not asked:
                break
            asked = json.loads(asked)
            said = {
                "upcall/show": UPCALLS, "dpctl/show": DATAPATH, "coverage/read-counter": "4",
                "dpif-netdev/pmd-perf-show": PERFORMANCE,
            }.get(asked["method"])
            answer = {"id": asked["id"], "result": said, "error": None if said else "no"}
            connection.sendall(json.dumps(answer).encode())
        except OSError:
            break
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class Far:
    """A host of its own, in namespaces of this one."""

    def __init__(self) -> None:
        words = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        self._process = subprocess.Popen(
            [*words, "bash", "-c", SET_UP, "far", "python3", VSWITCHD],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout and self._process.stdout.readline() == "ready\n"
        (child,) = run("pgrep", "-P", str(self._process.pid)).split()
        self.enter = ["nsenter", "-t", child, "--net", "--mount", "--pid", "--uts", "--"]
        self.host = NearHost(self.enter, "/usr/bin/python3")

    def close(self) -> None:
        self.host.close()
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.close()


@contextlib.contextmanager
def reading(far: Far, name: str) -> Iterator[Driver]:
    """The collector of the far host, which reads this source."""
    with Driver(PYTHON, "--compiled-elsewhere", before=far.enter) as driver:
        assert driver.ask(command="interval", ms=200).ok
        assert driver.ask(command="load", probe=name, spec=shipped(name).raw, source="").ok
        assert driver.ask(command="read_whole").ok
        yield driver


def links_of(driver: Driver, is_so: Callable[[dict[str, Row]], bool]) -> dict[str, Row]:
    """By device: the first rows of which that is true."""
    table = driver.until(Table, lambda table: table.name == "links" and is_so(by_device(table)))
    return by_device(table)


def by_device(table: Table) -> dict[str, Row]:
    return {str(row.labels["device"]): row for row in table.rows}


def namespaces_of(table: Table) -> set[str]:
    return {str(row.labels["netns"]) for row in table.rows}


def test_links_are_those_of_the_far_host_and_counted_exactly(far: Far) -> None:
    with reading(far, "link_rates") as driver:
        first = next(one for one in of(Table, driver.seen, "link_rates") if one.name == "links")
        assert {(row.labels["netns"], row.labels["device"]) for row in first.rows} == {
            ("host", "lo"), ("host", "fareth"), ("host", "farpeer"), ("inner", "lo"), ("inner", "innereth"),
        }  # fmt: skip
        assert by_device(first)["farpeer"].labels["shaper"] == "tbf of 5 Mbit/s"
        frames = "".join(f"{'ff' * 6}0200000000aa88b5{'00' * 46}\n" for _ in range(SOME))
        run(*far.enter, "python3", "-c", SEND_FRAMES, "fareth", input=frames)
        moved = links_of(driver, lambda rows: "fareth" in rows and rows["fareth"].counts["tx_packets"].total >= SOME)
        assert moved["fareth"].counts["tx_packets"].total == SOME
        assert moved["farpeer"].counts["rx_packets"].total == SOME
        run(*far.enter, "ip", "link", "set", "farpeer", "down")
        try:
            lost = links_of(driver, lambda rows: "fareth" in rows and rows["fareth"].gauges["no_carrier"] == 1)
            assert lost["fareth"].gauges["peer_down"] == 1
        finally:
            run(*far.enter, "ip", "link", "set", "farpeer", "up")


def test_a_namespace_that_goes_there_is_let_go_at_once(far: Far) -> None:
    run(*far.enter, "ip", "netns", "add", "short")
    with reading(far, "link_rates") as driver:
        first = next(one for one in of(Table, driver.seen, "link_rates") if one.name == "links")
        assert namespaces_of(first) == {"host", "inner", "short"}
        assert driver.ask(command="interval", ms=3600 * 1000).ok
        # A device that moves into it comes back to nobody: it is destroyed with the namespace, at once.
        run(*far.enter, "ip", "link", "add", "goes", "type", "veth", "peer", "name", "inside", "netns", "short")
        run(*far.enter, "ip", "netns", "delete", "short")
        while "goes" in run(*far.enter, "ip", "-o", "link"):
            pass  # nothing is read meanwhile: who holds it has to hear of it
        assert driver.ask(command="interval", ms=100).ok
        whole = driver.until(Table, lambda table: table.name == "links" and table.full)
        assert namespaces_of(whole) == {"host", "inner"}


def test_sockets_and_vms_are_those_of_the_far_host(far: Far) -> None:
    with Driver(PYTHON, "--compiled-elsewhere", before=far.enter) as driver:
        for name in ("socket_groups", "vm_states"):
            assert driver.ask(command="load", probe=name, spec=shipped(name).raw, source="").ok
        driver.interval()
        sockets, machines = (of(Table, driver.seen, name)[0] for name in ("socket_groups", "vm_states"))
    assert [(row.labels["port"], row.labels["process"]) for row in sockets.rows] == [(7654, "ovs-vswitchd/1")] * 2
    assert [row.labels["vm"] for row in machines.rows] == ["far-vm"]


def test_protocols_count_in_the_namespaces_of_the_far_host(far: Far) -> None:
    with reading(far, "protocol_counters") as driver:
        run(*far.enter, "python3", "-c", "import socket; socket.socket(2, 2).sendto(b'', ('127.0.0.1', 9))")
        found = driver.until(Table, lambda table: table.name == "counters" and bool(table.rows)).rows
    assert {row.labels["netns"] for row in found} == {"host"}
    assert {row.labels["counter"]: row.counts["count"].total > 0 for row in found}["UdpNoPorts"]


def test_nics_count_on_the_far_host(far: Far) -> None:
    words = [*far.enter, "python3", "-c", DROP_ALL, "farpeer"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dropping:
        assert dropping.stdout
        if dropping.stdout.readline() != "ready\n":
            pytest.skip("cannot run here: no XDP program could be attached")
        with reading(far, "nic_counters") as driver:
            frames = "".join(f"{'ff' * 6}0200000000aa88b5{'00' * 46}\n" for _ in range(SOME))
            run(*far.enter, "python3", "-c", SEND_FRAMES, "fareth", input=frames)
            found = driver.until(Table, lambda table: table.name == "losses" and bool(table.rows)).rows
        dropping.communicate()
    (row,) = found
    assert (row.labels["device"], row.labels["counter"]) == ("farpeer", "rx_queue_N_xdp_drops")
    assert row.counts["count"].delta == SOME


def test_open_vswitch_is_asked_through_its_far_control_socket(far: Far) -> None:
    with reading(far, "ovs_flows") as driver:
        found = {table.name: table.rows for table in of(Table, driver.seen, "ovs_flows")}
    (datapath,) = found["datapaths"]
    assert datapath.labels == {"datapath": "far-dp", "kind": "user space"}
    assert (datapath.gauges["flow_limit"], datapath.gauges["flows"], datapath.gauges["dump_ms"]) == (777, 8, 3)
    (process,) = found["vswitchd"]
    assert process.labels["process"] == "ovs-vswitchd/1" and process.gauges["silent"] == 0
    assert (process.gauges["answer_ms"] or 0) > 0


def test_pmd_threads_are_those_of_the_far_host(far: Far) -> None:
    with reading(far, "ovs_pmd") as driver:
        (thread,) = driver.until(Table, lambda table: table.name == "threads" and bool(table.rows)).rows
    assert thread.labels == {"datapath": "far-dp", "numa": 1, "core": 77}


def test_facts_and_identity_are_those_of_the_far_host(far: Far) -> None:
    found = collect(far.host)
    devices = {where[1] for key in found if (where := parts(key))[0] == "nic"}
    assert devices == {"lo", "fareth", "farpeer"}
    assert str(found["tc/farpeer/qdisc/root"].value).startswith("tbf rate=625000")
    assert str(found["tc/lo/qdisc/root"].value).endswith(f" rate64={40_000_000_000 // 8}")  # 32 bits end at 34 Gbit/s
    assert (found["vm_count"].value == 1 and found["vm/far-vm/pid"].value == 2) or found["vm/far-vm/pid"].value
    assert [fact.value for key, fact in found.items() if key.endswith("/name") and key.startswith("netns/")] == [
        "inner"
    ]
    assert found["collected_in_ms"].value is not None
    here = door.describe(far.host)
    assert here.name == "farhost" and here.boot_id and here.cpus >= 1
    now = door.ask(far.host, "machine", None, door.MachineNow)
    assert 0 < now.busy_ms < now.all_ms
