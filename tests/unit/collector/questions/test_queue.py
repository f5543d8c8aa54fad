"""Which queue of a device is said to drop, when it no longer does."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole_collector.questions.net import queue
from netconsole_collector.questions.net.queue import only_one
from netconsole_collector.questions.net.rtnetlink import Interface
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
    found = only_one(root, [root, *children])
    assert (queue._named(found) if found is not None else None) == inner


def test_what_contains_it_counts_the_same_packets() -> None:
    root = qdisc("prio", 0x10000, TC_H_ROOT, 5)
    chain = [qdisc("tbf", 0x100000, 0x10001, 5), qdisc("bfifo", 0x200000, 0x100001, 5)]
    assert only_one(root, [root, *chain]) == chain[1]


@pytest.mark.parametrize(("kind", "said"), [("pfifo", "pfifo"), ("noqueue", None)])
def test_a_device_without_a_queue_is_not_said_to_drop(
    monkeypatch: pytest.MonkeyPatch, kind: str, said: str | None
) -> None:
    """Its shaper was taken away before the question came."""
    monkeypatch.setattr(queue, "_qdiscs", lambda *_: [qdisc(kind, 0, TC_H_ROOT, 0)])
    link: Any = SimpleNamespace(number=1)
    routes: Any = SimpleNamespace(dump=lambda *_: ())
    assert queue._root(routes, link)["kind"] == said


@pytest.mark.parametrize(("loss", "said"), [(2**31, 50.0), (2**32 - 1, 100.0), (42950, 0.001), (0, None)])
def test_a_netem_says_what_it_keeps_and_what_it_loses(
    monkeypatch: pytest.MonkeyPatch, loss: int, said: float | None
) -> None:
    """struct tc_netem_qopt of include/uapi/linux/pkt_sched.h: latency, limit, loss, gap, duplicate, jitter."""
    monkeypatch.setattr(queue, "_qdiscs", lambda *_: [qdisc("netem", 0, TC_H_ROOT, 0)])
    monkeypatch.setattr(queue, "_options", lambda *_: struct.pack("=6I", 7, 20, loss, 0, 0, 0))
    found = queue._root(SimpleNamespace(dump=lambda *_: ()), Interface(1, 0, "eth0", {}))  # type: ignore[arg-type]
    assert (found["limit"], found["loss_pct"]) == (20, said)


@pytest.mark.parametrize(("kind", "is_model"), [(5, True), (4, False)])
def test_a_netem_that_loses_by_a_model_has_no_share_of_its_own(
    monkeypatch: pytest.MonkeyPatch, kind: int, is_model: bool
) -> None:
    """TCA_NETEM_LOSS (5) holds TCA_NETEM_LOSS_GE; 4 is TCA_NETEM_CORRUPT."""
    options = struct.pack("=6I2H2HI", 0, 1000, 0, 0, 0, 0, 12, kind, 8, 2, 2**28)
    monkeypatch.setattr(queue, "_qdiscs", lambda *_: [qdisc("netem", 0, TC_H_ROOT, 0)])
    monkeypatch.setattr(queue, "_options", lambda *_: options)
    found = queue._root(SimpleNamespace(dump=lambda *_: ()), Interface(1, 0, "eth0", {}))  # type: ignore[arg-type]
    assert (found["loss_pct"], found["is_by_model"]) == (None, is_model)


def test_a_netem_inside_the_root_that_drops_is_told_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = [qdisc("htb", 0x10000, TC_H_ROOT, 9), qdisc("netem", 0x100000, 0x10001, 9)]
    monkeypatch.setattr(queue, "_qdiscs", lambda *_: queues)
    monkeypatch.setattr(queue, "_dropping", lambda *_: queues[1])
    monkeypatch.setattr(queue, "_shaper", lambda *_: None)
    options = {0x100000: struct.pack("=6I", 0, 1000, 2**30, 0, 0, 0)}
    monkeypatch.setattr(queue, "_options", lambda routes, link, of: options.get(of.handle, b""))
    found = queue._root(SimpleNamespace(dump=lambda *_: ()), Interface(1, 0, "eth0", {}))  # type: ignore[arg-type]
    assert (found["kind"], found["inner"], found["loss_pct"]) == ("netem", None, 25.0)


@pytest.mark.parametrize("options", [b"", b"1234567"])
def test_a_netem_that_says_too_little_is_one_of_unknown_settings(
    monkeypatch: pytest.MonkeyPatch, options: bytes
) -> None:
    monkeypatch.setattr(queue, "_qdiscs", lambda *_: [qdisc("netem", 0, TC_H_ROOT, 0)])
    monkeypatch.setattr(queue, "_options", lambda *_: options)
    found = queue._root(SimpleNamespace(dump=lambda *_: ()), Interface(1, 0, "eth0", {}))  # type: ignore[arg-type]
    assert "limit" not in found and "loss_pct" not in found
