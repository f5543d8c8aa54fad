"""The bytecode reads every member where the kernel has it: offsets in compiled programs against BTF.

BCC compiles for the host and retargets to BPF; a header padded in the way of bpftool then gives wrong offsets without a
word (docs/design/kernel-types.md). Nothing but the bytecode shows it, so this is the only test that can.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from netconsole.probes import catalogue
from netconsole_collector.probe.spec import typed_modules
from netconsole_collector.types import btf as b
from netconsole_collector.types import header_tree, source_names
from netconsole_collector.types.btf import Btf, Member, module_paths
from netconsole_collector.types.kernel_types import TypeWriter
from tests.lab.kernels.btf import btf_files
from tests.lab.kernels.each import COMPILED_FOR
from tests.lab.kernels.fetch import fetch, kernel_named
from tests.lab.machine.errors import LabUnavailable
from tests.support.live.collector_driver import CHECKOUT, PYTHON, SOURCE

pytestmark = pytest.mark.computing

LIMIT_S = 120
OTHERS = [path for path in os.environ.get("NETCONSOLE_TEST_BTF", "").split(os.pathsep) if path]
"""Further kernels' BTF: files, with split BTF beside them."""
KERNELS = ("running", *OTHERS, *COMPILED_FOR)
CHECK = Path(__file__).parents[2] / "support/live/layout_check.py"
SUSPECT = ("Qdisc", "softnet_data", "net", "netdev_queue", "task_struct")
"""Structs with runs of padding between cache lines."""


def vmlinux_of(kernel: str) -> Path:
    if kernel == "running":
        return Path(b.VMLINUX)
    if kernel in OTHERS:
        return Path(kernel)
    try:
        return btf_files(fetch(kernel_named(kernel))).vmlinux
    except LabUnavailable as error:
        pytest.skip(str(error))


@cache
def types_of(vmlinux: Path, modules: tuple[str, ...]) -> Btf:
    return Btf(str(vmlinux), module_paths(modules, str(vmlinux.parent)))


class NaiveWriter(TypeWriter):
    """Types as bpftool writes them: natural alignment, padding as runs of unnamed ``long: 64;`` bit-fields."""

    def _body(self, identifier: int) -> str:
        return (
            super()
            ._body(identifier)
            .replace(f" __attribute__((packed, aligned({self.btf.alignment(identifier)})))", "")
        )

    def _gap(self, at: int, until: int) -> list[str]:
        fields = []
        while at < until:
            # Unlike bpftool's, also where the alignment alone would do it: the same layout.
            for c_type, bits in (("long", 64), ("int", 32), ("short", 16), ("char", 8)):
                if at % bits == 0 and until - at >= bits:
                    fields.append(f"{c_type}: {bits};")
                    at += bits
                    break
            else:
                bits = min(8 - at % 8, until - at)
                fields.append(f"char: {bits};")
                at += bits
        return fields

    def _pad(self, bits: int) -> list[str]:
        return []  # at the end of a union, whose largest member has its size


def plain_members(types: Btf, record: int, base: int = 0) -> list[tuple[int, Member]]:
    """Members that have an address, with their bit offsets, also those of anonymous structs and unions inside."""
    found = []
    for member in types.members(record):
        inner = types.strip(member.type)
        if not member.name and types.kind(inner) in (b.STRUCT, b.UNION):
            found += plain_members(types, inner, base + member.bit_offset)
        elif member.name and not member.bits:
            found.append((base + member.bit_offset, member))
    return found


class Header(NamedTuple):
    """The types that are written for one source, and what of them is looked at."""

    types: str
    members: list[tuple[str, str, int]]
    """Struct, member, and the byte at which BTF has it."""


def header(types: Btf, writer: TypeWriter, only: set[str] | None) -> Header:
    """Without its macros: they come last and change no type, but they would change those of the next header."""
    lines = [line for line in writer.text().splitlines() if not line.startswith("#")]
    members = [
        (writer.tag(record), member.name, bit_offset // 8)
        for record in writer.records()
        for bit_offset, member in plain_members(types, record)
        if only is None or member.name in only
    ]
    return Header("\n".join(lines), members)


def wrong_members(headers: list[Header]) -> list[list[str]]:
    """Of each header the members that compiled code reads at another offset than BTF says."""
    request = [{"types": one.types, "members": [(tag, name) for tag, name, _ in one.members]} for one in headers]
    done = subprocess.run(
        [PYTHON, str(CHECK), str(SOURCE)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ways: dict[str, list[list[int]]] = json.loads(done.stdout)
    return [
        [
            f"{tag}.{name}: at {expected}, {way} at {offset}"
            for way, offsets in ways.items()
            for (tag, name, expected), offset in zip(one.members, offsets[number], strict=True)
            if offset != expected
        ]
        for number, one in enumerate(headers)
    ]


bcc_names = cache(source_names.bcc_names)


def names_for(text: str) -> tuple[set[str], set[str]]:
    """Names that a source uses, and those that must not be written."""
    return source_names.used(text), bcc_names() | source_names.defined(text) | header_tree.type_names()


SHIPPED = sorted(name for name, probe in catalogue.load_all([CHECKOUT / "probes"]).items() if probe.source == "bpf")
PRIVATE = {
    "vhost_queues": ("vhost_virtqueue", "vhost_net_virtqueue", "vhost_net", "tun_file", "tun_struct"),
    "tun_queues": ("ptr_ring", "tun_file", "tun_struct", "vhost_net_virtqueue"),
    "irq_path": ("kvm_kernel_irqfd", "tun_file", "vhost_virtqueue"),
    "tx_kick_path": ("_ioeventfd", "tun_file", "vhost_virtqueue"),
    "kvm_irqs": ("kvm_kernel_irqfd", "kvm", "kvm_vcpu"),
    "virtio_guest": ("virtnet_info", "send_queue", "receive_queue", "virtqueue"),
    "ovs_upcalls": ("datapath", "dp_upcall_info", "vport", "ovs_skb_cb", "sw_flow", "sw_flow_key"),
    "ovs_drops": ("datapath", "vport", "ovs_skb_cb", "sw_flow_actions"),
    "host_path": ("dp_upcall_info",),
}
"""Private structures of modules, which have to be among those that were looked at."""


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_member_that_a_shipped_probe_names_is_read_where_it_is(kernel: str) -> None:
    vmlinux = vmlinux_of(kernel)
    headers = []
    for probe in SHIPPED:
        manifest = catalogue.shipped(probe)
        used, taken = names_for(manifest.code())
        types = types_of(vmlinux, tuple(typed_modules(dict(manifest.raw))))
        writer = TypeWriter(types, used | {"pt_regs"}, taken)
        headers.append(header(types, writer, used))
        private = PRIVATE.get(probe, ())
        here = [name for name in private if kernel != "running" or types.record(name) is not None]
        assert {f"struct {name}" for name in here} <= {writer.tag(record) for record in writer.records()}, probe
    assert {probe for probe, one in zip(SHIPPED, headers, strict=True) if len(one.members) <= 20} == set()
    assert {probe: wrong for probe, wrong in zip(SHIPPED, wrong_members(headers), strict=True) if wrong} == {}


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_member_of_the_structs_that_bpftool_gets_wrong(kernel: str) -> None:
    _, taken = names_for("")
    types = types_of(vmlinux_of(kernel), ())
    one = header(types, TypeWriter(types, {*SUSPECT, "pt_regs"}, taken), None)
    assert len(one.members) > 500
    assert wrong_members([one]) == [[]]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_check_fails_on_padding_in_the_way_of_bpftool(kernel: str) -> None:
    """The same structs with ``long: 64;`` padding: if this finds nothing wrong, the tests above are worth nothing."""
    _, taken = names_for("")
    types = types_of(vmlinux_of(kernel), ())
    [wrong] = wrong_members([header(types, NaiveWriter(types, {*SUSPECT, "pt_regs"}, taken), None)])
    assert any(line.startswith("struct Qdisc.") for line in wrong)
    assert len(wrong) > 5
