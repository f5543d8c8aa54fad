"""The same of the kernels of the lab, with SCTP and conntrack: kernels have counters that others lack."""

from __future__ import annotations

import pytest

from tests.lab.kernels.each import EACH
from tests.lab.machine.hypervisor import Hypervisor
from tests.support.counter_names import FILES, names, unknown

pytestmark = [pytest.mark.long, pytest.mark.parametrize("bare", EACH, indirect=True)]


def test_each_counter_of_the_kernel_is_known(bare: Hypervisor) -> None:
    bare.shell("modprobe -a sctp nf_conntrack || true")
    texts = {}
    for file in FILES:
        read = bare.run("cat", f"/proc/net/{file}", check=False)
        texts[file] = read.text if read.code == 0 else None
    found = names(texts.__getitem__)
    assert len(found) > 300 and any(name.startswith("Sctp") for name in found)
    assert not unknown(found), "add them to provoked-counters.toml, and to protocol_losses.py what means a loss"
