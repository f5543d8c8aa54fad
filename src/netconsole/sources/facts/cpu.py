"""Facts of the processors: model, mitigations, frequency governor, idle states with exit latencies, NUMA, isolation."""

from __future__ import annotations

import re

from netconsole.base.fact_keys import key
from netconsole.sources.facts.reading import Facts, grouped

_CPU = "/sys/devices/system/cpu"
_CPUINFO = "/proc/cpuinfo"
_CPUINFO_KEYS = {"model name": "model", "microcode": "microcode", "Model": "model", "CPU implementer": "implementer"}


def collect(facts: Facts) -> None:
    """Add the facts under ``cpu/`` and ``mitigation/``."""
    _model(facts)
    names = ("online", "isolated", "nohz_full", "smt/control")
    facts.ahead(f"{_CPU}/{name}" for name in names)
    for name in names:
        if name == "online" or facts.exists(f"{_CPU}/{name}"):
            facts.file(key("cpu", name.replace("/", "_")), f"{_CPU}/{name}")
    vulnerabilities = facts.entries(f"{_CPU}/vulnerabilities")
    facts.ahead(f"{_CPU}/vulnerabilities/{name}" for name in vulnerabilities)
    for name in vulnerabilities:
        facts.file(key("mitigation", name), f"{_CPU}/vulnerabilities/{name}")
    cpus = [name for name in facts.entries(_CPU) if re.fullmatch(r"cpu\d+", name)]
    _frequency(facts, cpus)
    _idle(facts, cpus)
    for node in facts.entries("/sys/devices/system/node"):
        if re.fullmatch(r"node\d+", node):
            facts.file(key("numa", node, "cpus"), f"/sys/devices/system/node/{node}/cpulist")
            facts.file(key("numa", node, "distance"), f"/sys/devices/system/node/{node}/distance")
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
        facts.unknown("cpu/model", _CPUINFO, "the architecture's cpuinfo names no model")


def _frequency(facts: Facts, cpus: list[str]) -> None:
    if not any(facts.exists(f"{_CPU}/{cpu}/cpufreq/scaling_governor") for cpu in cpus[:1]):
        facts.unknown(
            "cpu/governor", f"{_CPU}/*/cpufreq", "no frequency scaling here (a guest, or left to the firmware)"
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
    for name in ("current_driver", "current_governor", "current_governor_ro"):
        if facts.exists(f"{_CPU}/cpuidle/{name}"):
            facts.file(key("cpu", "idle", name.removeprefix("current_").removesuffix("_ro")), f"{_CPU}/cpuidle/{name}")
    states = facts.entries(f"{_CPU}/{cpus[0]}/cpuidle") if cpus else []
    if not states:
        facts.unknown("cpu/idle/states", f"{_CPU}/*/cpuidle", "the kernel shows no idle states")
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
