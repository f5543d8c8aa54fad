"""icmp_drop_detector, later icmp_path_tracer: what a host does with an echo. A printed 0.0 is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from netconsole.base.errors import bad
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.logs.text import made, number

_STAGE = re.compile(r"\[(new|update|complete)\] ID=(\d+) Seq=(\d+) ")
_TIMES = re.compile(r"Latency\(us\): ReqInternal=(\S+)\s+External=(\S+)\s+RepInternal=(\S+)\s+Total=(\S+)")
_FLOW = re.compile(r"Flow: (\S+) -> (\S+) \(ID=(\d+), Seq=(\d+)\)")
_WHERE = (
    ("Drop Location: Request dropped INTERNALLY", "request_lost_inside"),
    ("Drop Location: Reply dropped INTERNALLY", "reply_lost_inside"),
    ("Drop Location: ", "lost_outside"),
)
_DEVICES = re.compile(r"^\s*(RX|TX) Interface(?:\(s\)|s)?\s*:\s*(.*)")
_ADDRESS = re.compile(r"^\s*(Source|Destination) IP\s*:\s*(\S+)")
_NAME = re.compile(r"([^\s,(]+)\s*(?:\(ifindex=\d+\))?")
_TAP = re.compile(r"(vnet|tap|macvtap|vm-|qvo|fwpr)")
_BY_NAME = re.compile(r"(sender|receiver)", re.IGNORECASE)
SOURCE = "icmp_drop_detector"


def is_log(head: str) -> bool:
    """Whether a log is of this tool."""
    return any(word in head for word in ("ICMP Drop Detect", "ICMP Path Tracer", "ReqInternal=", "ReqRX:"))


def read(lines: Iterable[str], file: str, role: Role | None) -> list[PingCapture]:
    """The capture of a log. Raises BadInput."""
    echoes: dict[tuple[int, int], dict[str, Any]] = {}
    devices: dict[str, list[str]] = {"RX": [], "TX": []}
    addresses: dict[str, str] = {}
    source, current = SOURCE, None
    for line in lines:
        if "Path Tracer" in line:
            source = "icmp_path_tracer"
        for found in filter(None, [_DEVICES.match(line)]):
            devices[found[1]] = [name[:64] for name in _NAME.findall(found[2])][:16]
        for found in filter(None, [_ADDRESS.match(line)]):
            addresses[found[1]] = found[2][:64]
        stage, times, flow = _STAGE.search(line), _TIMES.search(line), _FLOW.search(line)
        if stage:
            current = int(stage[2]) & 0xFFFF, int(stage[3])
            echo = echoes.setdefault(current, {"id": current[0], "seq": current[1], "outcome": "unfinished"})
            if stage[1] == "complete":
                echo["outcome"] = "answered"
        elif times and current is not None:
            names = ("request_us", "between_us", "reply_us", "total_us")
            echoes[current].update(zip(names, (number(text) or None for text in times.groups()), strict=True))
        elif flow:
            current = int(flow[3]) & 0xFFFF, int(flow[4])
            echoes.setdefault(current, {"id": current[0], "seq": current[1], "outcome": "timeout"})
        elif current is not None and "Drop Location: " in line:
            echoes[current]["outcome"] = next(outcome for words, outcome in _WHERE if words in line)
    if not echoes:
        raise bad(file, SOURCE, "this log has no echo: the tool writes echoes only with --verbose")
    wanted = role or _role(devices, file)
    taps, wires = ("TX", "RX") if wanted == "receiver-host" else ("RX", "TX")
    return [
        made(
            file,
            wanted,
            source,
            packets=list(echoes.values()),
            addresses=[addresses[name] for name in ("Source", "Destination") if name in addresses],
            inside=devices[taps],
            outside=devices[wires],
            boundary="before_driver" if source == SOURCE else "after_driver",
        )
    ]


def _role(devices: dict[str, list[str]], file: str) -> Role:
    """The request comes in from a tap on the sender's host, and goes out to one on the receiver's."""
    taps = {way: any(_TAP.match(name) for name in names) for way, names in devices.items()}
    if taps["RX"] != taps["TX"]:
        return "sender-host" if taps["RX"] else "receiver-host"
    said = {word.lower() for word in _BY_NAME.findall(PurePath(file).name)}
    if len(said) == 1:
        return "sender-host" if said == {"sender"} else "receiver-host"
    raise bad(file, SOURCE, "this log does not say of which host it is: write sender-host=FILE or receiver-host=FILE")
