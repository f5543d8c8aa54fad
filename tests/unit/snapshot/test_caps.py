"""What caps a virtual machine: one cap at a time, each named first, with the figures that exclude the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from netconsole.probes import catalogue
from netconsole.report.blocks import TextTable
from netconsole.report.formats.to_text import to_text
from netconsole.report.of_cpus import cpu_map, cpu_table
from netconsole.report.of_vm import of_vm, page
from netconsole.snapshot.caps import WAITS_PCT, caps, verdict
from netconsole.snapshot.document import SCHEMA, Snapshot
from netconsole.snapshot.machine_figures import MachineFigures, machines
from netconsole_collector.names.fact_keys import key

SECONDS = 10.0
ALL = "matchall protocol=all actions=police"
SOME = "flower protocol=ip actions=police"
CORE = int(SECONDS * 1e9)
FREE: dict[str, Any] = {
    "schema": SCHEMA,
    "created": "2026-11-28T01:02:03Z",
    "netconsole": "0.1.0",
    "host": {"name": "hv1", "kernel": "6.1"},
    "profile": {"name": "summary"},
    "duration_s": SECONDS,
    "probes": {
        "vm_states": {
            "status": "attached",
            "tables": {
                "machines": [{"vm": "web", "process": "qemu/7", "cpu_ns": CORE, "paused": 0, "stopped": 0}],
                "memory": [{"vm": "web", "process": "qemu/7", "faults": 9, "used": 3 << 29, "limit": 1 << 31}],
            },
        },
        "thread_waits": {
            "status": "attached",
            "tables": {
                "threads": [
                    {"vm": "web", "role": "vCPU 0", "tid": 71, "ran_ns": CORE // 2, "waited_ns": CORE // 100, "cpu": 1},
                    {"vm": "web", "role": "vhost worker", "tid": 72, "ran_ns": CORE // 4, "waited_ns": 0, "cpu": 2},
                    {"vm": "db", "role": "vCPU 0", "tid": 81, "ran_ns": CORE, "waited_ns": CORE // 2, "cpu": 3},
                ]
            },
        },
        "io_limits": {
            "status": "attached",
            "tables": {
                "limits": [
                    {"vm": "web", "device": "sdb", "what": "reads", "passed": 100, "limit_per_s": 20},
                    {"vm": "db", "device": "sdb", "what": "reads", "passed": 200, "limit_per_s": 20},
                ]
            },
        },
        "tun_queues": {
            "status": "attached",
            "tables": {
                "queues": [
                    {"vm": "web", "device": "vnet7", "queue": 0, "packets": 60_000, "ring_full": 0},
                    {"vm": "web", "device": "vnet7", "queue": 1, "packets": 40_000, "ring_full": 0},
                ]
            },
        },
        "link_rates": {
            "status": "attached",
            "tables": {
                "links": [
                    {
                        "device": "vnet7", "qdisc": "fq_codel", "tx_packets": 100_000, "tx_bytes": 140_000_000,
                        "rx_packets": 100_000, "rx_bytes": 140_000_000, "qdisc_drops": 0, "tx_drops": 0, "rx_drops": 0,
                    },
                    {"device": "eth0", "tx_packets": 9, "tx_bytes": 99, "qdisc_drops": 50_000},
                ]
            },
        },
        "ovs_pmd": {"status": "unsupported"},
        "ovs_drops": {"status": "unsupported"},
    },
    "incidents": [],
    "facts": {
        "vm/web/net/0/tap": {"value": "vnet7"},
        "vm/web/cpu_max": {"value": "max"},
        "tc/vnet7/qdisc/root": {"value": "fq_codel"},
        "nic/vnet7/offload/tx-tcp-segmentation": {"value": "on"},
    },
}  # fmt: skip


def table(document: dict[str, Any], probe: str, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = document["probes"][probe]["tables"][name]
    return rows


def snapshot(change: Callable[[dict[str, Any]], Any] = lambda document: None) -> Snapshot:
    document = copy.deepcopy(FREE)
    change(document)
    return msgspec.convert(document, Snapshot)


def incident(**more: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document["incidents"].append({"level": "!!", "unit": "packets", **more})


def waits(document: dict[str, Any], waited_ns: int) -> None:
    """A thread of it waits for a CPU, of which there is an incident."""
    table(document, "thread_waits", "threads")[0].update(waited_ns=waited_ns)
    incident(cause="cpu-wait", what="web: stress (9) takes 50 % of CPU 1: …", where={"vm": "web"})(document)


def pmd(document: dict[str, Any], busy_pct: float, counts: dict[str, int] | None = None) -> None:
    """It has a port of vhost-user, which has lost so much."""
    document["facts"]["vm/web/net/1/socket"] = {"value": "/run/vhost-web"}
    document["facts"]["ovs/interface/dpdkvhost1/options/vhost-server-path"] = {"value": "/run/vhost-web"}
    document["probes"]["ovs_pmd"] = {
        "status": "attached",
        "tables": {
            "rxqs": [{"port": "dpdkvhost1", "queue": 0, "core": 3}, {"port": "dpdk0", "queue": 0, "core": 5}],
            "ports": [{"port": "dpdkvhost1", **(counts or {})}, {"port": "dpdk0", "tx_full": 9000, "rx_policed": 9000}],
            "threads": [{"core": 3, "busy_pct": busy_pct}, {"core": 5, "busy_pct": 100.0}],
        },
    }


def test_nothing_caps_a_machine_that_has_room_and_it_says_where_to_look() -> None:
    one = MachineFigures(snapshot(), "web")
    assert one.taps == ["vnet7"]
    found = caps(one)
    assert [cap.state for cap in found] == ["free"] * len(found), found
    assert verdict(found).text.startswith("nothing here caps it: look at who sends the load")
    said = {cap.name: cap.text for cap in found}
    assert said["whether it runs"] == "it runs: QEMU and its guest use 100 % of a core"
    assert said["waits for a CPU"] == "no thread of it waits long for a CPU: vCPU 0 most, 1 % of the time"
    assert said["the vhost worker"] == "its vhost worker uses 25 % of a core"
    assert said["how packets spread over its queues"].endswith("carries 60 % of 10.0k packets/s")


def test_the_page_of_a_machine_has_the_indices_of_its_rings_and_the_flows_that_fill_them() -> None:
    def change(document: dict[str, Any]) -> None:
        ring = {"avail_idx": 9, "taken_idx": 9, "used_idx": 9, "size_buffers": 256, "has_event": 0, "used_event": 0}
        place = {"vm": "web", "device": "vnet7", "queue": 0, "direction": "rx"}
        rows = [{**place, **ring, "avail_flags": 1}, {**place, "queue": 1}]
        document["probes"]["vhost_queues"] = {"status": "attached", "tables": {"queues": rows}}
        ends = [{"source": f"192.0.2.{one}", "target": "192.0.2.9", "protocol": "UDP"} for one in (1, 2, 1, 1)]
        flows = [{"device": "vnet7", "queue": 0, **one} for one in ends]
        document["probes"]["tun_queues"]["events"] = [*flows, {"device": "vnet8", "queue": 0, **ends[0]}]

    tables = {
        tuple(block.columns): block.rows
        for block in of_vm(snapshot(change), "web").blocks
        if isinstance(block, TextTable)
    }
    (ring,) = tables["device", "queue", "direction", "offered to", "taken to", "back to", "left", "the guest"]
    assert ring == ["vnet7", "0", "to the guest", "9", "9", "9", "0", "wants no interrupts (flag 1)"]
    assert tables["device", "queue", "of the queue's samples", "flow"] == [
        ["vnet7", "0", "75 %", "UDP 192.0.2.1 → 192.0.2.9"],
        ["vnet7", "0", "25 %", "UDP 192.0.2.2 → 192.0.2.9"],
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: table(d, "vm_states", "machines")[0].update(paused=1), "it is paused: QEMU runs none of its CPUs"),
        (lambda d: table(d, "vm_states", "machines")[0].update(stopped=1), "it is stopped: its QEMU process gets no"),
        (
            lambda d: table(d, "vm_states", "memory")[0].update(faults=1000),
            "its memory comes back from disk: 100 page faults/s; its control group uses 75 % of the memory that",
        ),
        (lambda d: waits(d, CORE // 4), "web: stress (9) takes 50 % of CPU 1"),
        (
            lambda d: d["facts"].update({"vm/web/cpu_max": {"value": "100000 100000"}}),
            "its control group may use 100 % of a core, and uses 100 %",
        ),
        (
            lambda d: table(d, "thread_waits", "threads")[1].update(ran_ns=int(0.97 * CORE)),
            "its vhost worker uses 97 % of a core: it can move no more packets",
        ),
        (lambda d: table(d, "thread_waits", "threads")[0].update(ran_ns=CORE), "its vCPU 0 uses 100 % of a core"),
        (lambda d: pmd(d, 99.0), "the PMD thread on core 3, which polls its port, is busy 99 % of its time"),
        (
            lambda d: pmd(d, 40.0, {"rx_policed": 30_000}),
            "Open vSwitch polices what dpdkvhost1 sends: 3.00k packets/s are over its rate",
        ),
        (
            lambda d: pmd(d, 40.0, {"tx_policed": 30_000}),
            "Open vSwitch polices what dpdkvhost1 receives: 3.00k packets/s are over its rate",
        ),
        (
            lambda d: pmd(d, 40.0, {"tx_full": 30_000}),
            "the queue of dpdkvhost1 is full (the guest does not keep up): 3.00k packets/s are lost",
        ),
        (
            incident(cause="ovs-meter", what="Open vSwitch: meter 7 of …", answer={"in_port": "vnet7"}),
            "Open vSwitch: meter 7 of",
        ),
        (
            incident(cause="pmd-late", what="vnet7: polled too late", evidence=[{
                "kind": "table", "probe": "ovs_pmd", "name": "ports", "labels": {"port": "vnet7"}}]),
            "vnet7: polled too late",
        ),
        (
            lambda d: table(d, "link_rates", "links")[0].update(
                qdisc="tbf", shaper="tbf of 120 Mbit/s", qdisc_rate=120e6
            ),
            "tbf of 120 Mbit/s at vnet7 lets no more through: 112Mbit/s of 120Mbit/s",
        ),
        (
            lambda d: table(d, "link_rates", "links")[0].update(qdisc_drops=30_000),
            "fq_codel at vnet7 lets no more through: 112Mbit/s, 3.00k packets/s are shed",
        ),
        (
            lambda d: d["facts"].update({"ovs/interface/vnet7/ingress_policing_rate": {"value": 120_000}}),
            "Open vSwitch polices vnet7 to 120Mbit/s; it sends 112Mbit/s",
        ),
        (
            incident(cause="tap-ring-full", what="web vnet7 q0: the ring is full", where={"device": "vnet7"}),
            "web vnet7 q0: the ring is full",
        ),
        (
            lambda d: table(d, "tun_queues", "queues")[1].update(packets=100),
            "queue 0 of 2 of vnet7 carries 99.8 % of 6.01k packets/s: one flow, or a guest that does not spread",
        ),
        (
            lambda d: (
                table(d, "tun_queues", "queues").pop(),
                d["facts"].update({"vm/web/net/0/queues": {"value": 4}}),
            ),
            "queue 0 of 4 of vnet7 carries 100 % of 6.00k packets/s: one flow, or a guest",
        ),
        (
            lambda d: d["facts"].update({"nic/vnet7/offload/tx-tcp-segmentation": {"value": "off"}}),
            "segmentation offload is off at vnet7: 10.0k packets/s of 1.40k bytes",
        ),
        (
            lambda d: table(d, "io_limits", "limits")[0].update(passed=185),
            "its control group limits its I/O on sdb (io.max): 18.5 of 20 reads per second",
        ),
        (
            lambda d: d["facts"].update({
                "vm/web/tcp/192.0.2.9:5201 from 40000/receiver_window_pct": {"value": 93.4},
                "vm/web/tcp/192.0.2.9:5201 from 40000/rtt_us": {"value": 20_000},
                "vm/web/tcp/192.0.2.9:5201 from 40001/send_buffer_pct": {"value": 12},
            }),
            "the receiver's window of 192.0.2.9:5201 from 40000 is full 93.4 % of the time that it sends"
            " (a round trip takes 20 ms)",
        ),
        (
            lambda d: d["facts"].update({"vm/web/tcp/192.0.2.9:5201 from 1/send_buffer_pct": {"value": 50}}),
            "the sender's buffer of 192.0.2.9:5201 from 1 is full 50 % of the time that it sends: make that",
        ),
        (
            incident(cause="firewall-drops", what="vnet7: nft rule …", where={"device": "vnet7"}),
            "vnet7: nft rule",
        ),
    ],
)  # fmt: skip
def test_what_caps_it_is_said_first(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    taken = snapshot(change)
    first = verdict(caps(MachineFigures(taken, "web")))
    assert first.state == "caps" and first.text.startswith(said), first
    lines = to_text(of_vm(taken, "web")).splitlines()
    assert lines[2].startswith(f"!! {said}"[:70]), lines[:4]


@pytest.mark.parametrize(
    "change",
    [
        incident(cause="cpu-wait", what="db: …", where={"vm": "db"}),
        incident(cause="tap-ring-full", what="db vnet8 q0: …", where={"device": "vnet8"}),
        incident(cause="cpu-wait", what="web: …", where={"vm": "web"}, ended="2026-11-28T01:02:02Z"),
        lambda d: pmd(d, 40.0),
        incident(cause="ovs-meter", what="Open vSwitch: meter 7 of …", answer={"in_port": "vnet8"}),
        lambda d: d["facts"].update({"vm/web/tcp/192.0.2.9:5201 from 1/send_buffer_pct": {"value": 49.9}}),
        lambda d: d["facts"].update({"vm/db/tcp/192.0.2.9:5201 from 1/send_buffer_pct": {"value": 99}}),
        lambda d: [row.update(packets=row["packets"] // 100) for row in table(d, "tun_queues", "queues")],
        lambda d: d["facts"].update({"vm/web/cpu_max": {"value": "400000 100000"}}),
    ],
)
def test_what_is_of_another_machine_is_over_or_has_room_caps_nothing(
    change: Callable[[dict[str, Any]], Any],
) -> None:
    assert verdict(caps(MachineFigures(snapshot(change), "web"))).state == "free"


def test_what_waited_for_a_moment_is_not_said_before_what_limits_it() -> None:
    def change(document: dict[str, Any]) -> None:
        waits(document, CORE // 50)
        document["facts"]["ovs/interface/vnet7/ingress_policing_rate"] = {"value": 120_000}

    found = caps(MachineFigures(snapshot(change), "web"))
    assert verdict(found).text == "Open vSwitch polices vnet7 to 120Mbit/s; it sends 112Mbit/s"
    assert {cap.name: cap.text for cap in found}["waits for a CPU"].endswith("vCPU 0 most, 2 % of the time")


def test_a_limit_that_is_used_up_comes_before_what_is_short_besides() -> None:
    def change(document: dict[str, Any]) -> None:
        waits(document, CORE // 2)
        document["facts"]["ovs/interface/vnet7/ingress_policing_rate"] = {"value": 120_000}

    found = caps(MachineFigures(snapshot(change), "web"))
    assert verdict(found).text.startswith("Open vSwitch polices vnet7")
    assert {cap.name: cap.state for cap in found}["waits for a CPU"] == "caps"


@pytest.mark.parametrize(("ran_ns", "state"), [(CORE // 50, "free"), (CORE * 95 // 100, "caps")])
def test_where_qemu_moves_the_packets_its_main_thread_is_the_worker(ran_ns: int, state: str) -> None:
    def change(document: dict[str, Any]) -> None:
        threads = table(document, "thread_waits", "threads")
        threads[1].update(role="main thread", ran_ns=ran_ns)
        document["facts"]["vm/web/net/0/queues"] = {"value": 1}

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    much = "QEMU moves its packets itself, without vhost: its main thread uses"
    assert found["the vhost worker"].state == state and found["the vhost worker"].text.startswith(much)


def test_a_machine_that_rests_and_may_be_paused_is_not_said_to_run() -> None:
    def change(document: dict[str, Any]) -> None:
        table(document, "vm_states", "machines")[0].update(paused=None, cpu_ns=0)

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    assert found["whether it runs"].state == "unknown"
    assert found["whether it runs"].text == "it uses 0 % of a core; whether it is paused is not known"


def test_where_vhost_moves_the_packets_its_worker_must_be_known() -> None:
    def change(document: dict[str, Any]) -> None:
        del table(document, "thread_waits", "threads")[1]
        document["facts"].update({"vm/web/net/0/queues": {"value": 1}, "vm/web/net/0/vhost": {"value": "on"}})

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    assert found["the vhost worker"].state == "unknown"


def test_where_its_configuration_is_not_known_nothing_of_its_devices_is_excluded() -> None:
    """As in a recording of an earlier version."""
    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(lambda d: d["facts"].clear()), "web"))}
    assert verdict(list(found.values())).state == "unknown"
    assert {name for name, cap in found.items() if cap.state == "free"} == {
        "whether it runs", "its memory", "waits for a CPU", "the virtual CPUs",
    }  # fmt: skip
    shaper = found["a shaper or queue of its tap"]
    assert shaper.text == "a shaper or queue of its tap: nobody has read which devices and limits it has"


@pytest.mark.parametrize(("queues", "state"), [(1, "free"), (2, "unknown")])
def test_packets_of_one_queue_spread_over_no_others(queues: int, state: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["probes"]["tun_queues"] = {"status": "failed", "why": "this kernel has no kprobes"}
        document["facts"]["vm/web/net/0/queues"] = {"value": queues}

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    assert found["how packets spread over its queues"].state == state


def test_what_was_not_measured_is_not_excluded() -> None:
    def lose(document: dict[str, Any]) -> None:
        document["probes"]["thread_waits"] = {"status": "failed", "why": "no such file"}
        del document["facts"]["vm/web/cpu_max"]

    first = verdict(caps(MachineFigures(snapshot(lose), "web")))
    assert first.state == "unknown" and first.text.startswith("nothing that was measured caps it; not known: waits for")


def test_all_machines_are_known_and_each_has_a_line() -> None:
    def change(document: dict[str, Any]) -> None:
        incident(cause="cpu-wait", what="db: stress takes its CPU", where={"vm": "db"})(document)
        table(document, "io_limits", "limits")[1].update(passed=0)

    taken = snapshot(change)
    assert machines(taken) == ["db", "web"]
    content, is_capped = page(taken, None, "text")
    assert is_capped and "!! db: stress takes its CPU" in content.decode()
    found: Any = msgspec.json.decode(page(taken, "web", "json")[0])
    assert found["schema"] == "netconsole.vm/1" and found["vms"][0]["verdict"]["state"] == "free"


def test_a_machine_that_facts_alone_know_is_one_of_them() -> None:
    """It is behind Open vSwitch with DPDK, and no source of threads or processes ran. Names of facts alone are none."""

    def lose(document: dict[str, Any]) -> None:
        del document["probes"]["vm_states"], document["probes"]["thread_waits"]
        for name in ("dpdk-9", "unnamed", "unnamed #2", "web #2"):
            document["facts"][f"vm/{name}/pid"] = {"value": 9}

    def lose_all(document: dict[str, Any]) -> None:
        document["probes"] = {}
        document["facts"] = {"vm/unnamed/pid": {"value": 9}}

    assert machines(snapshot(lose)) == ["dpdk-9", "web"]
    assert machines(snapshot(lose_all)) == ["unnamed"]


def test_a_name_with_a_slash_finds_its_facts() -> None:
    def rename(document: dict[str, Any]) -> None:
        tables = (
            ("vm_states", "machines"),
            ("vm_states", "memory"),
            ("thread_waits", "threads"),
            ("tun_queues", "queues"),
        )
        for probe, name in tables:
            for row in table(document, probe, name):
                row.update(vm="we/b%" if row["vm"] == "web" else row["vm"])
        for name in [name for name in document["facts"] if name.startswith("vm/web/")]:
            document["facts"][name.replace("vm/web/", "vm/we%2Fb%25/")] = document["facts"].pop(name)

    one = MachineFigures(snapshot(rename), "we/b%")
    assert one.taps == ["vnet7"] and verdict(caps(one)).state == "free"
    assert "vm/we%2Fb%25/cpu_max" in to_text(of_vm(one.snapshot, one.name))


def test_each_cpu_has_a_line_with_who_shares_it() -> None:
    def share(document: dict[str, Any]) -> None:
        for row in table(document, "thread_waits", "threads")[:2]:
            row.update(cpu=3)

    _, lines = cpu_table(snapshot(share))
    assert isinstance(lines, TextTable)
    assert lines.rows == [["!!", "3", "175 %", "50 %", "db: vCPU 0 100 %, web: vCPU 0 50 %, web: vhost worker 25 %"]]
    assert [row[0] for row in list(cpu_table(snapshot()))[1].rows] == ["ok", "ok", "!!"]  # type: ignore[union-attr]


def test_a_wait_is_marked_from_where_the_finding_says_it() -> None:
    """One limit: that of what lasts."""
    over = {one.over / 1e7 for one in catalogue.shipped("thread_waits").findings if one.value == "waited_ns"}
    assert over == {WAITS_PCT}
    for waited, mark in ((CORE * WAITS_PCT / 100, "!!"), (CORE * WAITS_PCT / 100 - 1, "ok")):
        taken = snapshot(lambda d, ns=waited: table(d, "thread_waits", "threads")[0].update(waited_ns=ns))  # type: ignore[misc]
        assert list(cpu_table(taken))[1].rows[0][:2] == [mark, "1"]  # type: ignore[union-attr]


def of_two(document: dict[str, Any]) -> None:
    """Another QEMU process has the same name; the limit is of one of them."""
    machines_of = table(document, "vm_states", "machines")
    machines_of.append({**machines_of[0], "process": "qemu/8"})
    document["facts"]["vm/web/cpu_max"] = {"value": "200000 100000"}


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (lambda d: d.update(duration_s=0), "whether it runs", "vm_states has not measured"),
        (lambda d: d["probes"].pop("vm_states"), "whether it runs", "vm_states has not measured"),
        (of_two, "its limit of CPU time", "what it uses of its limit is not known: 2 QEMU processes have this name"),
        (
            lambda d: d["probes"].update(ovs_pmd={"status": "failed", "why": "no answer"}),
            "the PMD thread of its port",
            "ovs_pmd has not measured: no answer",
        ),
        (
            lambda d: d["probes"].pop("tun_queues"),
            "how packets spread over its queues",
            "tun_queues has not measured",
        ),
        (lambda d: d["facts"].clear() or d["probes"].pop("tun_queues"), "the virtual CPUs", "no thread of it is known"),
        (lambda d: d["probes"].pop("io_limits"), "the I/O limit of its disks", "io_limits has not measured"),
        (
            lambda d: d["facts"].update({"vm/web/disk/0/limits": {"value": "iops-total=20"}}),
            "the I/O limit of its disks",
            "QEMU itself limits a disk of it (iops-total=20); how much of that it uses is not known: the device below",
        ),
        (lambda d: d.update(incidents=None), "anything else that stands out", "nobody looked for incidents"),
        (
            lambda d: d["facts"].update({"vm/web/cpu_max": {"value": "9" * 400 + " 1"}}),
            "its limit of CPU time",
            "the limit of its control groups could not be read",
        ),
    ],
)
def test_what_was_not_seen_is_neither_excluded_nor_claimed(
    change: Callable[[dict[str, Any]], Any], name: str, said: str
) -> None:
    def nameless(document: dict[str, Any]) -> None:
        if name == "the virtual CPUs":
            del table(document, "thread_waits", "threads")[0]
        change(document)

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(nameless), "web"))}
    assert found[name].state == "unknown" and found[name].text.startswith(said), found[name]
    assert all(cap.state != "caps" for cap in found.values()), found


@pytest.mark.parametrize(
    ("more", "state", "said"),
    [
        ({"limits": "iops-total=120"}, "caps", "(iops-total=120); it uses 99.8 % of iops-total at sdb"),
        ({"limits": "iops-write=19, iops-write-max=40"}, "caps", "it uses 104 % of iops-write at sdb"),
        ({"limits": "bps-read=409600, iops-read=200"}, "caps", "it uses 100 % of bps-read at sdb"),
        ({"limits": "iops-total=240"}, "free", "it uses 49.9 % of iops-total at sdb"),
        ({"limits": "iops-total=240", "cache_direct": "off"}, "unknown", "what the page cache answers is not known"),
        ({"limits": "iops-total-max=9"}, "unknown", "how much of that it uses is not known"),
        ({"limits": "iops-total=9", "on": "sdc"}, "unknown", "not known: block_path has no row of it"),
    ],
)
def test_a_limit_that_qemu_keeps_is_held_against_what_reaches_the_device(
    more: dict[str, str], state: str, said: str
) -> None:
    def change(document: dict[str, Any]) -> None:
        rows = [("read", 1000, 4_096_000), ("write", 198, 811_008), ("flush", 500, 0)]
        document["probes"]["block_path"] = {
            "status": "attached",
            "tables": {
                "ios": [
                    {"device": "sdb", "vm": vm, "operation": operation, "ios": ios, "bytes": size}
                    for operation, ios, size in rows
                    for vm in ("web", "db")
                ]
            },
        }
        for name, value in {"on": "sdb", "cache_direct": "on", **more}.items():
            document["facts"][f"vm/web/disk/0/{name}"] = {"value": value}

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    told = found["the I/O limit of its disks"]
    assert told.state == state and said in told.text, told


def test_disks_on_one_device_are_not_told_apart() -> None:
    def change(document: dict[str, Any]) -> None:
        row = {"device": "sdb", "vm": "web", "operation": "read", "ios": 1000, "bytes": 0}
        document["probes"]["block_path"] = {"status": "attached", "tables": {"ios": [row]}}
        disks = {"0/on": "sdb", "0/limits": "iops-total=20", "1/on": "sdb"}
        document["facts"].update({f"vm/web/disk/{name}": {"value": value} for name, value in disks.items()})

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    assert found["the I/O limit of its disks"].text.endswith("not known: other disks of it lie on sdb")


def test_each_policed_port_is_judged_and_one_without_a_rate_is_not_excluded() -> None:
    def police(document: dict[str, Any], tap_kbit: int) -> None:
        pmd(document, 40.0)  # its port is of vhost-user: no link has its rate
        document["facts"]["vm/web/net/2/tap"] = {"value": "a0"}
        for port, kbit in (("a0", 1), ("dpdkvhost1", 100), ("vnet7", tap_kbit)):
            document["facts"][f"ovs/interface/{port}/ingress_policing_rate"] = {"value": kbit}

    low, high = (
        {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}["a policer of Open vSwitch"]
        for change in (lambda d: police(d, 120_000), lambda d: police(d, 900_000))
    )
    assert low.state == "caps" and low.text == "Open vSwitch polices vnet7 to 120Mbit/s; it sends 112Mbit/s"
    assert high.state == "unknown" and high.text.endswith("what it sends is not known")


@pytest.mark.parametrize(
    ("way", "text", "state", "said"),
    [
        ("ingress", ALL + " rate=15000000", "caps", "sends to 120Mbit/s; it sends 112Mbit/s"),
        ("egress", "basic protocol=all actions=gact,police rate=15000000", "caps", "receives to 120Mbit/s; it receiv"),
        ("ingress", ALL + " rate=150000000", "free", "sends to 1.20Gbit/s; it sends 112Mbit/s"),
        ("ingress", SOME + " rate=15000000", "unknown", "passes the policer's filter is not known"),
        ("ingress", "flower protocol=ip classid=1:7 actions=police rate=150000000", "free", "it sends 112Mbit/s"),
        ("ingress", ALL, "unknown", "to which rate is not known"),
        ("ingress", "matchall protocol=all actions=mirred", "free", "tc polices no tap of it"),
        ("1:0", "u32 protocol=ip actions=police rate=1", "free", "tc polices no tap of it"),
    ],
)  # fmt: skip
def test_a_policer_of_tc_is_judged_by_the_way_that_it_polices(way: str, text: str, state: str, said: str) -> None:
    fact = {f"tc/vnet7/filter/{way}/5/1": {"value": text}}
    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(lambda d: d["facts"].update(fact)), "web"))}
    cap = found["a policer of tc"]
    assert cap.state == state and said in cap.text, cap


def test_what_open_vswitch_polices_by_tc_is_told_once_and_filters_that_are_not_known_exclude_nothing() -> None:
    both = {
        "tc/vnet7/filter/ingress/49/1": {"value": ALL + " rate=15000000"},
        "ovs/interface/vnet7/ingress_policing_rate": {"value": 120_000},
    }
    found = [
        cap.name
        for cap in caps(MachineFigures(snapshot(lambda d: d["facts"].update(both)), "web"))
        if cap.state == "caps"
    ]
    assert found == ["a policer of Open vSwitch"]
    unread = snapshot(lambda d: d["facts"].pop("tc/vnet7/qdisc/root"))
    (cap,) = [cap for cap in caps(MachineFigures(unread, "web")) if cap.state == "unknown"]
    assert cap.text == "the filters of vnet7 could not be read"


@pytest.mark.parametrize(
    ("rows", "trouble", "state", "said"),
    [
        (
            [("vnet7", "OVS_DROP_METER", 20), ("vnet7", "OVS_DROP_METER", 30)],
            0,
            "caps",
            "sheds 5 packets/s that vnet7 sent",
        ),
        ([("vnet7", "OVS_DROP_METER", 9), ("vnet8", "OVS_DROP_METER", 9000)], 0, "free", "no meter"),
        ([("vnet7", "OVS_DROP_EXPLICIT", 9000)], 0, "free", "no meter"),
        ([], 500, "unknown", "shed 50 packets/s; of which ports is not known"),
        (None, 0, "unknown", "ovs_drops has not measured"),
    ],
)
def test_a_meter_is_told_of_the_port_whose_packets_it_sheds(
    rows: list[tuple[str, str, int]] | None, trouble: int, state: str, said: str
) -> None:
    def change(document: dict[str, Any]) -> None:
        probes = document["probes"]
        counted = [{"counter": "datapath_drop_meter", "count": trouble}, {"counter": "other", "count": 9000}]
        if rows is not None:
            drops = [{"port": port, "reason": reason, "count": count} for port, reason, count in rows]
            probes["ovs_drops"] = {"status": "attached", "tables": {"drops": drops}}
        else:
            del probes["ovs_drops"]
        if trouble:
            probes["ovs_pmd"] = {"status": "attached", "tables": {"trouble": counted}}

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(change), "web"))}
    cap = found["a meter of Open vSwitch"]
    assert cap.state == state and said in cap.text, cap


def test_offload_is_not_excluded_where_rates_are_not_known() -> None:
    def lose(document: dict[str, Any]) -> None:
        document["facts"]["nic/vnet7/offload/tx-tcp-segmentation"] = {"value": "off"}
        del document["probes"]["link_rates"]

    found = {cap.name: cap for cap in caps(MachineFigures(snapshot(lose), "web"))}
    assert found["segmentation offload"].state == "unknown"


def test_a_few_losses_are_no_cap_and_are_told() -> None:
    def lose(document: dict[str, Any]) -> None:
        table(document, "link_rates", "links")[0].update(qdisc_drops=3, tx_drops=1)

    def unknown(document: dict[str, Any]) -> None:
        lose(document)
        for row in table(document, "tun_queues", "queues"):
            del row["ring_full"]

    one, two = (
        {cap.name: cap.text for cap in caps(MachineFigures(snapshot(change), "web"))} for change in (lose, unknown)
    )
    assert one["a shaper or queue of its tap"] == "the queueing disciplines of its taps shed 3 packets"
    assert one["the rings of its taps"] == "its guest takes what comes: 0 packets found a full ring"
    assert two["the rings of its taps"] == "its guest takes what comes: – packets found a full ring"


def test_a_wait_is_told_where_nobody_looked_for_incidents() -> None:
    def change(document: dict[str, Any]) -> None:
        document["incidents"] = None
        table(document, "io_limits", "limits")[1].update(passed=0)

    assert verdict(caps(MachineFigures(snapshot(change), "db"))).text == "its vCPU 0 waits for a CPU: 50 % of the time"


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a document has a value."""
    for name, member in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, name)
        if isinstance(member, (dict, list)):
            yield from places(member, (*path, name))


ODD: list[Any] = [None, "[red]\x1b[31m</td>", -5, 10**30, 1e308, "9" * 5000 + " 1", ["a"], 0]


def test_no_value_of_a_snapshot_breaks_the_page() -> None:
    """Each left out, and replaced by what is not expected there: hostile names, huge numbers, other types."""
    document = copy.deepcopy(FREE)
    pmd(document, 40.0)
    incident(cause="cpu-wait", what="w", where={"vm": "web"}, evidence=[])(document)
    document["facts"]["ovs/interface/vnet7/ingress_policing_rate"] = {"value": 1}
    document["facts"]["vm/web/cpu_max"] = {"value": "1 1"}
    tried = 0
    for path in list(places(document)):
        for value in [*ODD, msgspec.UNSET]:
            changed = copy.deepcopy(document)
            node = changed
            for part in path[:-1]:
                node = node[part]
            if value is msgspec.UNSET:
                del node[path[-1]]
            else:
                node[path[-1]] = value
            try:
                taken = msgspec.convert(changed, Snapshot)
            except msgspec.ValidationError:
                continue
            tried += 1
            for form in ("text", "md", "html", "json"):
                shown = page(taken, "web", form)[0] + page(taken, None, form)[0]
                assert b"\x1b" not in shown and (form != "html" or b"[31m</td>" not in shown), path
            list(cpu_table(taken)) + list(cpu_map(taken, "web"))
    assert tried > 500


def test_facts_of_others_cost_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report has a line for each of hundreds of VMs, with dozens of facts of each."""
    made = 0

    def counted(*parts: str | int) -> str:
        nonlocal made
        made += 1
        return key(*parts)

    for module in ("caps", "machine_figures"):
        monkeypatch.setattr(f"netconsole.snapshot.{module}.fact_key", counted)
    taken = snapshot(lambda d: d["facts"].update({f"vm/other/x{number}": {"value": 1} for number in range(1000)}))
    assert verdict(caps(MachineFigures(taken, "web"))).state == "free" and made < 20
