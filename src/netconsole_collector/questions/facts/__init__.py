"""Question `facts`: how the host is configured, each fact with its source, for snapshots and comparisons.

A fact's key is ``area/thing/property`` (``nic/eth0/offload/tx-tcp-segmentation``); docs/reference/facts.md has all.
"""

import json
import threading
import time
from typing import Any, Callable, Dict, List

from netconsole_collector.questions.facts import blocks, cpu, kernel, memory, namespaces, nics, ovs, tc, tcx, vms
from netconsole_collector.questions.facts.reading import Fact, Facts, Json, reason

AREAS: Dict[str, Callable[[Facts], None]] = {
    "kernel": kernel.collect,
    "cpu": cpu.collect,
    "memory": memory.collect,
    "conntrack": kernel.conntrack,
    "sysctl": kernel.sysctls,
    "netns": namespaces.collect,
    "vm": vms.collect,
    "block": blocks.collect,
    "nic": nics.collect,
    "tc": tc.collect,
    "tcx": tcx.collect,
    "namespace": namespaces.settings,
    "ovs": ovs.collect,
}
"""In this order, quick ones first. What does not answer in time is reported as unknown."""

TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 3 << 19
"""Of the facts in an answer, beside those messages; what does not fit is counted as omitted."""


def answer(arguments: Json) -> Any:
    """``{"facts": {KEY: [value, source, why, volatile]}, "tc": messages}``."""
    facts = Facts()
    found = collect(facts)
    told: Dict[str, Fact] = {}
    size = 0
    for name, fact in found.items():
        size += len(json.dumps([name, fact]))
        if size > MAX_ANSWER_BYTES:
            facts.omitted += 1
        else:
            told[name] = fact
    if facts.omitted:
        told["omitted"] = Fact(facts.omitted, "netconsole", volatile=True)
    return {"facts": told, "tc": facts.messages}


def collect(facts: Facts, timeout_s: float = TIMEOUT_S) -> Dict[str, Fact]:
    """The facts of a host.

    Takes ``timeout_s`` at most: if a driver does not answer, its area and the later ones are unknown, with the reason.
    Never raises. Runs no command and changes nothing. Without root privileges some facts are unknown.
    """
    finished: List[str] = []
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
    return dict(sorted(found.items()))


def _collect(facts: Facts, finished: List[str]) -> None:
    for area, collect_area in AREAS.items():
        try:
            collect_area(facts)
        except OSError as error:
            facts.unknown(area, "netconsole", reason(error))
        except Exception as error:  # the snapshot must not fail: the area is unknown, with the reason
            facts.unknown(area, "netconsole", f"{type(error).__name__} while reading")
        finished.append(area)
