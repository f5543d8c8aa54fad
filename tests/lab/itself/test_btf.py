"""The BTF from the kernel packages is the same that the kernels have at run time."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from netconsole.probes import catalogue as probes
from netconsole.probes.manifest import Manifest
from netconsole.run.doctor import limits_on
from netconsole_collector.kernel import attach
from netconsole_collector.names import drop_reasons
from netconsole_collector.types import btf, kernel_types, prototypes
from tests.conftest import CANNOT
from tests.lab.kernels.btf import KernelBtf
from tests.lab.kernels.each import COMPILED_FOR, EACH, TYPES, TYPES_OF_EACH, types_of
from tests.lab.kernels.elf import Elf
from tests.lab.kernels.fetch import fetch, kernel_named
from tests.lab.kernels.image import decompress, unpack_image
from tests.lab.machine.hypervisor import CHECKOUT
from tests.lab.machine.initramfs import load_order

pytestmark = pytest.mark.computing

BTF_MAGIC = 0xEB9F
REFERENCES = CHECKOUT / "tests" / "lab" / "console" / "references"
VM_PATH = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs")


@pytest.fixture(scope="module", params=TYPES_OF_EACH)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KernelBtf:
    return types_of(request.param, tmp_path_factory.mktemp("types"))


def all_types(files: KernelBtf) -> btf.Btf:
    """All that the kernel has; the lab's CPU is AMD's."""
    return btf.Btf(str(files.vmlinux), [str(path) for name, path in files.modules.items() if name != "kvm_intel"])


def test_vmlinux_and_modules_have_types(files: KernelBtf) -> None:
    for path in (files.vmlinux, *files.modules.values()):
        data = path.read_bytes()
        data = data.partition(b"\n")[2] if data.startswith(btf.SEAL) else data
        # Documentation/bpf/btf.rst: magic, version, flags, header length, type offset and length, string offset, length
        magic, version, _, header, type_at, type_length, string_at, string_length = struct.unpack_from(
            "<HBBIIIII", data
        )
        assert (magic, version) == (BTF_MAGIC, 1)
        assert type_length > 0
        assert header + max(type_at + type_length, string_at + string_length) == len(data)
    assert b"\0sk_buff\0" in files.vmlinux.read_bytes()
    assert b"\0vhost_virtqueue\0" in files.modules["vhost"].read_bytes()


def with_modules(files: KernelBtf, *names: str) -> btf.Btf:
    return btf.Btf(str(files.vmlinux), [str(files.modules[name]) for name in ("irqbypass", "kvm", *names)])


@pytest.mark.parametrize("vendor", ["kvm_intel", "kvm_amd"])
@pytest.mark.parametrize("probe", VM_PATH)
def test_the_way_to_a_guest_can_be_measured_on_either_vendor(files: KernelBtf, probe: str, vendor: str) -> None:
    """The lab emulates AMD; of Intel, posted interrupts or not, there is what the modules say of themselves."""
    types = with_modules(files, vendor, "tun", "tap", "vhost_iotlb", "vhost", "vhost_net")
    for program in probes.shipped(probe).raw["programs"]:  # type: ignore[attr-defined]
        problems = obstacles(types, program)
        assert None in problems.values(), problems


@pytest.mark.parametrize("files", TYPES, indirect=True)
def test_no_kernel_lacks_what_a_probe_requires(files: KernelBtf) -> None:
    """A program that a kernel of one architecture cannot have is optional: it does not take the others with it."""
    types, made = all_types(files), kernel_named(files.kernel).made
    without = [
        (name, program["name"], problems)
        for name, manifest in probes.load_all([CHECKOUT / "probes"]).items()
        if manifest.source == "bpf"
        for program in programs_for(types, manifest)
        if program.get("required", True) and None not in (problems := obstacles(types, program, made)).values()
    ]
    assert without == []


def programs_for(types: btf.Btf, manifest: Manifest) -> list[dict[str, Any]]:
    """Those that a kernel with these types needs: it may do without one (``unless``)."""
    programs: list[dict[str, Any]] = manifest.raw["programs"]  # type: ignore[assignment]
    return [one for one in programs if not ("unless" in one and has(types, one["unless"]))]


def has(types: btf.Btf, fact: str) -> bool:
    return f" {fact} " in kernel_types.facts(types, {fact})


def obstacles(types: btf.Btf, program: dict[str, Any], made: bool = False) -> dict[str, str | None]:
    """What these types have against each attach point of a program, in the manifest's order; None: nothing.

    A point may be there twice, for two prototypes of its function. `made`: the kernel's modules have no types of their
    own.
    """
    found: dict[str, str | None] = {}
    for alternative in program["attach"]:
        if found.get(alternative["point"], "not tried") is not None:
            found[alternative["point"]] = obstacle(types, alternative, made)
    return found


def obstacle(types: btf.Btf, alternative: dict[str, Any], made: bool) -> str | None:
    """What these types have against one alternative."""
    point = attach.parse(alternative["point"])
    when = alternative.get("when")
    if when and not has(types, when):
        return f"this kernel has no {when.partition('_')[2]}"
    if point.kind == attach.XDP:
        return None if point.category == "generic" else "doctor tries XDP at lo, which has no driver"
    if point.kind == "raw_tracepoint":
        return None if types.named(f"btf_trace_{point.name}", (btf.TYPEDEF,)) else f"no tracepoint {point.name}"
    problem = prototypes.problem(types, point.name, alternative.get("takes", []))
    if problem is None and is_without_its_arguments(types, alternative, point, made):
        return "a kretprobe does not have the arguments of its function"
    return problem


def is_without_its_arguments(types: btf.Btf, alternative: dict[str, Any], point: attach.Point, made: bool) -> bool:
    """Only fexit has them when a function returns. A kernel has that for the modules that brought their own types."""
    if not made or point.kind != "return" or "takes" not in alternative:
        return False
    _, part = types.own_id(types.named(point.name, (btf.FUNC,))[0])
    return part > 0


def test_each_reviewed_attach_point_is_the_first_that_the_kernel_has(files: KernelBtf) -> None:
    """And each shipped probe is in the reference of this kernel. test_doctor.py holds it against the running kernel."""
    reviewed = json.loads((REFERENCES / f"{files.kernel}.json").read_text("utf-8"))["probes"]
    types = all_types(files)
    catalogue, made = probes.load_all([CHECKOUT / "probes"]), kernel_named(files.kernel).made
    assert sorted(reviewed) == sorted(catalogue)
    for name, manifest in catalogue.items():
        if manifest.source != "bpf" or reviewed[name]["state"] == "unsupported":
            continue
        expected = {}
        for program in programs_for(types, manifest):
            expected[program["name"]] = next(
                (point for point, problem in obstacles(types, program, made).items() if problem is None), None
            )
        taken = {one: point and attach.written(point) for one, point in reviewed[name]["attach"].items()}
        assert taken.keys() == expected.keys()
        for program, point in expected.items():  # the manifest names a function, or one kind of program on it
            assert taken[program] is point or point in taken[program], (name, program)


@pytest.mark.parametrize("files", [one for one in TYPES if one not in TYPES_OF_EACH], indirect=True)
def test_what_would_attach_to_a_kernel_that_is_not_run_was_reviewed(
    files: KernelBtf, request: pytest.FixtureRequest
) -> None:
    """doctor says nothing of it: its types do. After an intended change run this with --update-references."""
    found = {"by_types": True, "probes": what_would_attach(files)}
    path = REFERENCES / f"{files.kernel}.json"
    if request.config.getoption("--update-references", default=False):
        path.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    assert found == json.loads(path.read_text("utf-8")), f"see the head of this test; what changed is {path.name}"


def what_would_attach(files: KernelBtf) -> dict[str, Any]:
    """Of each probe, as references have what doctor says (test_doctor.py)."""
    types = all_types(files)
    found: dict[str, Any] = {}
    for name, manifest in probes.load_all([CHECKOUT / "probes"]).items():
        if manifest.source != "bpf":
            continue
        programs = [(one, obstacles(types, one)) for one in programs_for(types, manifest)]
        points = {one["name"]: next((p for p, why in tried.items() if not why), None) for one, tried in programs}
        missing = [(one, tried) for one, tried in programs if points[one["name"]] is None]
        limits = limits_on(manifest, files.version)
        is_refused = any(one.get("required", True) for one, _ in missing)
        found[name] = {
            "state": "unsupported" if is_refused else "degraded" if missing else "attached",
            "why": "; ".join([*(f"{one['measures']} is not measured" for one, _ in missing), *limits]) or None,
            "help": None,
            "types": "btf",
            "attach": points,
            "tried": [{"point": p, "why": why} for _, tried in missing for p, why in tried.items()],
        }
    return found


@pytest.mark.parametrize("files", COMPILED_FOR, indirect=True)
def test_drop_reasons_of_kernels_have_a_class(files: KernelBtf, tmp_path: Path) -> None:
    """Those of its modules, too. One without a class is not judged: it would never be told as a loss."""
    found = btf.Btf(str(files.vmlinux), [str(files.modules["openvswitch"]), *radio_types(files, tmp_path)])
    names = drop_reasons.values_of(drop_reasons.from_btf(found))
    assert [name for name in sorted(names) if drop_reasons.class_of(name) == drop_reasons.UNKNOWN] == []
    causes = probes.shipped("kernel_drops").tables["drops"].causes
    assert causes is not None
    assert [name for name in sorted(names) if (one := causes.of({"reason": name})) is None or not one.where] == []


def radio_types(files: KernelBtf, directory: Path) -> list[str]:
    """The types of mac80211, which no probe names. A cloud's kernel does not have it, 5.10 no types of modules."""
    tree = fetch(kernel_named(files.kernel))
    module = next(tree.modules.rglob("mac80211.ko*"), None)
    if module is None or tree.kernel.made:
        return []
    types = directory / "mac80211"
    types.write_bytes(Elf(decompress(module.read_bytes())).types())
    return [str(types)]


@pytest.mark.parametrize("files", EACH, indirect=True)
@pytest.mark.parametrize(("vendor", "delivery"), [("kvm_intel", "vmx"), ("kvm_amd", "svm")])
def test_interrupts_are_accepted_before_vendors_part(files: KernelBtf, vendor: str, delivery: str) -> None:
    """S5 is in kvm itself, its last argument the vector; what a vendor does with it (posting, say) comes behind: all of
    kvm's machine code has one call of that, in the function that has told of S5 before."""
    if kernel_named(files.kernel).made:
        pytest.skip(f"{CANNOT}of this kernel's modules there is only what probes name")
    types = with_modules(files, vendor)
    (accepted,) = types.named("btf_trace_kvm_apic_accept_irq", (btf.TYPEDEF,))
    taken = [prototypes.type_name(types, one) for one in types.parameter_types(types.strip(accepted))]
    assert taken == ["void *", "__u32", "__u16", "__u16", "__u8"]
    *_, kvm = load_order(fetch(kernel_named(files.kernel)).modules, ["kvm"])
    code = Elf(decompress(kvm.read_bytes()))
    (told,), (delivered,) = code.traces("kvm_apic_accept_irq"), code.calls("__SCT__kvm_x86_deliver_interrupt")
    assert told.function == delivered.function == "__apic_accept_irq"
    assert told.offset < delivered.offset
    assert prototypes.problem(types, f"{delivery}_deliver_interrupt", ["kvm_lapic *", "int", "int", "int"]) is None


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="HdrS"):
        unpack_image(b"\0" * 4096)
    with pytest.raises(ValueError, match="ELF"):
        Elf(b"no kernel")
