"""The CPUs of a host: which threads of VMs and of the switch ran on each, as a map by NUMA node and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from netconsole.base import figure
from netconsole.base.cpu_list import cpus_of
from netconsole.report.blocks import CpuCell, CpuMap, CpuNode, Heading, Note, ReportBlock, TextTable
from netconsole.snapshot.caps import WAITS_PCT
from netconsole.snapshot.document import Snapshot, number, seconds
from netconsole.snapshot.machine_figures import role
from netconsole_collector.names.fact_keys import key as fact_key
from netconsole_collector.names.fact_keys import parts as fact_parts

MAX_SHARED, MAX_LINES, MAX_CELLS, MAX_WHY, MAX_LISTS = 4, 200, 1024, 200, 256
"""Threads that a line of a CPU names, lines of the table, CPUs of the map, characters of a text, and lists of CPUs."""
SOME_PCT, MANY_PER_S = 1.0, 1000.0
"""Of its time a thread has to run, and packets a CPU has to receive, to stand in the map."""
_LETTERS: Mapping[str, str] = {
    "vCPU": "V", "vhost worker": "W", "I/O thread": "I", "handler": "H", "revalidator": "R", "PMD": "P",
}  # fmt: skip
_OTHER, _RECEIVES = "T", "N"
_LEGEND = (
    "V virtual CPU, W vhost worker, I I/O thread, P PMD thread, H handler, R revalidator,",
    "T another thread of QEMU or of Open vSwitch, where each ran last. N receives packets.",
    f"waits: one of them waits for it {WAITS_PCT:g} % of the time or longer.",
    "shares: a PMD thread, or threads of two VMs, do not have it for themselves.",
    "beside: the same of its core: another CPU of it (SMT) runs what is in its way.",
)
_RAN, _MAY = ">", "+"
_OWN = "> is where threads of this VM ran, + where they may run as well."
_ANYWHERE = "> is where threads of this VM ran. They may run on every CPU."


class CpuUser(NamedTuple):
    """A thread: what it used of its CPU, how long it waited for it, whose it is, what it does, and where it may run."""

    ran_pct: float
    waited_pct: float
    owner: str
    role: str
    allowed: str
    """The list of CPUs on which it may run; empty: not known."""

    @property
    def letter(self) -> str:
        """What it does, in the map."""
        return next((letter for kind, letter in _LETTERS.items() if self.role.startswith(kind)), _OTHER)


def cpu_table(snapshot: Snapshot) -> Iterator[ReportBlock]:
    """One line for each CPU on which threads of VMs or of the switch ran last: who shares it, and who waits."""
    by_cpu = _users(snapshot)
    if not by_cpu:
        return
    yield Heading("CPUs, and the threads of VMs that ran there last")
    lines = []
    for cpu, users in sorted(by_cpu.items()):
        waited_pct = max(one.waited_pct for one in users)
        shown = ", ".join(map(_said, sorted(users, reverse=True)[:MAX_SHARED]))
        more = f", {len(users) - MAX_SHARED} more" if len(users) > MAX_SHARED else ""
        mark = "!!" if waited_pct >= WAITS_PCT else "ok"
        used = figure.percent(sum(one.ran_pct for one in users))
        lines.append([mark, str(cpu), used, figure.percent(waited_pct), shown + more])
    head = ["", "CPU", "used by them", "longest wait", "threads, what each uses, and where it may run"]
    yield TextTable(head, lines[:MAX_LINES], frozenset({1, 2, 3}), max(0, len(lines) - MAX_LINES))


def _said(one: CpuUser) -> str:
    may = f" ({one.allowed})" if one.allowed else ""
    return f"{one.owner}: {one.role} {figure.percent(one.ran_pct)}{may}"


def cpu_map(snapshot: Snapshot, vm: str = "") -> Iterator[ReportBlock]:
    """A cell for each CPU, by NUMA node; those of a VM are pointed at. Nothing without threads of VMs or a switch."""
    by_cpu = _users(snapshot)
    for core in _polling(snapshot):
        by_cpu.setdefault(core, []).append(CpuUser(100.0, 0.0, "Open vSwitch", "PMD thread", str(core)))
    if not by_cpu:
        return
    receiving = _receiving(snapshot)
    nodes = _nodes(snapshot)
    elsewhere = sorted(set(by_cpu) - {cpu for cpus in nodes.values() for cpu in cpus})
    named = [(f"node {number}", cpus) for number, cpus in sorted(nodes.items())]
    named += [("no node known", elsewhere)] if elsewhere else []
    cores, may = _cores_of(snapshot), _may(by_cpu, vm)
    is_anywhere = bool(may) and may.issuperset(cpu for _, cpus in named for cpu in cpus)

    def cell(cpu: int) -> CpuCell:
        beside = [one for other in cores.get(cpu, set()) - {cpu} for one in by_cpu.get(other, [])]
        made = _cell(cpu, by_cpu.get(cpu, []), beside, cpu in receiving, vm)
        return replace(made, mark=_MAY) if cpu in may and not made.mark and not is_anywhere else made

    shown = [CpuNode(name, [cell(cpu) for cpu in cpus[:MAX_CELLS]]) for name, cpus in named]
    yield Heading("Map of the CPUs")
    yield CpuMap(shown)
    own = [_ANYWHERE if is_anywhere else _OWN] if vm else []
    yield from map(Note, (*_LEGEND, *own, *_steal(snapshot), *_sleep(snapshot)))


def _may(by_cpu: Mapping[int, list[CpuUser]], vm: str) -> set[int]:
    """Where threads of a VM may run."""
    allowed = {one.allowed for users in by_cpu.values() for one in users if vm and one.owner == vm}
    return {cpu for text in sorted(allowed)[:MAX_LISTS] for cpu in cpus_of(text)}


def _steal(snapshot: Snapshot) -> Iterator[str]:
    """What a machine below this host takes of its CPUs: a wait that is in no thread's books."""
    fact = snapshot.facts.get("cpu/steal_pct")
    if fact is not None and (share := number(fact.value)):
        yield f"This host is itself a guest: {figure.percent(share)} of its time since it began went to others (steal)."


def _cell(cpu: int, users: list[CpuUser], beside: list[CpuUser], is_receiving: bool, vm: str) -> CpuCell:
    running, others = (
        [one for one in some if one.ran_pct >= SOME_PCT or one.waited_pct >= WAITS_PCT] for some in (users, beside)
    )
    letters = "".join(sorted({one.letter for one in running})) + (_RECEIVES if is_receiving else "")
    word = ""
    if any(one.waited_pct >= WAITS_PCT for one in running):
        word = "waits"
    elif _compete(running, letters):
        word = "shares"
    elif running and others and _compete(running + others, letters + "".join({one.letter for one in others})):
        word = "beside"
    return CpuCell(cpu, letters, word, _RAN if vm and any(one.owner == vm for one in running) else "")


def _compete(running: list[CpuUser], letters: str) -> bool:
    """Threads of two owners, or a PMD thread and anything else."""
    return len({one.owner for one in running}) > 1 or ("P" in letters and len(set(letters)) > 1)


def _users(snapshot: Snapshot) -> dict[int, list[CpuUser]]:
    """By CPU: the threads that ran there last, of those that ran at all."""
    data = snapshot.probes.get("thread_waits")
    rows = data.tables.get("threads", []) if data is not None and data.has_measured else []
    span_ns = max(seconds(snapshot, "thread_waits"), 1e-9) * 1e9
    found: dict[int, list[CpuUser]] = {}
    for row in rows:
        cpu, ran, waited = (number(row.get(name)) for name in ("cpu", "ran_ns", "waited_ns"))
        if cpu is not None and ran:
            owner, allowed = str(row.get("vm") or "Open vSwitch"), str(row.get("allowed") or "")[:MAX_WHY]
            found.setdefault(int(cpu), []).append(
                CpuUser(100 * ran / span_ns, 100 * (waited or 0) / span_ns, owner, role(row), allowed)
            )
    return found


def _polling(snapshot: Snapshot) -> set[int]:
    """The CPUs of PMD threads."""
    data = snapshot.probes.get("ovs_pmd")
    rows = data.tables.get("threads", []) if data is not None and data.has_measured else []
    return {int(core) for row in rows if (core := number(row.get("core"))) is not None}


def _receiving(snapshot: Snapshot) -> set[int]:
    """CPUs whose softirqs receive packets."""
    data = snapshot.probes.get("softnet")
    table = next(iter(data.tables.values()), []) if data is not None and data.has_measured else []
    least = MANY_PER_S * max(seconds(snapshot, "softnet"), 1e-9)
    return {
        int(cpu)
        for row in table
        if (cpu := number(row.get("cpu"))) is not None and (number(row.get("processed")) or 0.0) >= least
    }


def _cores_of(snapshot: Snapshot) -> dict[int, set[int]]:
    """The CPUs of the core of each CPU, where it has several."""
    fact = snapshot.facts.get("cpu/cores")
    cores = map(cpus_of, fact.value) if fact is not None and isinstance(fact.value, list) else ()
    return {cpu: core for core in cores for cpu in core}


def _sleep(snapshot: Snapshot) -> Iterator[str]:
    """How deep the CPUs may sleep, as each deeper state takes longer to leave, and how deep they did."""
    states, deepest = (snapshot.facts.get(name) for name in ("cpu/idle/states", "cpu/idle/deepest"))
    if deepest is None or deepest.value is None:
        why = f": {figure.safe(states.why, MAX_WHY)}" if states is not None and states.why else ""
        yield f"How deep the CPUs may sleep is not known{why}."
        return
    yield f"How deep they may sleep, and how long that takes to leave: {figure.safe(deepest.value, MAX_WHY)}."
    names = {}
    for name, fact in snapshot.facts.items():
        area, *rest = fact_parts(name) if name.startswith("cpu/idle/state") else ("",)
        if area == "cpu" and len(rest) == 3 and rest[2] == "used_pct" and (share := number(fact.value)) is not None:
            named = snapshot.facts.get(fact_key("cpu", "idle", rest[1], "name"))
            names[rest[1]] = f"{figure.safe(named.value if named else rest[1], MAX_WHY)} {figure.percent(share)}"
    if names:
        yield f"Of their time since the host began they slept in {', '.join(names.values())}."


def _nodes(snapshot: Snapshot) -> dict[int, list[int]]:
    """The CPUs of each NUMA node, as the facts of the host have them."""
    found: dict[int, list[int]] = {}
    for name, fact in snapshot.facts.items():
        area, *rest = fact_parts(name) if name.startswith("numa/") else ("",)
        node = rest[0].removeprefix("node") if len(rest) == 2 and rest[1] == "cpus" else ""
        if area == "numa" and node.isdecimal() and len(node) < 7:
            found[int(node)] = sorted(cpus_of(str(fact.value)))
    return found
