"""kvm_vhost_tun_latency_details: from the guest's kick to the tap. It knows no ids, so only means come of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from msgspec import to_builtins

from netconsole.base.errors import bad
from netconsole.ping.analysis.figures import of_values
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.logs.text import made

_LINE = re.compile(r"tid=\d+ queue=\d+ s0=(\d+)us s1=(\d+)us s2=(\d+)us total=(\d+)us")
_BY_NAME = re.compile(r"(sender|receiver)", re.IGNORECASE)
SOURCE = "kvm_vhost_tun_latency_details"
WHOLE = "kvm_vhost_tun_latency_details cuts each stage to whole us: up to 1 us of each is in the remainder"


def is_log(head: str) -> bool:
    """Whether a log is of this tool."""
    return _LINE.search(head) is not None


def read(lines: Iterable[str], file: str, role: Role | None) -> list[PingCapture]:
    """The capture of a log. A total of 0 is a packet of which a stage is not known. Raises BadInput."""
    rows = [[int(text) for text in found.groups()] for line in lines if (found := _LINE.search(line))]
    known = [row for row in rows if row[3] > 0]
    if not known:
        raise bad(file, SOURCE, "this log has no packet with all its stages")
    stages: dict[str, Any] = {}
    for place, name in enumerate(("k1_k2", "k2_k3", "k3_k4")):
        stages[name] = to_builtins(of_values([float(row[place]) for row in known]))
    stages["total"] = to_builtins(of_values([float(sum(row[:3])) for row in known]))
    said = {word.lower() for word in _BY_NAME.findall(PurePath(file).name)}
    if role is None and len(said) != 1:
        raise bad(
            file, SOURCE, "this log does not say of which host it is: write sender-host=FILE or receiver-host=FILE"
        )
    wanted: Role = role or ("sender-host" if said == {"sender"} else "receiver-host")
    return [made(file, wanted, SOURCE, vhost_kick={"summary": stages}, notes=[WHOLE])]
