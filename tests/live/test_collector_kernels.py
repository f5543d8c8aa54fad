"""Every shipped probe compiles for the kernels of the lab, from their BTF alone; nothing of it is loaded here."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest
from tests.lab.btf import btf_files
from tests.lab.errors import LabUnavailable
from tests.lab.fetch import fetch, kernel_named, kernels

from netconsole import probes
from netconsole.manifest import Manifest
from netconsole_collector import bpf
from netconsole_collector.compile_job import CompileJob

from .collector_driver import CHECKOUT, PYTHON

pytestmark = pytest.mark.live

SHIPPED = sorted(name for name, probe in probes.load_all([CHECKOUT / "probes"]).items() if probe.source == "bpf")


@pytest.mark.parametrize("kernel", [kernel.name for kernel in kernels()])
@pytest.mark.parametrize("probe", SHIPPED)
def test_a_shipped_probe_compiles_for_the_lab_s_kernels(probe: str, kernel: str) -> None:
    """With BTF-typed programs, where the probe has them there, and without."""
    try:
        tree = fetch(kernel_named(kernel))
        vmlinux = btf_files(tree).vmlinux
    except LabUnavailable as error:
        pytest.skip(str(error))
    manifest = probes.load(CHECKOUT / "probes" / probe)
    if compiles_directly(manifest, vmlinux, tree.version, plain=False):
        assert not compiles_directly(manifest, vmlinux, tree.version, plain=True)


def compiles_directly(manifest: Manifest, vmlinux: Path, release: str, plain: bool) -> bool:
    """Whether that was with BTF-typed programs; fails when it does not compile at all."""
    job = {
        "spec": manifest.raw,
        "source": manifest.code(),
        "common": manifest.common_code(),
        "cpus": bpf.possible_cpus(),
        "ring": True,
        "btf": str(vmlinux),
        "release": release,
        "compile_only": True,
        "plain": plain,
    }
    worker = CompileJob(job, PYTHON)
    while not worker.advance():
        select.select([worker], [], [], 1.0)
    assert worker.answer is not None
    assert worker.answer["ok"], f"{release}: {worker.answer['why']}\n{worker.answer['detail']}"
    for fd in worker.answer["maps"].values():
        os.close(fd)
    return bool(worker.answer["direct"])
