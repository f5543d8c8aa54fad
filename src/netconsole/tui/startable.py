"""Which probes a session could start on its host: what is known not to run there is not offered."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from netconsole.probes.manifest import Manifest
from netconsole.telemetry.state import State
from netconsole_collector.compile.refused import NOT_LOADED
from netconsole_collector.kernel import attach, modules
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.known import KNOWN

LOOK_AGAIN_S = 5.0
"""The palette asks with every key that is typed there."""
_OF_EVERY_PROGRAM = ("privileges", "bcc")
"""What the host must be able to do for any BPF probe."""


class SourcesHere:
    """What sources find on this host: Open vSwitch or VMs, say. Not while the state is held.

    An ovs-vswitchd that does not answer takes a quarter of a second, so it is asked every LOOK_AGAIN_S at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_s = float("-inf")
        self._found: dict[str, bool] = {}

    def find(self, sources: Iterable[str]) -> set[str]:
        """Those of these sources that find something."""
        if self._clock() - self._looked_s >= LOOK_AGAIN_S:
            self._looked_s, self._found = self._clock(), {}
        found = set()
        for source in sources:
            if source not in self._found:
                self._found[source] = _finds(source)
            if self._found[source]:
                found.add(source)
        return found


def startable(state: State, manifests: Mapping[str, Manifest], here: Collection[str] | None) -> list[str]:
    """Names of the probes that are not in the session and may run.

    ``here``: the sources that find something on this host; None of a far host, of which no file is read.
    """
    return [
        name for name, one in manifests.items() if name not in state.probes and _may_run(one, state, manifests, here)
    ]


def _may_run(manifest: Manifest, state: State, manifests: Mapping[str, Manifest], here: Collection[str] | None) -> bool:
    if manifest.source != "bpf":
        return here is None or manifest.source in here
    if any(_lacks(state, name) for name in _OF_EVERY_PROGRAM):
        return False
    if _lacks(state, "kprobe") and attach.needing_kprobes(manifest.raw["programs"]):  # type: ignore[arg-type]
        return False
    return not manifest.module or not _is_absent(manifest.module, state, manifests, here is None)


def _finds(source: str) -> bool:
    """Whether a source finds on this host what it reads."""
    one = KNOWN[source]()
    try:
        one.open()
        return one.finds_any()
    except SourceError:
        return False
    finally:
        one.close()


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
