"""Makes captures of pings whose true times are known."""

from __future__ import annotations

import json
from typing import Any

from netconsole.ping import capture
from netconsole.ping.analysis.merge import CaptureFile


def echo(seq: int, request: float, between: float, reply: float, **more: Any) -> dict[str, Any]:
    """One echo of id 7."""
    total = request + between + reply
    times = {"request_us": request, "between_us": between, "reply_us": reply, "total_us": total}
    return {"id": 7, "seq": seq, **times, **more}


def capture_of(role: str, packets: list[dict[str, Any]], **more: Any) -> CaptureFile:
    """A capture of these echoes, as from a file of the role's name."""
    document = {"schema": capture.SCHEMA, "role": role, "host": f"of {role}", "packets": packets, **more}
    return CaptureFile(f"{role}.json", capture.parse(json.dumps(document).encode(), f"{role}.json"))


def four(count: int) -> list[CaptureFile]:
    """Captures of one run without vhost. Echo n takes n us longer in the wire."""
    wire = [30.0 + n for n in range(count)]
    return [
        capture_of("sender-vm", [echo(n, 18, 178 + w, 16) for n, w in enumerate(wire)]),
        capture_of("sender-host", [echo(n, 13, 110 + w, 8) for n, w in enumerate(wire)]),
        capture_of("receiver-host", [echo(n, 12, 90, 8) for n in range(count)]),
        capture_of("receiver-vm", [echo(n, 24, 8, 7 + n % 3) for n in range(count)]),
    ]


def linked(count: int, kick_us: float | None = None, **of_all: Any) -> list[CaptureFile]:
    """The same with vhost: 20 us to each guest's interrupt, and ``kick_us`` from each kick to the tap."""
    irq = [{"id": 7, "seq": n, "s1_s2": 10, "s2_s3": 4, "s3_s4": 4, "s4_s5": 2, "total": 20} for n in range(count)]
    vhost: dict[str, Any] = {"vhost_irq": {"packets": irq}}
    if kick_us is not None:
        kicks = [
            {"id": 7, "seq": n, "k1_k2": 4, "k2_k3": kick_us - 5, "k3_k4": 1, "total": kick_us} for n in range(count)
        ]
        vhost["vhost_kick"] = {"packets": kicks}
    run = {"run": "r", "boundary": "before_driver", "addresses": ["192.0.2.1", "192.0.2.2"]}
    found = []
    for file, one in four(count):
        more = {**(vhost if one.role.endswith("host") else {}), **run, **of_all}
        document = {**json.loads(capture.encode(one)), **more}
        found.append(CaptureFile(file, capture.parse(json.dumps(document).encode(), file)))
    return found
