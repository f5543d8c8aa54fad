"""A program is only attached to a function that takes what the program expects of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.probes import catalogue
from netconsole_collector.kernel import attach
from netconsole_collector.types import btf, prototypes

VM_PATH = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs", "virtio_guest")


@pytest.fixture(scope="module")
def types() -> btf.Btf:
    if not Path(btf.VMLINUX).exists():
        pytest.skip("this kernel has no BTF")
    return btf.Btf()


def test_what_every_kernel_has_is_accepted(types: btf.Btf) -> None:
    # include/linux/skbuff.h, unchanged since 2.6
    assert prototypes.problem(types, "skb_put", ["sk_buff *", "unsigned int"]) is None


def test_fewer_arguments_may_be_expected_than_there_are(types: btf.Btf) -> None:
    assert prototypes.problem(types, "skb_put", ["sk_buff *"]) is None


def test_another_type_is_refused_and_both_are_named(types: btf.Btf) -> None:
    problem = prototypes.problem(types, "skb_put", ["net_device *", "unsigned int"])
    assert problem == "skb_put takes (sk_buff *, unsigned int) here, expected (net_device *, unsigned int)"


def test_more_arguments_than_there_are_is_refused(types: btf.Btf) -> None:
    assert prototypes.problem(types, "skb_put", ["sk_buff *", "unsigned int", "int"]) is not None


def test_a_copy_made_by_the_compiler_has_no_known_arguments(types: btf.Btf) -> None:
    problem = prototypes.problem(types, "skb_put.isra.0", ["sk_buff *"])
    assert problem is not None and "not known" in problem


def test_typedefs_of_structs_are_the_struct(types: btf.Btf) -> None:
    # wait_queue_entry_t in include/linux/wait.h
    wake = types.named("autoremove_wake_function", (btf.FUNC,))[0]
    assert prototypes.arguments(types, wake) == ["wait_queue_entry *", "unsigned int", "int", "void *"]


@pytest.mark.parametrize("probe", VM_PATH)
def test_no_function_on_the_way_to_a_guest_is_taken_by_its_name_alone(probe: str) -> None:
    for program in catalogue.shipped(probe).raw["programs"]:  # type: ignore[attr-defined]
        for alternative in program["attach"]:
            point = attach.parse(alternative["point"])
            assert "." not in point.name, "a copy made by the compiler"
            assert point.kind != "entry" or alternative["takes"]


def test_of_functions_that_were_renamed_this_kernels_are_accepted(types: btf.Btf) -> None:
    """eventfd_signal and kvm_vcpu_kick have other names and arguments on newer kernels: where one is, it must do."""
    for probe in VM_PATH:
        for program in catalogue.shipped(probe).raw["programs"]:  # type: ignore[attr-defined]
            found = {}
            for alternative in program["attach"]:
                point = attach.parse(alternative["point"])
                if point.kind == "entry" and types.named(point.name, (btf.FUNC,)):
                    found[point.name] = prototypes.problem(types, point.name, alternative["takes"])
            assert not found or None in found.values(), found
