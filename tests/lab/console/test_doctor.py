"""Which attach point each probe takes on each kernel, compared with a reviewed reference.

After an intended change: `pytest tests/lab/console/test_doctor.py --update-references`, then review the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from netconsole.probes.catalogue import load_all, typed_modules
from netconsole.run.doctor import examine
from netconsole_collector.compile.compiled import Compiled, decode
from netconsole_collector.types import copied_types
from tests.lab.kernels.btf import made_types
from tests.lab.kernels.compiled import KEPT_INSIDE, compile_all, kept_inside, shipped
from tests.lab.kernels.each import EACH
from tests.lab.kernels.fetch import kernels
from tests.lab.kernels.page import WITH_TYPES, cell
from tests.lab.network.testbed import Testbed
from tests.lab.ping.door import HYPERVISOR, Door, patient
from tests.lab.pytest_inside import console_command

REFERENCES = Path(__file__).with_name("references")
DOCTOR_LIMIT_S = 660.0  # it compiles every probe


@pytest.fixture
def all_loaded(testbed: Testbed) -> Iterator[Testbed]:
    """With what any probe watches: the driver of a guest's network cards, and the queue that is a module on 5.10."""
    testbed.hypervisor.run("modprobe", "-a", "virtio_net", "sch_fq_codel")
    yield testbed
    testbed.hypervisor.run("modprobe", "-r", "virtio_net")


@pytest.mark.parametrize("testbed", EACH, indirect=True)
def test_each_probe_takes_the_reviewed_attach_point(
    all_loaded: Testbed, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled here and loaded there, as `netconsole doctor --host` does."""
    hypervisor, manifests = all_loaded.hypervisor, load_all()
    monkeypatch.setattr(copied_types, "DIRECTORY", str(made_types(hypervisor.release).parent))
    with patient(), Door(hypervisor, [], tmp_path) as door, closing(door.approach(HYPERVISOR)) as way:
        report = examine(manifests, way.enter(typed_modules(manifests)))
    assert report.ok, report
    found = what_is_kept(report.as_json())
    path = REFERENCES / f"{hypervisor.tree.kernel.name}.json"
    # No option when the whole suite is run: pytest reads this directory's conftest.py after its command line.
    if request.config.getoption("--update-references", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    assert path.exists(), f"no reference {path.name}: see the head of this file"
    assert found == json.loads(path.read_text("utf-8")), f"see the head of this file; what changed is {path.name}"


@pytest.mark.parametrize("testbed", [one.name for one in kernels() if one.made], indirect=True)
def test_without_types_of_modules_each_probe_that_wants_them_says_so_with_the_commands(
    all_loaded: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As such a kernel is found, before anybody has made them. What needs none of them is as it is with them."""
    hypervisor, manifests = all_loaded.hypervisor, load_all()
    reference = json.loads((REFERENCES / f"{hypervisor.tree.kernel.name}.json").read_text("utf-8"))["probes"]
    monkeypatch.setattr(copied_types, "DIRECTORY", str(tmp_path / "none"))
    with patient(), Door(hypervisor, [], tmp_path) as door, closing(door.approach(HYPERVISOR)) as way:
        found = examine(manifests, way.enter(typed_modules(manifests))).probes
    wanting = {name for name, one in reference.items() if cell(one).endswith(WITH_TYPES)}
    assert {name for name, one in found.items() if one.why != reference[name]["why"]} == wanting
    refused = {name: one for name, one in found.items() if name in wanting and one.state == "unsupported"}
    assert {"vhost_queues", "tun_queues", "ovs_drops", "ovs_upcalls", "kvm_irqs"} <= refused.keys()
    for name, one in refused.items():
        assert (one.why or "").startswith("this kernel has no types (BTF) of "), name
        assert f"    apt download linux-image-{hypervisor.release}-dbg\n" in (one.help or ""), name
    for name in wanting - refused.keys():
        assert found[name].state == "degraded" and " is not measured" in (found[name].why or ""), name


def test_what_is_compiled_there_is_what_is_compiled_here(all_loaded: Testbed) -> None:
    """The same programs, under the same names. Other tests load what was compiled here (compiled.py). It takes minutes.

    A kernel that refuses programs with few calls of helpers is given others, at several times the cost: those differ.
    """
    testbed = all_loaded
    testbed.hypervisor.shell(f"rm -rf {KEPT_INSIDE}")
    result = testbed.hypervisor.run(*console_command("doctor", "--json"), limit_s=DOCTOR_LIMIT_S, check=False)
    assert result.code == 0, result.text + result.errors
    report = json.loads(result.out)
    commands = [command for name, command in shipped().items() if report["probes"][name]["types"] == "btf"]
    here = {file.name: programs_in(file.read_bytes()) for file in compile_all(testbed.hypervisor.tree, commands)}
    there = {
        name: programs_in(testbed.hypervisor.read_file(f"{KEPT_INSIDE}/{name}"))
        for name in kept_inside(testbed.hypervisor)
    }
    assert here
    assert {name: one.way for name, one in here.items()} == {name: one.way for name, one in there.items()}
    assert here == there
    reference = REFERENCES / f"{testbed.hypervisor.tree.kernel.name}.json"
    assert what_is_kept(report) == json.loads(reference.read_text("utf-8"))


def programs_in(kept: bytes) -> Compiled:
    """The first line is the file's seal."""
    return decode(kept.partition(b"\n")[2])


def what_is_kept(report: dict[str, Any]) -> dict[str, Any]:
    """What does not change from one build of the kernel to the next: choices, refusals and their reasons."""
    return {
        "capabilities": {name: found["ok"] for name, found in report["capabilities"].items()},
        "probes": {
            name: {
                "state": probe["state"],
                "why": probe["why"],
                "help": probe["help"],
                "types": probe["types"],
                "attach": {program["name"]: program["attach"] for program in probe["programs"]},
                "tried": [point for program in probe["programs"] for point in program["tried"]],
            }
            for name, probe in report["probes"].items()
        },
    }
