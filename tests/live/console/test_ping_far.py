"""`ping` over ssh: a far vantage point with its facts, and echoes that are sent there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from netconsole.ping import capture
from tests.support.console_command import COMMAND
from tests.support.live.network import Wire
from tests.support.live.path import PING
from tests.support.live.ssh_server import ADDRESS, SshServer

pytestmark = pytest.mark.starting

COUNT = 20
LIMIT_S = 60.0


def test_a_far_capture_has_every_echo_and_the_facts_of_its_host(server: SshServer) -> None:
    source, target = Wire.ADDRESSES[:2]
    words = ("ping", "capture", "--role", "receiver-vm", "--host", ADDRESS, "--count", str(COUNT))
    more = ("--outside", "kind:veth", "--netns", server.wire.b.name, "--address", f"{source},{target}")
    with subprocess.Popen(
        [*COMMAND, *words, *more], env=server.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        assert "watching as receiver-vm" in running.stderr.readline()
        server.wire.a.python(PING, target, COUNT)
        told, said = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, said
    taken = capture.parse(told.encode(), "stdout")
    assert [packet.seq for packet in taken.packets] == list(range(COUNT))
    assert {packet.outcome for packet in taken.packets} == {"answered"}
    assert taken.addresses == [source, target]
    assert taken.facts


def test_echoes_are_sent_by_the_far_machine(server: SshServer, tmp_path: Path) -> None:
    if "2001:db8" not in server.wire.a.ip("-6", "address"):
        server.wire.use_ipv6()
    target, source = Wire.ADDRESSES6[:2]  # this machine itself may have the others
    words = ("ping", "run", source, target, "--at", f"sender-vm={ADDRESS}", "--count", str(COUNT))
    done = subprocess.run(
        [*COMMAND, *words, "--interval", "5ms", "--limit", "100ms", "-o", str(tmp_path)], env=server.environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} sent, {COUNT} answered, 0 refused" in done.stderr, done.stderr
    # The wire is a veth here and no physical device: its vantage point knows the whole of each echo, and no part.
    taken = capture.load(tmp_path / "sender-vm.json")
    assert [packet.outcome for packet in taken.packets] == ["answered"] * COUNT
    assert all(packet.total_us and packet.request_us is None for packet in taken.packets)
    assert taken.facts
