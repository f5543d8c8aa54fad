"""A real sshd of the test's own, with key and configuration made for it, at the end of a wire that can be cut."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live.network import Wire

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin") or ""
NAME = "far"
"""What the test's configuration of ssh calls the host."""
ADDRESS = f"ssh://{NAME}"
PROGRAM = b"import sys,signal;signal.alarm"
"""Of the command line of every program of ours on the far host."""
_CONFIG = """
Port 22
HostKey {place}/host
AuthorizedKeysFile {place}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
ForceCommand {place}/shell
SetEnv {mark}={place}
"""
_CLIENT = """
Host {name}
  HostName {ip}
  User root
  IdentityFile {place}/key
  IdentitiesOnly yes
  UserKnownHostsFile {place}/known
"""
_MARK = "NETCONSOLE_TEST_SERVER"
"""In the environment of all that this server's logins run: other tests have far hosts too, at the same time."""
_SHELL = '#!/bin/sh\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n'
_LIMIT_S = 20.0


class SshServer:
    """``ssh`` finds it by the name NAME, when ``environment`` is that of the process."""

    def __init__(self, place: Path, wire: Wire) -> None:
        if not SSHD:
            pytest.skip("needs sshd (Debian package openssh-server)")
        self.place = place
        self.wire = wire
        self._log = place / "log"
        place.chmod(0o755)
        for name in ("host", "key", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
        (place / "sshd_config").write_text(_CONFIG.format(place=place, mark=_MARK))
        (place / "config").write_text(_CLIENT.format(place=place, name=NAME, ip=wire.ADDRESSES[1]))
        self.shell(_SHELL)
        self.known("host")
        (place / "bin").mkdir()
        program = place / "bin" / "ssh"
        inside = f"nsenter --net=/run/netns/{wire.a.name}"
        program.write_text(f'#!/bin/sh\nexec {inside} {shutil.which("ssh")} -F {shlex.quote(str(place))}/config "$@"\n')
        program.chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{wire.b.name}", SSHD, "-D", "-f", place / "sshd_config", "-E", self._log]
        )
        deadline = time.monotonic() + _LIMIT_S
        while not self._log.exists() or "Server listening" not in self._log.read_text():
            assert self._process.poll() is None and time.monotonic() < deadline, "sshd does not start"
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Of sshd."""
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """With this server's ssh, and a cache of its own."""
        path = f"{self.place}/bin:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(self.place / "cache"), "XDG_RUNTIME_DIR": ""}

    def sockets(self) -> list[Path]:
        """What the client's ssh has for its connections."""
        return [*(self.place / "cache").rglob("netconsole-ssh-*")]

    def programs(self) -> set[int]:
        """Our programs on the far host, by process, wherever they belong now."""
        mark = f"{_MARK}={self.place}".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                is_ours = b"python" in words[0] and any(word.startswith(PROGRAM) for word in words)
                if is_ours and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
        return found

    def shell(self, script: str = _SHELL) -> None:
        """What a login runs from now on; the command is in $SSH_ORIGINAL_COMMAND."""
        new = self.place / "shell.new"
        new.write_text(script)
        new.chmod(0o755)
        new.rename(self.place / "shell")

    def known(self, name: str | None) -> None:
        """The host key that the client knows from now on; None: it knows none."""
        known = self.place / "known"
        if name is None:
            known.write_text("")
            return
        known.write_text(f"{self.wire.ADDRESSES[1]} {(self.place / f'{name}.pub').read_text()}")

    @contextlib.contextmanager
    def key_of(self, name: str) -> Iterator[None]:
        """The client has another key."""
        key = self.place / "key"
        right = key.read_bytes()
        key.write_bytes((self.place / name).read_bytes())
        try:
            yield
        finally:
            key.write_bytes(right)

    def cut(self, is_cut: bool = True) -> None:
        """The line breaks, and nothing says goodbye: what either end sends is for nobody. Or it is whole again."""
        wire = self.wire
        for end, (namespace, device) in enumerate(zip((wire.a, wire.b), wire.DEVICES, strict=True)):
            mac = "02:00:00:00:00:ff" if is_cut else wire.MACS[1 - end]
            to = ("lladdr", mac, "dev", device, "nud", "permanent")
            namespace.ip("neighbour", "replace", wire.ADDRESSES[1 - end], *to)

    def close(self) -> None:
        """End it, with what it has started."""
        self._process.terminate()
        self._process.wait(_LIMIT_S)
