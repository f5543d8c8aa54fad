"""The way of someone who was woken, on a real host: a firewall drops 1 %; the terminal is a vt100 behind 4 kB/s."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netconsole.snapshot import document
from netconsole.snapshot.document import Snapshot
from tests.support.console_command import COMMAND
from tests.support.live.network import Namespace, Wire
from tests.support.poor_line import PoorLine
from tests.support.terminal_process import TerminalProcess

pytestmark = [
    pytest.mark.terminals,
    pytest.mark.skipif(shutil.which("nft") is None, reason="cannot run here: no nft"),
]

PORT = 9
UP, DOWN, CLEAR = "\x1b[A", "\x1b[B", "\x15"
FIREWALL = f"""
table inet f {{
  chain in {{
    type filter hook input priority 0
    udp dport {PORT} numgen inc mod 100 0 drop
    udp dport {PORT} accept
  }}
}}
"""
KEEP_SENDING = """
import select, socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while not select.select([sys.stdin], [], [], 0.02)[0]:
    for _ in range(20):
        try:
            sender.sendto(bytes(64), (sys.argv[1], int(sys.argv[2])))
        except ConnectionRefusedError:
            pass
"""
READ = """
import socket, sys
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
SO_RCVBUFFORCE = 33  # room for what comes while it waits for a CPU: else that is lost, and stands out, too
reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
reader.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    reader.recv(2048)
"""


@pytest.fixture
def firewall() -> Iterator[Namespace]:
    """The namespace behind it, with a service to which 1000 packets a second are sent."""
    near, far = Namespace(), Namespace()
    started = []
    try:
        wire = Wire(near, far)
        far.run("nft", "-f", "-", input=FIREWALL)
        reader = far.start(READ, wire.ADDRESSES[1], PORT)
        started.append(reader)
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        started.append(near.start(KEEP_SENDING, wire.ADDRESSES[1], PORT))
        yield far
    finally:
        for one in started:
            one.kill()
            one.communicate()
        near.remove()
        far.remove()


def story(firewall: Namespace, directory: Path, columns: int, lines: int) -> tuple[int, int | None, bytes, Snapshot]:
    """See, investigate, copy the command, write the ticket, leave. Keys, exit status, output, and the ticket."""
    directory.mkdir()
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"TERM": "vt100", "LC_ALL": "C", "XDG_CONFIG_HOME": str(directory)}
    # No source that sees all namespaces: those of other tests come and go, and have incidents of their own.
    words = (*COMMAND, "--netns", firewall.name, "--probe", "kernel_drops")
    command = ("/bin/sh", "-c", f"cd {shlex.quote(str(directory))} && exec {shlex.join(words)}")
    with TerminalProcess(command, environment, columns, lines) as console:
        line = PoorLine(console)
        line.until("nftables: ")  # the rule, by name
        line.press("i")
        page = line.until(f"UDP {PORT}")
        assert "veth-b" in page and "Investigation" in page and "nftables: " in page
        line.press("y")
        line.until(f"no clipboard here; command: ip netns exec {firewall.name} nft -a list chain")
        line.press("s")
        line.until("Enter measure and write")
        line.press(UP, CLEAR)  # no time: everything since the start
        line.until_gone("time    10s")
        line.press(DOWN, *"fw 1%")
        line.until("fw 1%")
        line.press("\r")
        line.until("written")
        line.press("q", "q", "q")  # back, and twice where the investigation goes on
        console.wait(reading=True)
        (file,) = directory.glob("*.json")
        return line.keys, console.status, bytes(console.output), document.load(file)


def test_from_the_firewall_to_the_ticket_in_under_thirty_keys(firewall: Namespace, tmp_path: Path) -> None:
    sizes = ((80, 24), (120, 40))
    with ThreadPoolExecutor() as pool:  # both mostly wait
        told = [pool.submit(story, firewall, tmp_path / f"{size[0]}", *size) for size in sizes]
    for keys, status, output, ticket in (one.result() for one in told):
        assert keys < 30 and status == 0
        assert not [output[at - 60 : at + 20] for at, one in enumerate(output) if one > 127][:3]
        assert ticket.note == "fw 1%"
        (incident,) = [one for one in ticket.incidents or () if one.where.get("device") == "veth-b"]
        assert incident.cause == "firewall-drops" and "UDP" in incident.what and incident.total
        assert any("nft -a list chain" in command for command in incident.commands)
