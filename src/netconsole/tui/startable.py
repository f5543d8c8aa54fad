"""Which probes a session could start on its host: what is known not to run there is not offered."""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.host.here import HERE
from netconsole.probes.manifest import Manifest
from netconsole.sources.base import SourceError
from netconsole.telemetry.state import State
from netconsole_collector.compile.refused import NOT_LOADED
from netconsole_collector.kernel import attach, modules

_OF_EVERY_PROGRAM = ("privileges", "bcc")
"""What the host must be able to do for any BPF probe."""


def startable(state: State, manifests: Mapping[str, Manifest], is_far: bool) -> list[str]:
    """Names of the probes that are not in the session and may run. Of a host that is ``is_far`` no file is read."""
    return [
        name for name, one in manifests.items() if name not in state.probes and _may_run(one, state, manifests, is_far)
    ]


def _may_run(manifest: Manifest, state: State, manifests: Mapping[str, Manifest], is_far: bool) -> bool:
    if manifest.source != "bpf":
        return is_far or _finds(manifest.source)
    if any(_lacks(state, name) for name in _OF_EVERY_PROGRAM):
        return False
    if _lacks(state, "kprobe") and attach.needing_kprobes(manifest.raw["programs"]):  # type: ignore[arg-type]
        return False
    return not manifest.module or not _is_absent(manifest.module, state, manifests, is_far)


def _finds(source: str) -> bool:
    """Whether a source of the console's own finds on this host what it reads: Open vSwitch or VMs, say."""
    from netconsole.sources import vm_states
    from netconsole.sources.runner import FACTORIES

    if FACTORIES[source] is vm_states.VmStates:  # it opens without any VM: one may start later
        return vm_states.any_vm()
    one = FACTORIES[source](HERE)
    try:
        one.open()
    except SourceError:
        return False
    finally:
        one.close()
    return True


def _lacks(state: State, name: str) -> bool:
    """Whether the host says that it cannot do this. What it did not say is tried."""
    found = state.capabilities.get(name)
    return found is not None and not found.ok


def _is_absent(module: str, state: State, manifests: Mapping[str, Manifest], is_far: bool) -> bool:
    """Another probe of the same module may have found out already."""
    said = NOT_LOADED.format(module)
    for name, probe in state.probes.items():
        if name in manifests and manifests[name].module == module:
            if probe.measuring:
                return False
            if probe.status == "unsupported" and probe.why == said:
                return True
    return not is_far and not modules.is_loaded(module)
