"""Where a kernel has no kprobes, probes that need functions say so of each one that they would need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.probes import catalogue
from netconsole_collector.compile.worker import SAID
from tests.support.live.measurement import Measurement

pytestmark = pytest.mark.starting

FUNCTIONS = {"entry:": "kprobe:", "return:": "kretprobe:"}
PROBES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs", "conntrack", "ip_fragments")


@pytest.fixture(scope="module")
def collector() -> Iterator[Measurement]:
    if Path("/sys/bus/event_source/devices/kprobe").exists():
        pytest.skip("cannot run here: this kernel has kprobes")
    measurement = Measurement()
    yield measurement
    measurement.close()


@pytest.mark.parametrize("probe", PROBES)
def test_every_missing_function_is_named(collector: Measurement, probe: str) -> None:
    manifest = catalogue.shipped(probe)
    reply = collector.command(command="load", probe=probe, spec=manifest.raw, source=manifest.code())
    assert not reply.ok
    status = collector.statuses[probe]
    assert (status.state, status.attach) == ("unsupported", [])
    assert "no kprobes (CONFIG_KPROBE_EVENTS)" in (status.why or "")
    needed = [program for program in manifest.programs if program.required]
    functions = {one.point for program in needed for one in program.attach if one.point.startswith(tuple(FUNCTIONS))}
    for written, kind in FUNCTIONS.items():
        asked = {point.removeprefix(written) for point in functions if point.startswith(written)}
        assert {point.removeprefix(kind) for point in status.missing if point.startswith(kind)} == asked
    measured = list(dict.fromkeys(program.measures for program in needed if program.attach[0].point in functions))
    named = [one for one in measured if one in (status.why or "")]
    assert len(named) == min(SAID, len(measured))
    if len(measured) > SAID:
        assert str(status.why).endswith(f" and {len(measured) - SAID} more")
