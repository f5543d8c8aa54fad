"""The kernels of the lab as parameters of tests. One that is `long` keeps its test out of `make test`.

`make test-lab KERNEL=NAME` runs all of the lab's tests on that kernel, and no other. Of another architecture's that is
what its types say, and the file of tests that boots it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kernels import stored
from tests.lab.kernels.btf import KernelBtf, btf_files
from tests.lab.kernels.fetch import Kernel, all_kernels, fetch, kernel_named, kernels
from tests.lab.machine.errors import LabUnavailable

ONLY = os.environ.get("NETCONSOLE_LAB_KERNEL", "")
"""The kernel that was asked for by name; empty: all of them."""
DEFAULT = ONLY if ONLY and not kernel_named(ONLY).architecture else kernels()[0].name
"""Of tests that do not say which kernel: one of this machine's architecture, since they boot it."""
USUAL = [kernel.name for kernel in kernels() if not kernel.long]


def _parameter(kernel: Kernel) -> Any:
    return pytest.param(kernel.name, marks=[pytest.mark.long] if kernel.long else [])


EACH = [_parameter(kernel) for kernel in kernels() if kernel.name == (ONLY or kernel.name)]
COMPILED_FOR = [_parameter(kernel) for kernel in all_kernels() if kernel.name == (ONLY or kernel.name)]
"""With those of other architectures, which are not booted."""
_STORED = {
    kernel.name: pytest.param(stored.file_of(kernel.name), id=f"{kernel.name}-stored") for kernel in stored.kernels()
}
TYPES_OF_EACH = [*EACH, *(_STORED[kernel.name] for kernel in kernels() if kernel.name in _STORED)]
TYPES = [*COMPILED_FOR, *_STORED.values()]
"""With the stored types of those that are `long`: `make test` has these instead (stored.py)."""
PROVEN = [one for one in EACH if kernel_named(one.values[0]).share == kernel_named(DEFAULT).share]
"""Counts are proven on these. A kernel that differs only in how it was configured is left out."""


def types_of(one: str | Path, directory: Path) -> KernelBtf:
    """Of one of TYPES. Stored ones are unpacked into ``directory``. Skips the test if they cannot be had."""
    try:
        return stored.unpacked(one, directory) if isinstance(one, Path) else btf_files(fetch(kernel_named(one)))
    except LabUnavailable as error:
        pytest.skip(str(error))
