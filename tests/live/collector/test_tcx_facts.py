"""Facts say which BPF programs of tcx are at a device, and from which filters they hide packets."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netconsole_collector.questions.facts import tcx
from netconsole_collector.questions.facts.reading import Facts
from tests.support.live.faults import all_faults
from tests.support.live.network import Namespace, Wire

CLONE_NEWNET = 0x40000000
LIMIT_S = 60.0
DEVICE = Wire.DEVICES[1]
(PROGRAM,) = (one["code"] for fault in all_faults() if fault.name == "tcx" for one in fault.program)
"""It puts the program cil_from_host there on receipt, as long as it is not told to end."""


def found(namespace: Namespace) -> dict[str, object]:
    """The facts, asked in a thread that is in the namespace."""

    def asked() -> dict[str, object]:
        with Path("/run/netns", namespace.name).open() as file:
            assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
        facts = Facts()
        tcx.collect(facts)
        return {name: fact.value for name, fact in facts.taken().items()}

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asked).result(LIMIT_S)


def test_a_program_is_told_with_the_filters_behind_it(wire: Wire) -> None:
    b, where = wire.b, f"tc/{DEVICE}/tcx/ingress"
    b.tc("qdisc", "add", "dev", DEVICE, "clsact")
    server = b.start(PROGRAM)
    try:
        assert server.stdout is not None
        if server.stdout.readline() == "no tcx\n":
            pytest.skip("this kernel has no tcx")
        assert found(b) == {where: "cil_from_host"}
        b.tc("filter", "add", "dev", DEVICE, "egress", "pref", "8", "u32", "match", "u32", "0", "0", "classid", "1:1")
        assert found(b) == {where: "cil_from_host"}  # in the other direction
        b.tc("filter", "add", "dev", DEVICE, "ingress", "pref", "7", "u32", "match", "u32", "0", "0", "classid", "1:1")
        assert found(b) == {where: "cil_from_host", f"{where}/hides_from": "u32 pref 7"}
    finally:
        server.communicate(timeout=LIMIT_S)
        b.tc("qdisc", "del", "dev", DEVICE, "clsact")
    assert found(b) == {}
