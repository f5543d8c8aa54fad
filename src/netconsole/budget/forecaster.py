"""Makes forecasts on a host: counts the calls of the hooks, and takes the best known times of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netconsole.budget.forecast import Forecast, Hook, HookRates, excess, forecast, times_of
from netconsole.calibrate import store
from netconsole.calibrate.tool import Tool
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.probes.includes import behind_headers
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.profile.spending import packets_per_s
from netconsole.telemetry.frames import Mode
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.state import State
from netconsole_collector.kernel.attach import XDP_POINTS, written


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts made together, and the packets that the kernel received meanwhile."""

    forecasts: Sequence[Forecast]
    packets_per_s: float | None


def forecast_now(
    wanted: Sequence[tuple[Manifest, Mode]],
    running: Mapping[str, Mapping[str, float]] | None = None,
    host: AnyHost = THIS_HOST,
) -> Forecasts:
    """What these would cost now. Takes 2 to 3 s. ``running``: ns per run by probe and program, measured now.

    Raises Unable when hooks cannot be counted on that host.
    """
    known = store.known(door.describe(host) if host.about is not None else None)
    measured = measure_hooks([manifest for manifest, _ in wanted], host=host)
    made = [
        forecast(manifest, mode, measured, times_of(manifest, mode, known, (running or {}).get(manifest.name)))
        for manifest, mode in wanted
    ]
    return Forecasts(made, measured.packets_per_s)


def running_times(state: State, probe: str) -> dict[str, float]:
    """ns per run, by program of a running probe, from its statistics so far."""
    known = state.probes.get(probe)
    programs = known.cost.programs.values() if known is not None and known.measuring else ()
    return {one.name: one.ns_per_run for one in programs if one.ns_per_run is not None}


def excess_beside(state: State, one: Forecast, budget: Budget) -> str | None:
    """The limit that a probe would exceed together with all others that run; None when none is known."""
    return excess([one], budget, running_pct(state, without=one.probe), packets_per_s(state))


def running_pct(state: State, without: str = "") -> float:
    """In-kernel time of all running probes except ``without``, percent of one core."""
    running = (probe for probe in state.probes.values() if probe.measuring and probe.name != without)
    return sum(probe.kernel_cpu_pct or 0.0 for probe in running)


NAME = "hooks"
MOMENT_S = 0.5
"""Long enough to find the rate of a busy hook, short enough to wait for before a probe starts."""
MAX_CPUS = 8192
_INSTEAD_OF_XDP = "raw_tracepoint:netif_receive_skb"
"""Where packets are counted for an XDP program: at one device it sees no more. One that counts would change the device.
"""

_CODE = """
struct hook_on_cpu {
    u32 hook;
    u32 cpu;
};
BPF_TABLE("percpu_hash", struct hook_on_cpu, u64, hook_runs, NC_ROWS_hook_runs);

static inline int count_run(u32 hook)
{
    struct hook_on_cpu key = { .hook = hook, .cpu = bpf_get_smp_processor_id() };
    u64 *count, none = 0;

    count = hook_runs.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    return 0;
}
"""


@dataclass(slots=True)
class _Wanted:
    """The programs to load: one for all programs of the probes that have the same alternatives."""

    specs: list[Mapping[str, object]] = field(default_factory=list)
    code: str = _CODE
    known: set[tuple[object, object]] = field(default_factory=set)


def request(manifests: Sequence[Manifest]) -> ProbeRequest:
    """A probe that counts how often each of these hooks runs, by CPU."""
    wanted = _Wanted()
    for manifest in manifests:
        programs = manifest.raw["programs"]
        for program in programs if isinstance(programs, list) else ():
            _add(wanted, program)
    rows = min(65536, len(wanted.specs) * 128)
    table = {
        "max_rows": rows,
        "key": [{"name": "hook", "type": "u32"}, {"name": "cpu", "type": "u32", "as": "cpu"}],
        "value": [{"name": "count", "type": "u64"}],
    }
    modules = sorted({module for manifest in manifests for module in manifest.btf_modules})
    spec = {
        "probe": {"name": NAME, "version": 1, "modes": ["summary"], "btf_modules": modules},
        "programs": wanted.specs,
        "tables": {"hook_runs": table},
    }
    return ProbeRequest(NAME, "summary", {}, spec, behind_headers(wanted.code))


def _add(wanted: _Wanted, program: Mapping[str, object]) -> None:
    alternatives = program["attach"]
    assert isinstance(alternatives, list)
    same = tuple((one["point"], one.get("when")) for one in alternatives), program.get("unless")
    if same in wanted.known:
        return
    wanted.known.add(same)
    number = len(wanted.specs)
    attach = [{**one, "point": _counted_at(one["point"]), "function": f"hook_{number}"} for one in alternatives]
    kept = {key: program[key] for key in ("measures", "module", "unless") if key in program}
    wanted.specs.append({**kept, "name": f"hook_{number}", "required": False, "attach": attach})
    wanted.code += f"\nint hook_{number}(void *ctx)\n{{\n    return count_run({number});\n}}\n"


def measure_hooks(manifests: Sequence[Manifest], moment_s: float = MOMENT_S, host: AnyHost = THIS_HOST) -> HookRates:
    """Count the calls for ``moment_s``. Raises Unable when the collector cannot start or nothing can be attached."""
    with Tool(host) as tool:
        tool.attach(request(manifests))
        before, began = _packets(host), time.monotonic()
        with tool.run_times() as runs:
            time.sleep(moment_s)
        after, ended = _packets(host), time.monotonic()
    elapsed_s = runs.elapsed_ns.get(NAME, 0) / 1e9
    took_ns = {program.attach: program for program in runs.programs.values()}
    names = {int(name.removeprefix("hook_")): program.attach for (_, name), program in runs.programs.items()}
    by_cpu: dict[str, dict[int, float]] = {attach: {} for attach in names.values()}
    for (_, _, labels), count in runs.rows.items():
        hook, cpu = dict(labels).get("hook"), dict(labels).get("cpu")
        if isinstance(hook, int) and isinstance(cpu, int) and hook in names:
            by_cpu[names[hook]][cpu] = count / elapsed_s if elapsed_s else 0.0
    hooks = {
        point: Hook(rates, took_ns[attach].run_time_ns / took_ns[attach].run_count)
        if took_ns[attach].run_count
        else Hook(rates, None)
        for attach, rates in by_cpu.items()
        for point in written(attach)
    }
    hooks.update((point, hooks[_INSTEAD_OF_XDP]) for point in XDP_POINTS if _INSTEAD_OF_XDP in hooks)
    packets = None if before is None or after is None else max(0, after - before) / (ended - began)
    return HookRates(hooks, packets)


def _counted_at(point: str) -> str:
    return _INSTEAD_OF_XDP if point in XDP_POINTS else point


def _packets(host: AnyHost) -> int | None:
    """Packets that the kernel received so far; None where that is not known."""
    try:
        return door.ask(host, "machine", None, door.MachineNow).packets
    except Unanswered:
        return None
