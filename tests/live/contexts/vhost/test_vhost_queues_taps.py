"""Which tap's queue a socket of vhost is (probes/common/tap.h): by the tap's own table, or as it was just before."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable

import pytest

from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.probe.checks import ENOUGH
from tests.support.live.contexts.moments import wait
from tests.support.live.contexts.taps import Tap, Taps
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import POLL, QUEUE

Load = Callable[..., UnattachedProbe]
FUNCTIONS = {
    **{f"{one}_end": "ended" for one in ("rx_kick", "tx_kick", "rx_net", "tx_net")},
    **{one: one for one in ("rx_kick", "tx_kick", "rx_net", "tx_net", "flushed", "signalled", "sent", "woken")},
    "configured": "configured",
}
ATTEMPTS = 50
LONGER_THAN_REMEMBERED_MS = 170
"""Sixteen ticks of the slowest clock that kernels have (100 a second): eight, and the rest of those before."""


def run(host: Taps, tap: Tap) -> None:
    """A run of vhost for the queue to the guest."""
    host.ran("rx_kick", tap.rx + POLL["work"])
    host.ran("rx_kick_end")


def runs(host: Taps) -> dict[tuple[str, int], int]:
    """By device and queue."""
    host.probe.read()
    return {(row["device"], row["queue"]): row["runs"] for row in host.probe.rows("queues")}


@pytest.mark.parametrize("protocol", [b"tap", b"tun", b"xap", b"txp", b"tax", b"tapx"])
def test_a_macvtap_is_a_stranger_and_refutes_no_layout(load: Load, protocol: bytes) -> None:
    host = Taps(load("vhost_queues", FUNCTIONS))
    proto = host.memory.make("proto", {"name": protocol})
    sock = host.memory.make("sock", {"__sk_common.skc_prot": proto})
    stranger = host.memory.make("tun_file", {"tun": host.here.tun, "queue_index": 7, "socket.sk": sock})
    backend = stranger + host.here.sock - host.here.file
    host.memory.put(host.here.rx + QUEUE["private_data"], backend.to_bytes(8, sys.byteorder))
    for _ in range(ENOUGH):
        run(host, host.here)
    assert host.probe.running.detach_failed_checks() is (protocol != b"tap")


def test_a_tap_is_looked_up_again_when_it_may_have_another_name(load: Load) -> None:
    host = Taps(load("vhost_queues", FUNCTIONS), "before")
    remembered = 0
    for _ in range(ATTEMPTS):
        host.memory.change("net_device", host.here.device, {"name": b"before"})
        wait(LONGER_THAN_REMEMBERED_MS)
        run(host, host.here)
        known = runs(host).get(("before", 0), 0)
        host.memory.change("net_device", host.here.device, {"name": b"after"})
        run(host, host.here)
        remembered = runs(host).get(("before", 0), 0) - known
        if remembered:
            break  # else the clock has ticked in between
    assert remembered == 1
    known = runs(host).get(("after", 0), 0)
    wait(LONGER_THAN_REMEMBERED_MS)
    run(host, host.here)
    assert runs(host)["after", 0] == known + 1


def test_what_two_threads_have_written_at_once_is_not_believed(load: Load) -> None:
    """The queue of what is remembered is another one than that of its sum."""
    host = Taps(load("vhost_queues", FUNCTIONS))
    remembered = Map(host.probe._working["recent_taps"])
    for number in range(1, ATTEMPTS):
        run(host, host.here)
        for at in range(64):
            key = struct.pack("=I", at)
            whole = remembered.get(key)
            assert whole is not None
            mine = bytearray(whole[: len(whole) // len(remembered.cpus)])
            if any(mine[:8]):
                mine[-16:-8] = struct.pack("=Q", 5)
                remembered.set(key, bytes(mine) + whole[len(mine) :])
        run(host, host.here)
        assert runs(host) == {("made0", 0): 2 * number}
