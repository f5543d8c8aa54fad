"""docs/reference/kernels.md is what the references say, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole_collector.doctor import WITHOUT_BPF
from tests.lab.kernels.page import PAGE, page, references

pytestmark = pytest.mark.computing


def test_the_page_of_kernels_is_what_the_references_say(request: pytest.FixtureRequest) -> None:
    text = page(references())
    if request.config.getoption("--update-references", default=False):
        PAGE.write_text(text, "utf-8")
    assert PAGE.read_text("utf-8") == text, "pytest tests/lab/itself/test_page.py --update-references"


def test_what_is_missing_and_what_differs_is_listed() -> None:
    refused: dict[str, Any] = {"state": "unsupported", "why": "no types of tun", "types": None, "tried": []}
    refused["help"] = "netconsole types make"
    made: dict[str, Any] = {"state": "attached", "why": None, "types": "btf", "attach": {"sent": "kprobe:tun_sendmsg"}}
    made["tried"] = [{"point": "fentry:tun_sendmsg", "why": "this kernel has no types (BTF) of tun, and …"}]
    guessed = {**made, "tried": [], "why": "it gives no drop reasons"}
    absent = {**refused, "attach": {}, "why": "the kernel module virtio_net is not loaded"}
    tried = [{"point": "kprobe:refill_work", "why": "no such function", "detail": ""}]
    part: dict[str, Any] = {"state": "degraded", "why": "refills are not measured", "types": "btf", "tried": tried}
    whole: dict[str, Any] = {"state": "attached", "why": None, "types": "btf", "tried": []}
    refused["attach"], part["attach"] = {}, {"sent": "kprobe:tun_sendmsg"}
    whole["attach"] = {"sent": "fentry:tun_sendmsg", "refilled": "fentry:refill_work"}
    kernels: dict[str, Any] = {
        "debian-5.10": {"probes": {"guest": part, "taps": refused, "made": made, "drops": guessed, "cards": absent}},
        "debian-6.1": {"probes": dict.fromkeys(("guest", "taps", "made", "drops"), whole) | {"cards": absent}},
        "debian-6.12-arm64": {"by_types": True, "probes": dict.fromkeys(("taps", "made", "drops", "cards"), whole)},
    }
    kernels["debian-6.12-arm64"]["probes"]["guest"] = part
    for one in ("debian-5.10", "debian-6.1"):
        kernels[one]["probes"]["links"] = {**whole, "types": None, "why": WITHOUT_BPF}
    lines = page(kernels).splitlines()
    assert "| `guest` | part | full | by types: part |" in lines
    assert "| `taps` | no | full | by types: full |" in lines
    assert "| `made` | full, with types | full | by types: full |" in lines
    assert "| `drops` | part | full | by types: full |" in lines
    assert "| `cards` | not tried | not tried | by types: full |" in lines
    assert "- `drops` on debian-5.10: it gives no drop reasons." in lines
    assert not any("cards` on" in line for line in lines)
    assert "- `guest` on debian-5.10: refills are not measured (kprobe:refill_work: no such function)." in lines
    assert "- `taps` on debian-5.10: no types of tun. What would help: netconsole types make." in lines
    assert not any("links" in line for line in lines)
    assert "| `guest` | `sent` | `kprobe:tun_sendmsg` (debian-5.10), `fentry:tun_sendmsg` (debian-6.1) |" in lines
    assert "| `guest` | `refilled` | none (debian-5.10), `fentry:refill_work` (debian-6.1) |" in lines
    assert "| `taps` | `sent` | `fentry:tun_sendmsg` |" in lines
