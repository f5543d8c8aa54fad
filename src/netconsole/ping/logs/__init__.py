"""Reads logs of the tools that measured pings before: each becomes a capture, told by its content.

The tools: kernel_icmp_rtt (in VMs), icmp_drop_detector or icmp_path_tracer (on hosts), tun_tx_to_kvm_irq (vhost to the
guest, as text or JSON), kvm_vhost_tun_latency_details (the guest's kick to the tap).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from netconsole.base.errors import bad
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.logs import drops, irq, kick, rtt
from netconsole.ping.logs.text import lines

_HEAD_BYTES = 256 * 1024
"""Banners are long, and a log may begin in the middle."""

_Read: TypeAlias = Callable[[Iterable[str], str, Role | None], list[PingCapture]]
_TOOLS: tuple[tuple[Callable[[str], bool], _Read], ...] = (
    (rtt.is_log, rtt.read),
    (drops.is_log, drops.read),
    (irq.is_log, irq.read),
    (kick.is_log, kick.read),
)


def read_log(content: bytes, file: str, role: Role | None = None) -> list[PingCapture]:
    """The captures of a log. ``role`` says whose it is, where the log does not. Raises BadInput, in one line."""
    head = content[:_HEAD_BYTES].decode("utf-8", "replace")
    for is_log, read in _TOOLS:
        if is_log(head):
            return read(lines(content), file, role)
    if head.lstrip()[:1] == "[":
        return irq.read_json(content, file, role)
    raise bad(file, "", "this file is no ping capture, and no log of a known tool")
