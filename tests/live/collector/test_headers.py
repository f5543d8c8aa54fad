"""A kernel without BTF: its installed headers do instead, and say the same about it."""

from __future__ import annotations

import os
import platform
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole_collector.compile.job import CompileJob
from netconsole_collector.kernel import cpus
from tests.lab.kernels.archive import cache_dir, locked
from tests.lab.kernels.btf import btf_files
from tests.lab.kernels.fetch import fetch, kernel_named
from tests.lab.machine.errors import LabUnavailable
from tests.support.live.collector_driver import PYTHON

KERNEL = "debian-6.1"
LIMIT_S = 300
PROBES = ("tx_queue_latency", "softirq_health", "socket_drops")
MERGED = ("common", "amd64")
"""Debian splits its headers; laid over each other they are what others have in one directory."""


@pytest.fixture(scope="module")
def kernel() -> tuple[str, Path, Path]:
    """Version, BTF and headers of one of the lab's kernels; nothing is installed."""
    if platform.machine() != "x86_64":
        pytest.skip("cannot run here: the lab's kernels are for x86-64")
    try:
        tree = fetch(kernel_named(KERNEL))
        return tree.version, btf_files(tree).vmlinux, headers_of(tree.version)
    except (LabUnavailable, subprocess.SubprocessError) as error:
        pytest.skip(f"cannot run here: {error}")


def headers_of(version: str) -> Path:
    """The headers of a version, unpacked into the lab's cache."""
    directory = cache_dir() / "headers"
    directory.mkdir(exist_ok=True)
    release = version.removesuffix("-amd64")
    with locked(directory / "lock"):
        if not (directory / version).is_dir():
            with tempfile.TemporaryDirectory(dir=directory) as work:
                packages = [f"linux-headers-{release}-{part}" for part in MERGED]
                subprocess.run(["apt-get", "download", "-qq", *packages], cwd=work, timeout=LIMIT_S, check=True)
                merged = Path(work) / "merged"
                for package in packages:
                    (archive,) = Path(work).glob(f"{package}_*.deb")
                    subprocess.run(["dpkg", "-x", str(archive), f"{work}/tree"], timeout=LIMIT_S, check=True)
                    source = Path(work) / "tree" / "usr" / "src" / package
                    for part in ("include", "arch/x86"):
                        shutil.copytree(source / part, merged / part, symlinks=True, dirs_exist_ok=True)
                merged.rename(directory / version)
    return directory / version


def compiled(manifest: Manifest, **job: Any) -> dict[str, Any]:
    """The worker's answer; ``job`` is what is not as the manifest has it."""
    job = {"spec": manifest.raw, "source": manifest.code(), **job}
    job.update(cpus=cpus.nr_cpu_ids(), ring=True, compile_only=True, plain=True)
    worker = CompileJob(job, PYTHON)
    while not worker.advance():
        select.select([worker], [], [], 1.0)
    answer: dict[str, Any] = worker.answer or {}
    assert answer["ok"], f"{answer['why']}\n{answer['detail']}"
    for fd in answer["maps"].values():
        os.close(fd)
    return answer


def without_ids(facts: dict[str, int]) -> dict[str, int]:
    """What headers can tell as well: only BTF numbers the types."""
    return {name: value for name, value in facts.items() if not name.startswith("BTF_ID_")}


@pytest.mark.long  # to compile the kernel's headers takes 10 s a probe
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_compiles_and_knows_as_much_as_with_btf(probe: str, kernel: tuple[str, Path, Path]) -> None:
    version, vmlinux, headers = kernel
    manifest = catalogue.shipped(probe)
    by_headers = compiled(manifest, btf="", headers=str(headers), release=version)
    by_btf = compiled(manifest, btf=str(vmlinux), release=version)
    assert (by_headers["types"], by_btf["types"]) == ("headers", "btf")
    assert by_headers["facts"] == without_ids(by_btf["facts"])


@pytest.mark.computing
def test_facts_of_every_form(kernel: tuple[str, Path, Path]) -> None:
    """Those of a probe, and one that is true and one that is not of each form, asked of the compiler."""
    version, vmlinux, headers = kernel
    manifest = catalogue.shipped("kernel_drops")
    asked = """
    HAVE_sk_buff_len HAVE_sk_buff_nothing HAVE_SKB_DROP_REASON_NO_SOCKET HAVE_SKB_DROP_REASON_NOTHING HAVE_sk_buff
    HAVE_no_such_struct HAVE_kfree_skb_reason HAVE_no_such_function NARGS_net_dev_queue NARGS_kfree_skb
    NARGS_kfree_skb_reason NARGS_no_such_function NARGS_napi_poll HAVE_sk_buff_mono_delivery_time
    """
    source = manifest.code() + "\n#if 0\n" + asked + "\n#endif\n"
    by_headers = compiled(manifest, source=source, btf="", headers=str(headers), release=version)["facts"]
    by_btf = compiled(manifest, source=source, btf=str(vmlinux), release=version)["facts"]
    assert by_headers == without_ids(by_btf)
    expected = {
        "HAVE_sk_buff_len": 1,
        "HAVE_SKB_DROP_REASON_NO_SOCKET": 1,
        "HAVE_sk_buff": 1,
        "HAVE_kfree_skb_reason": 1,
        "NARGS_net_dev_queue": 1,
        "NARGS_kfree_skb": 3,
        "NARGS_kfree_skb_reason": 2,
        "NARGS_napi_poll": 3,
    }
    assert {name: by_headers.get(name) for name in expected} == expected
    assert not [name for name in by_headers if "nothing" in name.lower() or "no_such" in name]
