"""Every shipped probe compiles for the kernels of the lab, from their BTF alone; nothing of it is loaded here."""

from __future__ import annotations

import functools

import pytest

from tests.lab.kernels.compiled import compile_for, shipped
from tests.lab.kernels.each import EACH, USUAL
from tests.lab.kernels.fetch import KernelTree, fetch, kernel_named
from tests.lab.machine.errors import LabUnavailable

pytestmark = pytest.mark.computing

SHIPPED = shipped()


@pytest.mark.parametrize("kernel", EACH)
@pytest.mark.parametrize("probe", SHIPPED)
def test_a_shipped_probe_compiles_for_the_lab_s_kernels(probe: str, kernel: str) -> None:
    """With BTF-typed programs, where the probe has them there, and without.

    The lab loads what is compiled here, and whoever comes first compiles it. Without BTF-typed programs for the first
    kernel only: the others are the same source, and what differs in their types the other variant reads as well.
    """
    command = SHIPPED[probe]
    try:
        tree = tree_of(kernel)
        typed = compile_for(tree, command).programs
        if typed.direct and kernel == USUAL[0]:
            assert not compile_for(tree, command, plain=True).programs.direct
    except LabUnavailable as error:
        pytest.skip(str(error))
    for program in command["spec"]["programs"]:
        assert any(one["function"] in typed.functions for one in program["attach"]), program["name"]


@functools.cache
def tree_of(kernel: str) -> KernelTree:
    """Once in a process: apt takes half a second to say which package is the newest."""
    return fetch(kernel_named(kernel))
