"""The bytecode reads every member where the kernel has it: offsets in compiled programs against BTF.

BCC compiles for the host and retargets to BPF; a header padded in the way of bpftool then gives wrong offsets without a
word (docs/kernel-types.md). Nothing but the bytecode shows it, so this is the only test that can.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.lab.btf import lab_btf_files
from tests.lab.errors import LabUnavailable

from netconsole import probes
from netconsole_collector import btf as b
from netconsole_collector import header_tree, kernel_macros, source_names
from netconsole_collector.btf import Btf, Member, module_paths
from netconsole_collector.kernel_types import TypeWriter

from .collector_driver import CHECKOUT, PYTHON, SOURCE

pytestmark = pytest.mark.live

LIMIT_S = 120
KERNELS = ("running", *(path for path in os.environ.get("NETCONSOLE_TEST_BTF", "").split(os.pathsep) if path), "lab")
"""Other kernels' BTF: files named in NETCONSOLE_TEST_BTF (with split BTF beside them), and the lab's."""
CHECK = Path(__file__).with_name("layout_check.py")
SUSPECT = ("Qdisc", "softnet_data", "net", "netdev_queue", "task_struct")
"""Structs with runs of padding between cache lines."""
MEMBERS_AT_ONCE = 400


def vmlinux_of(kernel: str) -> list[Path]:
    if kernel == "running":
        return [Path(b.VMLINUX)]
    if kernel != "lab":
        return [Path(kernel)]
    try:
        return [files.vmlinux for files in lab_btf_files()]
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


def wrong_members(types: Btf, writer: TypeWriter, only: set[str] | None) -> tuple[list[str], int]:
    """Members that compiled code reads at another offset than BTF says, and how many were looked at."""
    writer_text = writer.text()
    tree = header_tree.files(writer_text + kernel_macros.define(writer.used))
    wanted = []
    for record in writer.records():
        for bit_offset, member in plain_members(types, record):
            if only is None or member.name in only:
                wanted.append((writer.tag(record), member.name, bit_offset // 8))
    wrong = []
    for start in range(0, len(wanted), MEMBERS_AT_ONCE):
        part = wanted[start : start + MEMBERS_AT_ONCE]
        request = {"tree": tree, "members": [(tag, name) for tag, name, _ in part]}
        done = subprocess.run(
            [PYTHON, str(CHECK), str(SOURCE)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        for (tag, name, expected), offset in zip(part, json.loads(done.stdout), strict=True):
            if offset != expected:
                wrong.append(f"{tag}.{name}: at {expected}, read at {offset}")
    return wrong, len(wanted)


def names_for(text: str) -> tuple[set[str], set[str]]:
    """Names that a source uses, and those that must not be written."""
    return source_names.used(text), source_names.bcc_names() | source_names.defined(text) | header_tree.type_names()


SHIPPED = sorted(name for name, probe in probes.load_all([CHECKOUT / "probes"]).items() if probe.source == "bpf")
PRIVATE = {
    "vhost_queues": ("vhost_virtqueue", "vhost_net_virtqueue", "vhost_net", "tun_file", "tun_struct"),
    "tun_queues": ("ptr_ring", "tun_file", "tun_struct", "vhost_net_virtqueue"),
    "irq_path": ("kvm_kernel_irqfd", "tun_file", "vhost_virtqueue"),
    "tx_kick_path": ("_ioeventfd", "tun_file", "vhost_virtqueue"),
    "kvm_irqs": ("kvm_kernel_irqfd", "kvm", "kvm_vcpu"),
    "virtio_guest": ("virtnet_info", "send_queue", "receive_queue", "virtqueue"),
    "ovs_upcalls": ("datapath", "dp_upcall_info", "vport", "ovs_skb_cb", "sw_flow", "sw_flow_key"),
    "ovs_drops": ("datapath", "vport", "vport_ops", "ovs_skb_cb", "sw_flow_actions"),
    "host_path": ("dp_upcall_info",),
}
"""Private structures of modules, which have to be among those that were looked at."""


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("probe", SHIPPED)
def test_every_member_that_a_shipped_probe_names_is_read_where_it_is(probe: str, kernel: str) -> None:
    manifest = probes.load(CHECKOUT / "probes" / probe)
    text = manifest.common_code() + manifest.code()
    used, taken = names_for(text)
    for vmlinux in vmlinux_of(kernel):
        modules = manifest.raw["probe"].get("btf_modules", [])  # type: ignore[attr-defined]
        types = types_of(vmlinux, tuple(modules))
        writer = TypeWriter(types, used | {"pt_regs"}, taken)
        wrong, looked_at = wrong_members(types, writer, used)
        assert looked_at > 20
        assert wrong == []
        private = PRIVATE.get(probe, ())
        here = [name for name in private if kernel != "running" or types.record(name) is not None]
        assert {f"struct {name}" for name in here} <= {writer.tag(record) for record in writer.records()}


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_member_of_the_structs_that_bpftool_gets_wrong(kernel: str) -> None:
    _, taken = names_for("")
    for vmlinux in vmlinux_of(kernel):
        types = types_of(vmlinux, ())
        wrong, looked_at = wrong_members(types, TypeWriter(types, {*SUSPECT, "pt_regs"}, taken), None)
        assert looked_at > 500
        assert wrong == []


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_check_fails_on_padding_in_the_way_of_bpftool(kernel: str) -> None:
    """The same structs with ``long: 64;`` padding: if this finds nothing wrong, the tests above are worth nothing."""
    _, taken = names_for("")
    for vmlinux in vmlinux_of(kernel):
        types = types_of(vmlinux, ())
        wrong, _ = wrong_members(types, NaiveWriter(types, {*SUSPECT, "pt_regs"}, taken), None)
        assert any(line.startswith("struct Qdisc.") for line in wrong)
        assert len(wrong) > 5
