"""`--host` to a machine of every kernel, over a real ssh: without BCC and without this project, N packets are N."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from netconsole.far import ssh
from netconsole.far.door import Approach
from netconsole.probes.catalogue import load_all
from netconsole.profile.plan import plan
from netconsole.profile.profile import Profile
from netconsole.session.live import LiveSession
from netconsole.telemetry.state import State
from tests.lab.kernels.each import EACH
from tests.lab.machine.hypervisor import CHECKOUT, Hypervisor
from tests.lab.machine.machine import Process
from tests.lab.ping.door import HYPERVISOR, QUIET_S, RELAY, Door, patient
from tests.support.live.ssh_server import SSHD
from tests.support.session_news import SessionNews

pytestmark = pytest.mark.parametrize("testbed", EACH, indirect=True)

NAME = "lab"
SENT = 2000
NAMESPACE = "far-lost"
PLACE = "/run/far"
PORT = 2222
START_LIMIT_S = 120.0
LIMIT_S = 240.0
PROBE = "kernel_drops"
_SERVER = f"""
Port {PORT}
ListenAddress 127.0.0.1
HostKey {PLACE}/host
AuthorizedKeysFile {PLACE}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
"""
# The machine reads this one's files: what it must not have is hidden from sshd, and so from whoever logs in.
_BARE = f"""
for directory in /usr/lib/python3/dist-packages {shlex.quote(str(CHECKOUT))}; do mount -t tmpfs none "$directory"; done
! /usr/bin/python3 -c 'import bcc' 2>/dev/null
mkdir -p /run/sshd
exec {SSHD} -D -e -f {PLACE}/config
"""
_WIRE = f"""
import os, select, socket
far = socket.create_connection(("127.0.0.1", {PORT}))
ways = {{0: far.fileno(), far.fileno(): 1}}
while True:
    for ready in select.select(list(ways), [], [])[0]:
        data = os.read(ready, 65536)
        if not data:
            os._exit(0)
        while data:
            data = data[os.write(ways[ready], data):]
"""
_SEND = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[1])):
    sender.sendto(bytes(64), ("127.0.0.1", 9))
"""


@pytest.fixture
def sshd(hypervisor: Hypervisor, tmp_path: Path) -> Iterator[Process]:
    """A server with keys of its own, in the machine."""
    if not SSHD:
        pytest.skip("needs sshd (Debian package openssh-server)")
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    hypervisor.run("mkdir", "-p", PLACE)
    files = {"config": _SERVER.encode(), "wire.py": _WIRE.encode(), "host": (tmp_path / "host").read_bytes()}
    for name, content in {**files, "key.pub": (tmp_path / "key.pub").read_bytes()}.items():
        hypervisor.write_file(f"{PLACE}/{name}", content)
    hypervisor.run("chmod", "600", f"{PLACE}/host")
    with hypervisor.start("unshare", "--mount", "sh", "-ec", f"exec 2>&1; {_BARE}") as process:
        process.wait_for(b"Server listening", START_LIMIT_S)
        yield process


@pytest.fixture
def address(sshd: Process, hypervisor: Hypervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where ssh finds that server. Everything takes long there: nobody is given up."""
    del sshd
    (tmp_path / "known").write_text(f"{NAME} {(tmp_path / 'host.pub').read_text()}")
    with Door(hypervisor, [], tmp_path):
        carry = f"exec python3 -I -S {PLACE}/wire.py"
        words = [sys.executable, "-I", "-S", str(RELAY), str(tmp_path / "door"), HYPERVISOR, carry]
        (tmp_path / "config").write_text(
            f"Host {NAME}\n  User root\n  HostKeyAlias {NAME}\n  IdentityFile {tmp_path}/key\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {tmp_path}/known\n  ProxyCommand {shlex.join(words)}\n"
        )
        program_of_ssh = tmp_path / "bin" / "ssh"
        program_of_ssh.parent.mkdir()
        program_of_ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
        program_of_ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program_of_ssh.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        for name in ("ServerAliveInterval", "ConnectTimeout"):
            monkeypatch.setitem(ssh._OPTIONS, name, str(round(QUIET_S)))
        with patient():
            yield f"ssh://{NAME}"


def test_n_packets_that_a_bare_machine_loses_are_n(hypervisor: Hypervisor, address: str) -> None:
    hypervisor.shell(f"ip netns add {NAMESPACE}; ip -n {NAMESPACE} link set lo up")
    inode = hypervisor.run("stat", "-L", "-c", "%i", f"/run/netns/{NAMESPACE}").text.strip()
    (request,) = plan(Profile(PROBE), load_all(), [PROBE])

    def counted(state: State) -> int:
        rows = state.probes[PROBE].tables["drops"].rows.values()
        return sum(row.counts["count"].total for row in rows if str(row.labels["netns"]) in (NAMESPACE, inode))

    with closing(Approach(address, may_ask=False)) as way:
        there = way.enter([])
        assert there.about is not None and not there.about.has_bcc
        assert there.about.release == hypervisor.release != os.uname().release
        with closing(LiveSession(there, [request])) as session:
            news = SessionNews(session, LIMIT_S)
            session.start()
            news.until(lambda state: state.probes[PROBE].settled)
            with session.view() as state:
                assert state.probes[PROBE].measuring, state.probes[PROBE].why
            send = ("python3", "-I", "-S", "-c", _SEND, str(SENT))
            hypervisor.run("ip", "netns", "exec", NAMESPACE, *send, limit_s=LIMIT_S)
            news.until(lambda state: "drops" in state.probes[PROBE].tables and counted(state) >= SENT)
            with session.view() as state:
                seen = state.collector.intervals
            news.until(lambda state: state.collector.intervals > seen)
            with session.view() as state:
                assert counted(state) == SENT
    hypervisor.run("ip", "netns", "delete", NAMESPACE)
