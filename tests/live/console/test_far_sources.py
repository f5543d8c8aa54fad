"""A snapshot of a far host over a real ssh has the sources and facts of one that is taken there, and none of here."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.console_command import COMMAND
from tests.support.live.contexts.machines import NAME, machine
from tests.support.live.network import Wire
from tests.support.live.ssh_server import ADDRESS, SshServer

pytestmark = pytest.mark.starting

SOURCES = ("link_rates", "softnet", "socket_groups", "vm_states", "self_cost")
LIMIT_S = 90.0


def snapshot(server: SshServer, enter: tuple[str, ...], *arguments: str) -> dict[str, Any]:
    words = [*COMMAND, "snapshot", "--duration", "500ms"]
    words += [word for source in SOURCES for word in ("--probe", source)]
    done = subprocess.run(
        [*enter, *words, *arguments], env=server.environment, stdin=subprocess.DEVNULL, capture_output=True,
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def is_of_another_test(fact: str, namespace: str) -> bool:
    """Those that run beside this one make machines and namespaces for a moment, too."""
    return fact.startswith(("vm/", "namespace/")) and not fact.startswith((f"vm/{NAME}/", f"namespace/{namespace}/"))


def test_a_snapshot_over_ssh_has_the_sources_and_facts_of_one_taken_there(server: SshServer) -> None:
    there = server.wire.b
    with machine():
        far = snapshot(server, (), "--host", ADDRESS)
        taken_there = snapshot(server, ("nsenter", f"--net=/run/netns/{there.name}"))
    assert {name: far["probes"][name]["status"] for name in SOURCES} == {
        name: taken_there["probes"][name]["status"] for name in SOURCES
    }
    assert far["host"] == taken_there["host"]
    facts = [
        {
            name: fact["value"]
            for name, fact in document["facts"].items()
            if not fact.get("volatile") and not is_of_another_test(name, server.wire.a.name)
        }
        for document in (far, taken_there)
    ]
    assert facts[0] == facts[1]
    assert {name.split("/")[1] for name in facts[0] if name.startswith("nic/")} == {"lo", Wire.DEVICES[1]}
    for of in (f"vm/{NAME}/", f"namespace/{server.wire.a.name}/"):
        assert any(name.startswith(of) for name in facts[0]), of
