"""Every shipped probe compiles for the kernels of the lab, from their BTF alone; nothing of it is loaded here."""

from __future__ import annotations

import os
import select

import pytest
from tests.lab.btf import lab_btf_files
from tests.lab.errors import LabUnavailable

from netconsole import probes
from netconsole_collector import bpf
from netconsole_collector.compile_job import CompileJob

from .collector_driver import CHECKOUT, PYTHON

pytestmark = pytest.mark.live

SHIPPED = sorted(name for name, probe in probes.load_all([CHECKOUT / "probes"]).items() if probe.source == "bpf")


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("probe", SHIPPED)
def test_a_shipped_probe_compiles_for_the_lab_s_kernels(probe: str, plain: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: BCC makes the maps")
    try:
        kernels = lab_btf_files()
    except LabUnavailable as error:
        pytest.skip(str(error))
    manifest = probes.load(CHECKOUT / "probes" / probe)
    for kernel in kernels:
        job = {
            "spec": manifest.raw,
            "source": manifest.code(),
            "common": manifest.common_code(),
            "cpus": bpf.possible_cpus(),
            "ring": True,
            "btf": str(kernel.vmlinux),
            "release": kernel.version,
            "compile_only": True,
            "plain": plain,
        }
        worker = CompileJob(job, PYTHON)
        while not worker.advance():
            select.select([worker], [], [], 1.0)
        assert worker.answer is not None
        assert worker.answer["ok"], f"{kernel.version}: {worker.answer['why']}\n{worker.answer['detail']}"
        for fd in worker.answer["maps"].values():
            os.close(fd)
