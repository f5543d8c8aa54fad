"""Which queue of a device is said to drop, when it no longer does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from netconsole_collector.questions.net import queue
from netconsole_collector.questions.net.queue import only_one
from netconsole_collector.sources.net.qdiscs import TC_H_ROOT, Qdisc


def qdisc(kind: str, handle: int, parent: int, drops: int) -> Qdisc:
    return Qdisc(1, kind, 0, 0, drops, 0, 0, handle=handle, parent=parent)


@pytest.mark.parametrize(
    ("of_root", "first", "second", "inner"),
    [
        (836, 836, 0, "pfifo 10:"),
        (836, 0, 836, "pfifo 20:"),
        (836, 800, 36, None),  # both have dropped
        (840, 836, 0, None),  # the root has dropped some itself
        (0, 0, 0, None),
    ],
)
def test_the_queue_that_has_dropped_all_is_named(of_root: int, first: int, second: int, inner: str | None) -> None:
    root = qdisc("htb", 0x10000, TC_H_ROOT, of_root)
    children = [qdisc("pfifo", 0x100000, 0x10001, first), qdisc("pfifo", 0x200000, 0x10002, second)]
    assert only_one(root, [root, *children]) == inner


def test_what_contains_it_counts_the_same_packets() -> None:
    root = qdisc("prio", 0x10000, TC_H_ROOT, 5)
    chain = [qdisc("tbf", 0x100000, 0x10001, 5), qdisc("bfifo", 0x200000, 0x100001, 5)]
    assert only_one(root, [root, *chain]) == "bfifo 20:"


@pytest.mark.parametrize(("kind", "said"), [("pfifo", "pfifo"), ("noqueue", None)])
def test_a_device_without_a_queue_is_not_said_to_drop(
    monkeypatch: pytest.MonkeyPatch, kind: str, said: str | None
) -> None:
    """Its shaper was taken away before the question came."""
    monkeypatch.setattr(queue, "_qdiscs", lambda *_: [qdisc(kind, 0, TC_H_ROOT, 0)])
    link: Any = SimpleNamespace(number=1)
    routes: Any = SimpleNamespace(dump=lambda *_: ())
    assert queue._root(routes, link)["kind"] == said
