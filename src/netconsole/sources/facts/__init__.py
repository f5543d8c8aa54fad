"""Collects the facts of the host: how it is configured, each with its source, for snapshots and comparisons.

A fact's key is ``area/thing/property`` (``nic/eth0/offload/tx-tcp-segmentation``); docs/reference/facts.md has all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from netconsole.base.fact_keys import parts
from netconsole.host.target import Target
from netconsole.sources.facts import cpu, kernel, memory, namespaces, nics, ovs, tc, vms
from netconsole.sources.facts.reading import Fact, Facts, reason
from netconsole_collector.primitives.here import HERE

AREAS: dict[str, Callable[[Facts], None]] = {
    "kernel": kernel.collect,
    "cpu": cpu.collect,
    "memory": memory.collect,
    "conntrack": kernel.conntrack,
    "sysctl": kernel.sysctls,
    "netns": namespaces.collect,
    "vm": vms.collect,
    "nic": nics.collect,
    "tc": tc.collect,
    "namespace": namespaces.settings,
    "ovs": ovs.collect,
}
"""In this order, quick ones first. What does not answer in time is reported as unknown."""

TIMEOUT_S = 3.0
FAR_TIMEOUT_S = 15.0
"""Of a far host: about 50 questions go there one after another."""


def collect(timeout_s: float | None = None, target: Target = HERE) -> dict[str, Fact]:
    """The facts of a host.

    Takes ``timeout_s`` at most (by default TIMEOUT_S or FAR_TIMEOUT_S): if a driver does not answer, its area and the
    later ones are unknown, with the reason.
    Never raises. Runs no command and changes nothing. Without root privileges some facts are unknown.
    """
    if timeout_s is None:
        timeout_s = TIMEOUT_S if target.is_here else FAR_TIMEOUT_S
    facts = Facts(target.apart())
    finished: list[str] = []
    # A read that hangs in a driver cannot be interrupted. It stays behind in a daemon thread.
    worker = threading.Thread(target=_collect, args=(facts, finished), name="facts", daemon=True)
    started = time.monotonic()
    worker.start()
    worker.join(timeout_s)
    late = worker.is_alive()
    found = facts.taken()
    if late:
        for area in AREAS:
            if area not in finished:
                found[area] = Fact(None, "netconsole", why=f"not read within {timeout_s:g} s")
    found["collected_in_ms"] = Fact(round((time.monotonic() - started) * 1000), "netconsole", volatile=True)
    if facts.omitted:
        found["omitted"] = Fact(facts.omitted, "netconsole", volatile=True)
    return dict(sorted(found.items()))


def _collect(facts: Facts, finished: list[str]) -> None:
    facts.ahead((*kernel.FIXED, *cpu.FIXED, *memory.FIXED))
    for area, collect_area in AREAS.items():
        try:
            collect_area(facts)
        except OSError as error:
            facts.unknown(area, "netconsole", reason(error))
        except Exception as error:  # the snapshot must not fail: the area is unknown, with the reason
            facts.unknown(area, "netconsole", f"{type(error).__name__} while reading")
        finished.append(area)
    facts.target.close()


__all__ = ["AREAS", "TIMEOUT_S", "Fact", "Facts", "collect", "parts"]
