"""Types of this very kernel, sealed as `types make` seals them, but with two members of a struct exchanged.

Nothing tells from such a file that it is wrong. What is compared with others is: another module's types, and, while
the probe runs, living objects.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator

import pytest

from netconsole.probes import catalogue
from netconsole.probes.type_pruning import Types, name_offsets, written
from netconsole_collector.types import btf, copied_types
from tests.lab.collector import CompiledInside
from tests.lab.kernels.btf import btf_files, made_types
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import ping

ONLY_KERNEL = "debian-5.10"
pytestmark = pytest.mark.parametrize("testbed", [ONLY_KERNEL], indirect=True)

PROBE = "vhost_queues"
RECORD, EXCHANGED = "vhost_virtqueue", ("private_data", "acked_features")
MEMBER = struct.Struct("<III")
"""Name, type, place (Documentation/bpf/btf.rst)."""
FIRST_MEMBER_AT = 12
PINGS = 40

Carry = Callable[[list[str]], None]


def exchanged(file: bytes, vmlinux: bytes) -> bytes:
    """The file of a module where each of the two members is where the other one is."""
    line, _, content = file.partition(b"\n")
    types = Types(vmlinux, content)
    records = types.with_names({RECORD})
    assert records
    for number in records:
        one = types.types[number]
        names = [types.name(offset) for offset in name_offsets(one)[1:]]
        first, second = (FIRST_MEMBER_AT + MEMBER.size * names.index(name) for name in EXCHANGED)
        (*of_first, place), (*of_second, other) = MEMBER.unpack_from(one, first), MEMBER.unpack_from(one, second)
        MEMBER.pack_into(one, first, *of_second, place)
        MEMBER.pack_into(one, second, *of_first, other)
    return copied_types.sealed(json.loads(line[len(btf.SEAL) :]), (), written(types.types, bytes(types.strings)))


@pytest.fixture
def carry(testbed: Testbed) -> Iterator[Carry]:
    """Puts the types of these modules there with members exchanged; all are as they were afterwards."""
    hypervisor = testbed.hypervisor
    directory, vmlinux = made_types(hypervisor.release), btf_files(hypervisor.tree).vmlinux.read_bytes()

    def put(modules: list[str]) -> None:
        for module in modules:
            content = exchanged((directory / module).read_bytes(), vmlinux)
            hypervisor.write_file(f"{hypervisor.types_inside}/{module}", content)

    yield put
    hypervisor.carry(directory)


@pytest.fixture
def collector(testbed: Testbed) -> Iterator[CompiledInside]:
    collector = CompiledInside(testbed.hypervisor)
    yield collector
    collector.close()


def test_what_another_module_says_otherwise_is_refused(carry: Carry, collector: CompiledInside) -> None:
    carry(["vhost"])
    manifest = catalogue.shipped(PROBE)
    reply = collector.command(command="load", probe=PROBE, spec=manifest.raw, source=manifest.code())
    assert not reply.ok and collector.statuses[PROBE].state == "unsupported"
    assert f"{RECORD} is there several times, with different members" in (reply.error or "")


def test_what_all_modules_say_alike_is_found_out_by_living_queues(
    testbed: Testbed, carry: Carry, collector: CompiledInside
) -> None:
    """The probe ends what relies on it, and says why: no figure is made of it."""
    carry(["vhost", "vhost_net"])
    collector.load(PROBE)
    assert collector.statuses[PROBE].state == "attached"
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    collector.until(lambda: collector.statuses[PROBE].state == "degraded", "the refusal")
    assert "no queue of a tap, as the kernel's type information has both" in (collector.statuses[PROBE].why or "")
    assert not collector.rows(PROBE, "queues")
