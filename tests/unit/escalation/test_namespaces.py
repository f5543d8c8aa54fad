"""Inodes of network namespaces: a far host is asked beside what waits, once for each use."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole.escalation import namespaces
from netconsole.escalation.namespaces import NamespaceInodes

LIMIT_S = 20.0


class Asked:
    """What a host was asked for; it answers when it may."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.may, self.began = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, host: Any, name: str) -> int:
        self.names.append(name)
        self.threads.append(threading.current_thread())
        self.began.set()
        assert self.may.wait(LIMIT_S)
        return 4_000_000_000 + len(self.names)

    def wait(self) -> None:
        """Until the question that was put is answered."""
        assert self.began.wait(LIMIT_S)
        self.began.clear()
        self.may.set()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(LIMIT_S)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    one = Asked()
    monkeypatch.setattr(namespaces, "namespace_inode", one)
    return one


def inodes(address: str | None) -> NamespaceInodes:
    return NamespaceInodes(SimpleNamespace(address=address))


def test_a_far_host_is_asked_in_a_thread_of_its_own_and_an_answer_is_for_one_use(asked: Asked) -> None:
    far, blue = inodes("ssh://hv"), {"netns": "blue"}
    assert far.is_ready(blue) is False and far.is_ready(blue) is False
    asked.wait()
    assert asked.names == ["blue"] and asked.threads[0].daemon
    assert far.is_ready(blue) is True and far.inode("blue") == 4_000_000_001
    assert asked.names == ["blue"]
    assert far.is_ready(blue) is False, "it may be another one by now"
    asked.wait()
    assert far.is_ready(blue) is True and far.inode("blue") == 4_000_000_002


def test_who_may_wait_asks_at_once(asked: Asked) -> None:
    asked.may.set()
    far = inodes("ssh://hv")
    far.ask({"netns": "blue"})
    assert asked.threads == [threading.current_thread()] and far.is_ready({"netns": "blue"})
    assert (far.inode("blue"), far.inode("blue")) == (4_000_000_001, 4_000_000_002)


@pytest.mark.parametrize(
    ("address", "labels"),
    [(None, {"netns": "blue"}), ("ssh://hv", {"netns": "4026531840"}), ("ssh://hv", {}), ("ssh://hv", {"netns": 7})],
)
def test_what_needs_no_far_host_is_ready(asked: Asked, address: str | None, labels: dict[str, Any]) -> None:
    """This machine's namespaces, and those that are named by their inode."""
    here = inodes(address)
    here.ask(labels)
    assert here.is_ready(labels) and asked.names == []
