"""docs/reference/kernels.md is what the references say, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.kernels.page import PAGE, page, references

pytestmark = pytest.mark.computing


def test_the_page_of_kernels_is_what_the_references_say(request: pytest.FixtureRequest) -> None:
    text = page(references())
    if request.config.getoption("--update-references", default=False):
        PAGE.write_text(text, "utf-8")
    assert PAGE.read_text("utf-8") == text, "pytest tests/lab/itself/test_page.py --update-references"


def test_what_is_missing_and_what_differs_is_listed() -> None:
    refused: dict[str, Any] = {"state": "unsupported", "why": "no types of tun", "types": None, "tried": []}
    tried = [{"point": "kprobe:refill_work", "why": "no such function", "detail": ""}]
    part: dict[str, Any] = {"state": "degraded", "why": "refills are not measured", "types": "btf", "tried": tried}
    whole: dict[str, Any] = {"state": "attached", "why": None, "types": "btf", "tried": []}
    refused["attach"], part["attach"] = {}, {"sent": "kprobe:tun_sendmsg"}
    whole["attach"] = {"sent": "fentry:tun_sendmsg", "refilled": "fentry:refill_work"}
    kernels = {
        "debian-5.10": {"probes": {"guest": part, "taps": refused, "links": {**whole, "types": None}}},
        "debian-6.1": {"probes": {"guest": whole, "taps": whole, "links": {**whole, "types": None}}},
    }
    lines = page(kernels).splitlines()
    assert "| `guest` | part | full |" in lines
    assert "| `taps` | no | full |" in lines
    assert "- `guest` on debian-5.10: refills are not measured (kprobe:refill_work: no such function)." in lines
    assert "- `taps` on debian-5.10: no types of tun." in lines
    assert not any("links" in line for line in lines)
    assert "| `guest` | `sent` | `kprobe:tun_sendmsg` (debian-5.10), `fentry:tun_sendmsg` (debian-6.1) |" in lines
    assert "| `guest` | `refilled` | none (debian-5.10), `fentry:refill_work` (debian-6.1) |" in lines
    assert "| `taps` | `sent` | `fentry:tun_sendmsg` |" in lines
