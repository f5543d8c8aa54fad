"""What a label stands for: its name says it, then how it is shown; the shipped probes agree with their manifests."""

from __future__ import annotations

import pytest

from netconsole.probes.meaning import Meaning, meaning


@pytest.mark.parametrize(
    ("name", "shown_as", "stands_for"),
    [
        ("device", "text", "device"),
        ("nic", "text", "itself"),
        ("nic", "tap", "device"),
        ("owner", "process", "process"),
        ("owner", "socket", "process"),
        ("namespace", "netns", "netns"),
        ("core", "cpu", "cpu"),
        ("tid", None, "thread"),
        ("inode", None, "nothing"),
        ("port", "tap", "port"),
        ("reason", "drop_reason", "itself"),
    ],
)
def test_the_name_says_it_before_the_kind(name: str, shown_as: str | None, stands_for: Meaning) -> None:
    assert meaning(name, shown_as) == stands_for
