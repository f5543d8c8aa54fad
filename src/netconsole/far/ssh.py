"""One connection of the system's ssh to a host. All programs there run over it (multiplexing).

ssh has its own configuration, agent, jump hosts and questions: it asks on the terminal, and we never see a password or
key. Its control socket is where only this user can make files, and ssh removes it when it ends. The connection ends
with this process, however this process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import stat
import subprocess
import threading
from pathlib import Path

from netconsole.base import paths
from netconsole.base.errors import Unable
from netconsole.far import troubles
from netconsole.far.address import Address

SSH = "ssh"
CONNECT_S = 10
"""How long ssh waits for the host's first answer. How long people take to answer ssh's questions is not limited."""
NOTICE_S = 4
"""A broken line is noticed here after about so long (ServerAliveInterval, twice)."""
_LOOK_S = 0.02
_COMPLAINT_BYTES = 4096
_PREFIX = "netconsole-ssh-"
_NAME = re.compile(_PREFIX + r"(\d+)-[\w.]+")
_LONGEST_PATH = 90
"""ssh adds 17 characters while it makes the socket; the kernel takes 107 (unix(7))."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

_OPTIONS = {
    "ControlPersist": "no",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    "PermitLocalCommand": "no",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "EscapeChar": "none",
    "LogLevel": "INFO",
    "Compression": "yes",
    "ConnectTimeout": str(CONNECT_S),
    "ServerAliveInterval": str(NOTICE_S // 2),
    "ServerAliveCountMax": "2",
}
"""They win against what the user's configuration may say for sessions with people. The frames of a quiet host shrink to
a fifth (Compression), where the server allows it."""


class SshLine:
    """The connection to one host. Not open yet."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._socket: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._has_ended = threading.Event()
        self._has_ended.set()
        self._complaint = b""
        self._is_closed = False

    def open(self, may_ask: bool = False) -> None:
        """Connect, unless that has been done. ``may_ask``: ssh may ask on the terminal. Raises Unable."""
        with self._lock:
            if self._is_closed:
                raise Unable(f"{self.address}: the connection was closed")
            if not self._has_ended.is_set():
                return
            socket = self._socket = self._socket or _socket_path()
            with contextlib.suppress(OSError):
                socket.unlink()
            self._complaint = b""
            self._has_ended.clear()
            begun = threading.Event()
            # A thread of its own: the kernel ends ssh when the thread that started it has gone.
            threading.Thread(target=self._run, args=(may_ask, begun), name="ssh", daemon=True).start()
            begun.wait()
            while not socket.exists():
                if self._has_ended.wait(_LOOK_S) or self._is_closed:
                    told = troubles.of_connection(self.address, self._complaint.decode("utf-8", "replace"))
                    raise (troubles.NeedsAnswer if not may_ask and troubles.is_question(told) else Unable)(told)

    def command(self, far_command: str) -> list[str]:
        """The command that runs this one over the open connection, and never opens one by itself."""
        return [
            *self._ssh("ControlMaster=no", "BatchMode=yes", "ProxyCommand=false", "ProxyJump=none"),
            "--",
            self.address.host,
            far_command,
        ]

    def close(self) -> None:
        """Disconnect, and remove the control socket. Idempotent."""
        self._is_closed = True
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()  # also one that asks a question, which open() waits for
            if not self._has_ended.wait(1.0):
                process.kill()
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.unlink()

    def _ssh(self, *more: str) -> list[str]:
        address = self.address
        socket = str(self._socket).replace("%", "%%")
        options = [*(f"{name}={value}" for name, value in _OPTIONS.items()), *more, f'ControlPath="{socket}"']
        vector = [SSH, "-T", *(part for option in options for part in ("-o", option))]
        vector += ["-l", address.user] if address.user else []
        return vector + (["-p", str(address.port)] if address.port else [])

    def _run(self, may_ask: bool, begun: threading.Event) -> None:
        """Runs ssh until it ends."""
        more = ["ControlMaster=yes"] + ([] if may_ask else ["BatchMode=yes"])
        try:
            self._process = process = subprocess.Popen(
                [*self._ssh(*more), "-N", "--", self.address.host],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=_end_with_us,  # two system calls, and no lock is taken
            )
        except OSError as error:
            self._complaint = f"cannot start {SSH}: {error.strerror}".encode()
            self._has_ended.set()
            begun.set()
            return
        begun.set()
        assert process.stderr is not None
        while part := os.read(process.stderr.fileno(), _COMPLAINT_BYTES):
            self._complaint = (self._complaint + part)[-_COMPLAINT_BYTES:]
        process.wait()
        process.stderr.close()
        self._has_ended.set()


def _end_with_us() -> None:
    """In the child: ends with the thread that started it, and leaves Ctrl-C to the console."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _socket_path() -> Path:
    """A new name where only this user can make files, so that no directory of its own stays if we are killed.

    Sockets of consoles that were killed together with their ssh are removed. Raises Unable.
    """
    name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(2)}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    cache = paths.user_cache()
    with contextlib.suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in (Path(runtime), cache, Path("/run/user", str(os.geteuid())), Path("/run")):
        if place.is_absolute() and len(os.fsencode(place / name)) <= _LONGEST_PATH and _is_private(place):
            for old in place.glob(f"{_PREFIX}*"):
                match = _NAME.fullmatch(old.name)
                with contextlib.suppress(OSError):
                    if match and not Path("/proc", match[1]).exists():
                        old.unlink()
            return place / name
    raise Unable("ssh's socket has no safe place: set XDG_RUNTIME_DIR to a directory that only this user can write")


def _is_private(place: Path) -> bool:
    """Whether nobody else can make files in this directory."""
    try:
        status = place.stat()
    except OSError:
        return False
    is_open = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not is_open
