"""What a host says of itself is taken within the bounds of a frame."""

from __future__ import annotations

import os

from netconsole.host.identity import describe, of_answer
from netconsole.telemetry import frames


def test_a_host_that_says_too_much_of_itself_still_fits_a_frame() -> None:
    host = of_answer({"name": "\ud800" + "n" * 300, "kernel": 7, "cpus": -1, "more": []})
    hello = frames.Hello(seq=1, mono_ns=0, wall_ns=0, host=host, collector={}, capabilities={})
    assert frames.decode(frames.encode(hello)) == hello
    assert host.name.startswith("?nnn") and (host.kernel, host.arch, host.cpus) == ("7", "", 1)


def test_this_machine_is_described() -> None:
    host = describe()
    assert (host.name, host.kernel, host.arch) == (os.uname().nodename, os.uname().release, os.uname().machine)
    assert host.cpus == os.cpu_count() and host.boot_id
