"""The map of CPUs: what ran where, by NUMA node, and what competes; as text, Markdown and HTML."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.base.fact_keys import FactData
from netconsole.report.blocks import CpuCell, CpuMap, CpuNode, Document, Note, TextTable
from netconsole.report.formats import rendered
from netconsole.report.formats.to_text import CPU_COLUMNS, cpu_lines
from netconsole.report.of_cpus import cpu_map, cpu_table
from netconsole.snapshot.caps import WAITS_PCT
from netconsole.snapshot.document import SCHEMA, Snapshot

SECONDS = 10
CORE = SECONDS * 10**9


def thread(
    cpu: int, vm: str, role: str, ran_pct: float = 20.0, waited_pct: float = 0.0, allowed: str | None = None
) -> dict[str, Any]:
    return {
        "vm": vm,
        "role": role,
        "tid": 1,
        "cpu": cpu,
        "ran_ns": CORE * ran_pct / 100,
        "waited_ns": CORE * waited_pct / 100,
        "allowed": allowed,
    }


def snapshot(*threads: dict[str, Any], **more: Any) -> Snapshot:
    document = {
        "schema": SCHEMA,
        "created": "2026-11-28T01:02:03Z",
        "netconsole": "0.1.0",
        "host": {"name": "hv1", "kernel": "6.1"},
        "profile": {"name": "summary"},
        "duration_s": SECONDS,
        "probes": {
            "thread_waits": {"status": "attached", "tables": {"threads": list(threads)}},
            **more.pop("probes", {}),
        },
        "facts": {"numa/node0/cpus": {"value": "0-1,4"}, "numa/node1/cpus": {"value": "2-3,5"}},
        **more,
    }
    return msgspec.convert(document, Snapshot)


def cells(taken: Snapshot, vm: str = "") -> dict[str, list[str]]:
    (found,) = [block for block in cpu_map(taken, vm) if isinstance(block, CpuMap)]
    return {node.name: [one.text for one in node.cells] for node in found.nodes}


def test_each_cpu_stands_in_its_node_with_what_ran_there() -> None:
    taken = snapshot(
        thread(0, "web", "vCPU 3"), thread(0, "web", "vhost worker"), thread(1, "web", "I/O thread disk"),
        thread(4, "web", "thread worker"), thread(2, "", "handler 7"), thread(2, "", "revalidator 8"),
        thread(3, "db", "main thread", ran_pct=0.5), thread(9, "db", "vCPU 0"),
    )  # fmt: skip
    assert cells(taken) == {
        "node 0": ["0 VW", "1 I", "4 T"],
        "node 1": ["2 HR", "3 ·", "5 ·"],
        "no node known": ["9 V"],
    }
    assert cells(taken, "web")["node 0"] == ["> 0 VW", "> 1 I", "> 4 T"]


def test_where_the_threads_of_a_vm_may_run_stands_beside_where_they_ran() -> None:
    taken = snapshot(
        thread(0, "web", "vCPU 3", allowed="0-2"), thread(1, "web", "main thread", allowed="1"),
        thread(3, "db", "vCPU 0", allowed="3-5"),
    )  # fmt: skip
    assert cells(taken, "web") == {"node 0": ["> 0 V", "> 1 T", "4 ·"], "node 1": ["+ 2 ·", "3 V", "5 ·"]}
    assert cells(taken)["node 1"] == ["2 ·", "3 V", "5 ·"], "of no VM there is nothing to point at"
    notes = [one.text for one in cpu_map(taken, "web") if isinstance(one, Note)]
    assert "> is where threads of this VM ran, + where they may run as well." in notes
    (table,) = [one for one in cpu_table(taken) if isinstance(one, TextTable)]
    assert [row[-1] for row in table.rows] == [
        "web: vCPU 3 20 % (0-2)", "web: main thread 20 % (1)", "db: vCPU 0 20 % (3-5)",
    ]  # fmt: skip


def test_threads_that_may_run_on_every_cpu_are_said_so_once() -> None:
    taken = snapshot(thread(0, "web", "vCPU 3", allowed="0-5"), thread(3, "db", "vCPU 0"))
    assert cells(taken, "web") == {"node 0": ["> 0 V", "1 ·", "4 ·"], "node 1": ["2 ·", "3 V", "5 ·"]}
    notes = [one.text for one in cpu_map(taken, "web") if isinstance(one, Note)]
    assert "> is where threads of this VM ran. They may run on every CPU." in notes


def test_lists_of_cpus_in_a_file_of_anybody_take_no_time() -> None:
    hostile = [thread(0, "web", f"vCPU {number}", allowed=f"{number}," * 99 + "0-999999" * 99) for number in range(999)]
    assert cells(snapshot(*hostile), "web")["node 0"][0].startswith("> 0 V")


@pytest.mark.parametrize(("steal", "said"), [(0.0, False), (12.5, True), ("[b]", False), (None, False)])
def test_what_a_machine_below_takes_is_said_of_the_whole_host(steal: Any, said: bool) -> None:
    taken = snapshot(thread(0, "web", "vCPU 3"))
    taken.facts["cpu/steal_pct"] = FactData(steal)
    notes = [one.text for one in cpu_map(taken) if isinstance(one, Note)]
    sentence = "This host is itself a guest: 12.5 % of its time since it began went to others (steal)."
    assert (sentence in notes) is said and any("(steal)" in one for one in notes) is said


def test_how_deep_the_cpus_may_sleep_and_slept_is_said_or_why_it_is_not_known() -> None:
    facts: dict[str, str | float] = {
        "cpu/idle/deepest": "C1 (2 us): 1; C6 (133 us): 0", "cpu/idle/state0/used_pct": 0.0,
        "cpu/idle/state1/used_pct": 12.5, "cpu/idle/state1/name": "C1",
    }  # fmt: skip
    known = snapshot(thread(0, "web", "vCPU 3"))
    known.facts.update({name: FactData(value) for name, value in facts.items()})
    said = [one.text for one in cpu_map(known) if isinstance(one, Note)]
    assert said[-2:] == [
        "How deep they may sleep, and how long that takes to leave: C1 (2 us): 1; C6 (133 us): 0.",
        "Of their time since the host began they slept in state0 0 %, C1 12.5 %.",
    ]
    unknown = snapshot(thread(0, "web", "vCPU 3"))
    unknown.facts["cpu/idle/states"] = FactData(why="the kernel shows no idle states")
    said = [one.text for one in cpu_map(unknown) if isinstance(one, Note)]
    assert said[-1] == "How deep the CPUs may sleep is not known: the kernel shows no idle states."


def test_what_competes_has_a_word() -> None:
    """A wait of the limit and one below it; two VMs; a PMD thread that is not alone; receiving, which is no thread."""
    probes = {
        "ovs_pmd": {"status": "attached", "tables": {"threads": [{"core": 3}, {"core": 5}]}},
        "softnet": {
            "status": "attached",
            "tables": {"cpus": [{"cpu": 4, "processed": 1000 * SECONDS}, {"cpu": 2, "processed": 1000 * SECONDS - 1}]},
        },
    }
    taken = snapshot(
        thread(0, "web", "vCPU 0", waited_pct=WAITS_PCT), thread(1, "web", "vCPU 1", waited_pct=WAITS_PCT - 0.1),
        thread(2, "web", "vCPU 2"), thread(2, "db", "vhost worker"), thread(3, "web", "vCPU 3"),
        thread(4, "web", "vCPU 4"),
        probes=probes,
    )  # fmt: skip
    assert cells(taken) == {"node 0": ["0 V waits", "1 V", "4 VN"], "node 1": ["2 VW shares", "3 PV shares", "5 P"]}


def test_what_runs_on_the_same_core_is_beside() -> None:
    """Of another VM, or beside a PMD thread; not what is of the same VM, rests, or is alone on its core."""
    threads = (
        thread(0, "web", "vCPU 0"), thread(1, "db", "vCPU 0"), thread(2, "web", "vCPU 1"), thread(3, "web", "vCPU 2"),
        thread(4, "web", "vhost worker"), thread(5, "db", "vCPU 1", ran_pct=0.5),
    )  # fmt: skip
    facts: dict[str, Any] = {"numa/node0/cpus": {"value": "0-7"}, "cpu/cores": {"value": ["0,1", "2-3", "4,5", "6,7"]}}
    probes = {"ovs_pmd": {"status": "attached", "tables": {"threads": [{"core": 6}]}}}
    taken = snapshot(*threads, thread(7, "web", "main thread"), probes=probes, facts=facts)
    said = ["0 V beside", "1 V beside", "2 V", "3 V", "4 W", "5 ·", "6 P beside", "7 T beside"]
    assert cells(taken) == {"node 0": said}
    alone = snapshot(*threads, facts={**facts, "cpu/cores": {"value": "0,1"}})
    assert cells(alone)["node 0"][:2] == ["0 V", "1 V"], "a file may hold anything"


def test_without_threads_of_vms_or_a_switch_there_is_no_map() -> None:
    assert list(cpu_map(snapshot())) == []
    assert cells(snapshot(thread(0, "web", "vCPU 0"), facts={})) == {"no node known": ["0 V"]}


def test_the_grid_fits_into_a_terminal_and_a_node_begins_a_line() -> None:
    nodes = [
        CpuNode(f"node {one}", [CpuCell(cpu, "VW", "shares") for cpu in range(100 * one, 100 * one + 33)])
        for one in (0, 1)
    ]
    lines = cpu_lines(nodes)
    assert all(len(line) <= CPU_COLUMNS for line in lines)
    assert [line[:6] for line in lines if line.strip() and line[0] != " "] == ["node 0", "node 1"]
    assert sum(line.count("VW shares") for line in lines) == 66


@pytest.mark.parametrize(
    ("form", "has"),
    [
        ("text", "node 0  0 V waits"),
        ("md", "```\nnode 0  0 V waits"),
        ("html", '<span class="act own">&gt; <b>0</b> V waits</span>'),
    ],
)
def test_each_format_draws_it(form: str, has: str) -> None:
    block = CpuMap([CpuNode("node 0", [CpuCell(0, "V", "waits", ">" if form == "html" else ""), CpuCell(1, "", "")])])
    assert has in rendered(Document("t", "s", [block]), form).decode()
