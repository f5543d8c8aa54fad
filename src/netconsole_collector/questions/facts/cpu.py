"""Facts of the processors: model, mitigations, frequency governor, idle states, NUMA, isolation.

How deep a CPU may sleep: the deepest idle state that is not disabled, and whose exit latency is within the limits of
/dev/cpu_dma_latency and of the CPU's own power/pm_qos_resume_latency_us (cpuidle_governor_latency_req in
drivers/cpuidle/governor.c).
"""

import re
import struct
from typing import Dict, List, Optional

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.reading import Facts, grouped
from netconsole_collector.questions.facts.waiting import steal_pct

_CPU = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_CPUINFO = "/proc/cpuinfo"
_SETTINGS = ("online", "isolated", "nohz_full", "smt/control")
_LATENCY = "/dev/cpu_dma_latency"
"""Reading it gives the strictest limit of all programs, in us. Opening it for reading asks for none."""
_NO_LIMIT_US = 2000 * 1000 * 1000
"""PM_QOS_CPU_LATENCY_DEFAULT_VALUE (linux/pm_qos.h)."""
_MOST_STATES = {"intel_idle": "/sys/module/intel_idle/parameters", "processor": "/sys/module/processor/parameters"}
_DRIVERS = {"current_driver": "driver", "current_governor": "governor", "current_governor_ro": "governor"}
_CPUINFO_KEYS = {"model name": "model", "microcode": "microcode", "Model": "model", "CPU implementer": "implementer"}


def collect(facts: Facts) -> None:
    """Add the facts under ``cpu/`` and ``mitigation/``."""
    _model(facts)
    for name in _SETTINGS:
        if name == "online" or facts.exists(f"{_CPU}/{name}"):
            facts.file(key("cpu", name.replace("/", "_")), f"{_CPU}/{name}")
    vulnerabilities = facts.entries(f"{_CPU}/vulnerabilities")
    for name in vulnerabilities:
        facts.file(key("mitigation", name), f"{_CPU}/vulnerabilities/{name}")
    cpus = [name for name in facts.entries(_CPU) if re.fullmatch(r"cpu\d+", name)]
    _cores(facts, cpus)
    _frequency(facts, cpus)
    _idle(facts, cpus)
    steal = steal_pct(facts)
    if steal is not None:
        facts.put("cpu/steal_pct", steal, "/proc/stat", volatile=True)
    nodes = [name for name in facts.entries(_NODES) if re.fullmatch(r"node\d+", name)]
    for node in nodes:
        facts.file(key("numa", node, "cpus"), f"{_NODES}/{node}/cpulist")
        facts.file(key("numa", node, "distance"), f"{_NODES}/{node}/distance")
    facts.file("cpu/clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource")


def _model(facts: Facts) -> None:
    try:
        lines = facts.text(_CPUINFO).splitlines()
    except OSError as error:
        facts.unknown("cpu/model", _CPUINFO, str(error.strerror))
        return
    found: Dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(_CPUINFO_KEYS.get(name.strip(), ""), value.strip())
    found.pop("", None)
    for name, value in found.items():
        facts.put(key("cpu", name), value, _CPUINFO)
    if not found:
        facts.unknown("cpu/model", _CPUINFO, "/proc/cpuinfo names no model on this architecture")


def _cores(facts: Facts, cpus: List[str]) -> None:
    """The CPUs of each core that has several (SMT)."""
    found = set()
    for cpu in cpus:
        try:
            found.add(facts.text(f"{_CPU}/{cpu}/topology/thread_siblings_list").strip())
        except OSError:
            continue  # an offline CPU has no topology
    shared = sorted((one for one in found if not one.isdecimal()), key=lambda one: (len(one), one))
    if shared:
        facts.put("cpu/cores", shared, f"{_CPU}/*/topology/thread_siblings_list")


def _frequency(facts: Facts, cpus: List[str]) -> None:
    if not any(facts.exists(f"{_CPU}/{cpu}/cpufreq/scaling_governor") for cpu in cpus[:1]):
        facts.unknown(
            "cpu/governor",
            f"{_CPU}/*/cpufreq",
            "this machine has no frequency scaling (a guest, or the firmware does it)",
        )
        return
    for name, file in (
        ("governor", "scaling_governor"),
        ("frequency_driver", "scaling_driver"),
        ("frequency_min_khz", "scaling_min_freq"),
        ("frequency_max_khz", "scaling_max_freq"),
        ("energy_preference", "energy_performance_preference"),
    ):
        _of_all_cpus(facts, key("cpu", name), cpus, f"cpufreq/{file}")
    for path in (f"{_CPU}/cpufreq/boost", f"{_CPU}/intel_pstate/no_turbo", f"{_CPU}/intel_pstate/status"):
        if facts.exists(path):
            facts.file(key("cpu", path.rsplit("/", 1)[1]), path)


def _idle(facts: Facts, cpus: List[str]) -> None:
    for name, fact in _DRIVERS.items():
        if facts.exists(f"{_CPU}/cpuidle/{name}"):
            facts.file(key("cpu", "idle", fact), f"{_CPU}/cpuidle/{name}")
    states = facts.entries(f"{_CPU}/{cpus[0]}/cpuidle") if cpus else []
    if not states:
        facts.unknown("cpu/idle/states", f"{_CPU}/*/cpuidle", "the kernel shows no idle states")
    for state in states:
        where = f"{_CPU}/{cpus[0]}/cpuidle/{state}"
        facts.file(key("cpu", "idle", state, "name"), f"{where}/name")
        facts.file(key("cpu", "idle", state, "exit_latency_us"), f"{where}/latency", int)
        _of_all_cpus(facts, key("cpu", "idle", state, "disabled"), cpus, f"cpuidle/{state}/disable")
        _used(facts, state, cpus)
    for module, where in _MOST_STATES.items():
        if facts.exists(f"{where}/max_cstate"):
            facts.file(key("cpu", "idle", f"{module}_max_cstate"), f"{where}/max_cstate", int)
    if states:
        _depth(facts, cpus)


def _used(facts: Facts, state: str, cpus: List[str]) -> None:
    """The share of their time that the CPUs slept in it since the host began, all together."""
    read = [_number(facts, f"{_CPU}/{cpu}/cpuidle/{state}/time") for cpu in cpus]
    spent_us = [one for one in read if one is not None]
    try:
        uptime_us = float(_text(facts, "/proc/uptime").split()[0]) * 1e6
    except (IndexError, ValueError):
        return
    if spent_us and uptime_us > 0:
        share = 100 * sum(spent_us) / len(spent_us) / uptime_us
        facts.put(key("cpu", "idle", state, "used_pct"), round(share, 1), f"{_CPU}/*/cpuidle/{state}/time", True)


def _depth(facts: Facts, cpus: List[str]) -> None:
    """How deep each may sleep, and the limits that decide it."""
    try:
        limit_us = struct.unpack("=i", facts.host.read(_LATENCY, 4))[0]
        facts.put("cpu/idle/latency_limit_us", "none" if limit_us >= _NO_LIMIT_US else limit_us, _LATENCY)
    except (OSError, struct.error):
        facts.unknown("cpu/idle/latency_limit_us", _LATENCY, "it cannot be read")
        return
    own, deepest = [], []
    for cpu in cpus:
        number, said = int(cpu[3:]), _text(facts, f"{_CPU}/{cpu}/power/pm_qos_resume_latency_us")
        own_us = {"0": None, "n/a": 0}.get(said, int(said) if said.isdecimal() else None)
        if said:
            own.append((number, "none" if own_us is None else str(own_us)))
        name = _deepest(facts, f"{_CPU}/{cpu}/cpuidle", limit_us if own_us is None else min(limit_us, own_us))
        if name:
            deepest.append((number, name))
    if own:
        facts.put("cpu/idle/own_latency_limit_us", grouped(own), f"{_CPU}/*/power/pm_qos_resume_latency_us")
    if deepest:
        facts.put("cpu/idle/deepest", grouped(deepest), f"{_CPU}/*/cpuidle")


def _deepest(facts: Facts, where: str, limit_us: int) -> str:
    """With its exit latency, as ``C6 (133 us)``; empty where nothing is known."""
    for state in reversed(facts.entries(where)):
        latency_us = _number(facts, f"{where}/{state}/latency")
        if latency_us is not None and latency_us <= limit_us and _text(facts, f"{where}/{state}/disable") != "1":
            return "{} ({} us)".format(_text(facts, f"{where}/{state}/name"), latency_us)
    return ""


def _text(facts: Facts, path: str) -> str:
    try:
        return facts.text(path).strip()
    except OSError:
        return ""


def _number(facts: Facts, path: str) -> Optional[int]:
    said = _text(facts, path)
    return int(said) if said.isdecimal() else None


def _of_all_cpus(facts: Facts, fact: str, cpus: List[str], file: str) -> None:
    values = []
    for cpu in cpus:
        try:
            values.append((int(cpu[3:]), facts.text(f"{_CPU}/{cpu}/{file}").strip()))
        except OSError:
            continue  # an offline CPU has no such file
    if values:
        facts.put(fact, grouped(values), f"{_CPU}/*/{file}")
