"""A snapshot of a far host over a real ssh has the sources and facts of one that is taken there, and none of here."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.console_command import COMMAND
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


def test_a_snapshot_over_ssh_has_the_sources_and_facts_of_one_taken_there(server: SshServer) -> None:
    there = server.wire.b
    inside = ("nsenter", f"--net=/run/netns/{there.name}")
    before, far, after = snapshot(server, inside), snapshot(server, (), "--host", ADDRESS), snapshot(server, inside)
    # Other tests come and go meanwhile, with VMs that they make up: what was the same before and after tells.
    statuses = [{(name, one["probes"][name]["status"]) for name in SOURCES} for one in (before, far, after)]
    assert statuses[0] & statuses[2] <= statuses[1] <= statuses[0] | statuses[2]
    assert far["host"] == after["host"]
    facts = [
        {(name, repr(fact["value"])) for name, fact in document["facts"].items() if not fact.get("volatile")}
        for document in (before, far, after)
    ]
    assert facts[0] & facts[2] <= facts[1] <= facts[0] | facts[2]
    assert {name.split("/")[1] for name, _ in facts[1] if name.startswith("nic/")} == {"lo", Wire.DEVICES[1]}
