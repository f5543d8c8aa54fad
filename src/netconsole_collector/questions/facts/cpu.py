"""Facts of the processors: model, mitigations, frequency governor, idle states with exit latencies, NUMA, isolation."""

import re
from typing import Dict, List

from netconsole_collector.names.fact_keys import key
from netconsole_collector.questions.facts.reading import Facts, grouped
from netconsole_collector.questions.facts.waiting import steal_pct

_CPU = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_CPUINFO = "/proc/cpuinfo"
_SETTINGS = ("online", "isolated", "nohz_full", "smt/control")
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


def _of_all_cpus(facts: Facts, fact: str, cpus: List[str], file: str) -> None:
    values = []
    for cpu in cpus:
        try:
            values.append((int(cpu[3:]), facts.text(f"{_CPU}/{cpu}/{file}").strip()))
        except OSError:
            continue  # an offline CPU has no such file
    if values:
        facts.put(fact, grouped(values), f"{_CPU}/*/{file}")
