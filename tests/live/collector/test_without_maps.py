"""A user without privileges compiles for another host: no map is made, and the programs are the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from netconsole.probes.catalogue import load_all
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole_collector.compile.compiled import Compiled, decode
from netconsole_collector.compile.job import CompileJob, find_python
from netconsole_collector.types import btf

PROBE = "kernel_drops"


def compiled(place: Path, python: str, **more: object) -> Compiled:
    (request,) = plan(Profile(PROBE), load_all(), [PROBE])
    job: dict[str, Any] = {
        "spec": request.spec, "source": request.code, "cpus": os.cpu_count(), "ring": True, "btf": btf.VMLINUX,
        "compile_only": True, "keep_in": str(place), **more,
    }  # fmt: skip
    answer = CompileJob(job, python).wait()
    assert answer["ok"], answer
    (kept,) = place.iterdir()
    return decode(kept.read_bytes().partition(b"\n")[2])


def test_who_may_make_no_map_compiles_the_same(tmp_path: Path) -> None:
    python = find_python(os.environ.get("NETCONSOLE_PYTHON"))
    powerless = tmp_path / "python"
    powerless.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-all --inh-caps=-all {python} "$@"\n')
    powerless.chmod(0o755)
    for_another_host = {"btf_digest": "its types"}
    there = compiled(tmp_path / "there", str(powerless), **for_another_host)
    here = compiled(tmp_path / "here", python)
    assert there.maps == here.maps and there.functions == here.functions
