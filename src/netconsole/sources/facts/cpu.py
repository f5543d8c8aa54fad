"""Facts of the processors: model, mitigations, frequency governor, idle states with exit latencies, NUMA, isolation."""

from __future__ import annotations

import re

from netconsole.base.fact_keys import key
from netconsole.sources.facts.reading import Facts, grouped
from netconsole.sources.facts.waiting import steal_pct

_CPU = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_CPUINFO = "/proc/cpuinfo"
_SETTINGS = ("online", "isolated", "nohz_full", "smt/control")
_DRIVERS = ("current_driver", "current_governor", "current_governor_ro")
_FOLDERS = (f"{_CPU}/vulnerabilities", _CPU, f"{_CPU}/cpu0/cpuidle", _NODES)
FIXED = (
    _CPUINFO, "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    f"{_CPU}/cpu0/cpufreq/scaling_governor", *(f"{_CPU}/{name}" for name in _SETTINGS),
    *(f"{_CPU}/cpuidle/{name}" for name in _DRIVERS),
    *(f"{_CPU}/{name}" for name in ("cpufreq/boost", "intel_pstate/no_turbo", "intel_pstate/status")),
)  # fmt: skip
"""Files of these facts that a host may have. Of a far host they are asked for together."""
_CPUINFO_KEYS = {"model name": "model", "microcode": "microcode", "Model": "model", "CPU implementer": "implementer"}


def collect(facts: Facts) -> None:
    """Add the facts under ``cpu/`` and ``mitigation/``."""
    _model(facts)
    facts.list_ahead(_FOLDERS)
    for name in _SETTINGS:
        if name == "online" or facts.exists(f"{_CPU}/{name}"):
            facts.file(key("cpu", name.replace("/", "_")), f"{_CPU}/{name}")
    vulnerabilities = facts.entries(f"{_CPU}/vulnerabilities")
    facts.ahead(f"{_CPU}/vulnerabilities/{name}" for name in vulnerabilities)
    for name in vulnerabilities:
        facts.file(key("mitigation", name), f"{_CPU}/vulnerabilities/{name}")
    cpus = [name for name in facts.entries(_CPU) if re.fullmatch(r"cpu\d+", name)]
    _frequency(facts, cpus)
    _idle(facts, cpus)
    steal = steal_pct(facts)
    if steal is not None:
        facts.put("cpu/steal_pct", steal, "/proc/stat", volatile=True)
    nodes = [name for name in facts.entries(_NODES) if re.fullmatch(r"node\d+", name)]
    facts.ahead(f"{_NODES}/{node}/{file}" for node in nodes for file in ("cpulist", "distance"))
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
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(_CPUINFO_KEYS.get(name.strip(), ""), value.strip())
    found.pop("", None)
    for name, value in found.items():
        facts.put(key("cpu", name), value, _CPUINFO)
    if not found:
        facts.unknown("cpu/model", _CPUINFO, "/proc/cpuinfo names no model on this architecture")


def _frequency(facts: Facts, cpus: list[str]) -> None:
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


def _idle(facts: Facts, cpus: list[str]) -> None:
    for name in _DRIVERS:
        if facts.exists(f"{_CPU}/cpuidle/{name}"):
            facts.file(key("cpu", "idle", name.removeprefix("current_").removesuffix("_ro")), f"{_CPU}/cpuidle/{name}")
    states = facts.entries(f"{_CPU}/{cpus[0]}/cpuidle") if cpus else []
    if not states:
        facts.unknown("cpu/idle/states", f"{_CPU}/*/cpuidle", "the kernel shows no idle states")
    facts.ahead(f"{_CPU}/{cpus[0]}/cpuidle/{state}/{file}" for state in states for file in ("name", "latency"))
    facts.ahead(f"{_CPU}/{cpu}/cpuidle/{state}/disable" for state in states for cpu in cpus)
    for state in states:
        where = f"{_CPU}/{cpus[0]}/cpuidle/{state}"
        facts.file(key("cpu", "idle", state, "name"), f"{where}/name")
        facts.file(key("cpu", "idle", state, "exit_latency_us"), f"{where}/latency", int)
        _of_all_cpus(facts, key("cpu", "idle", state, "disabled"), cpus, f"cpuidle/{state}/disable")


def _of_all_cpus(facts: Facts, fact: str, cpus: list[str], file: str) -> None:
    values = []
    facts.ahead(f"{_CPU}/{cpu}/{file}" for cpu in cpus)
    for cpu in cpus:
        try:
            values.append((int(cpu[3:]), facts.text(f"{_CPU}/{cpu}/{file}").strip()))
        except OSError:
            continue  # an offline CPU has no such file
    if values:
        facts.put(fact, grouped(values), f"{_CPU}/*/{file}")
