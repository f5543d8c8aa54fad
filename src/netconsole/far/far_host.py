"""A host over ssh: logs in, asks what it is, becomes root, runs programs of ours there."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from netconsole.base.errors import UNREADABLE, Unable
from netconsole.base.figure import safe
from netconsole.base.paths import COLLECTOR
from netconsole.far import archive, troubles
from netconsole.far.about import MAX_FILES_BYTES, About, Sudo
from netconsole.far.address import Address
from netconsole.far.program import Gone, Launch, ProgramProcess
from netconsole.far.ssh import SshLine
from netconsole_collector.types.sha256 import sha256

if TYPE_CHECKING:
    from netconsole.far.compiling import FarCompiler

ABOUT = "netconsole_collector.about"
MAX_ABOUT_BYTES = 1 << 20
PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python", "python3")
"""The first is the one that may have bcc. The second is that of RHEL 8 where nobody has installed another."""
ANSWER_S = 20.0
"""A host that sends nothing for so long will not send any more. sudo may have to ask a directory service."""
_ATTEMPTS = 3
_SUDO_S = 20.0


class FarHost:
    """A host over ssh. :meth:`connect` and :meth:`visit` come first."""

    def __init__(self, address: Address, line: SshLine | None = None) -> None:
        """``line``: not the system's ssh."""
        self.address = address
        self._line = line or SshLine(address)
        self._python = PYTHONS[0]
        self._closers: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._sudo: Sudo = "root"
        self.about: About | None = None
        self.compiler: FarCompiler | None = None
        self._password: str | None = None
        """sudo's, if it asks for one. It is only here, and only as long as the console runs."""

    def connect(self, may_ask: bool) -> None:
        """Log in. ``may_ask``: ssh may ask on the terminal. Raises Unable."""
        self._line.open(may_ask)

    def visit(
        self, modules: Sequence[str], lacking: Callable[[About], Iterable[str]]
    ) -> tuple[About, Mapping[str, bytes]]:
        """What it is, and the content of the BTF files that are lacking here. Raises Unable.

        ``modules``: those whose types probes name.
        """
        for python in PYTHONS:
            self._python = python
            try:
                return self._visit(modules, lacking)
            except _NoPython as error:
                why = str(error)
        raise Unable(why)

    def become_root(self, about: About, may_ask: bool) -> None:
        """See that programs can run as root there. Asks for the password of sudo, if that needs one. Raises Unable."""
        self._sudo = about.sudo
        if about.sudo in ("root", "free"):
            return
        refused = {
            "password": "a password is required",
            "tty": "must have a tty",
            "refused": "not in the sudoers file",
            "none": "sudo: not found",
        }
        if about.sudo != "password":
            raise Unable(troubles.of_program(self.address, False, refused[about.sudo], 1))
        if not may_ask:
            raise troubles.NeedsAnswer(
                f"{self.address}: sudo on the host asks for a password, and there is no terminal to type one"
            )
        import getpass

        for attempt in range(_ATTEMPTS):
            again = "wrong; " if attempt else ""
            password = getpass.getpass(f"netconsole: {again}password of sudo on {self.address.host}: ")
            if self._takes(password):
                self._password = password
                return
        raise Unable(troubles.of_program(self.address, False, refused["password"], 1))

    def launch_of(self, module: str, *arguments: str) -> Launch:
        self._line.open()
        opening = archive.opening(module, arguments)
        if self._password is not None:
            opening = self._password.encode() + b"\n" + opening
        return self._start(f"{self._as_root()}{self._python} {archive.COMMAND}", opening)

    def collector(self, *arguments: str) -> Launch:
        more = ["--compiled-elsewhere"] if self.compiler is not None else []
        return self.launch_of(COLLECTOR, "--silence-ends", str(archive.SILENCE_S), *more, *arguments)

    def measuring(self) -> Launch:
        return self.collector("--asked-first")

    def also_close(self, callback: Callable[[], None]) -> None:
        self._closers.append(callback)

    def close(self) -> None:
        while self._closers:
            self._closers.pop()()
        self._line.close()
        self._password = None

    def _as_root(self) -> str:
        if self._sudo == "root":
            return ""
        return "sudo -n -- " if self._password is None else 'sudo -S -p "" -- '

    def _start(self, far_command: str, opening: bytes) -> Launch:
        # exec: no shell waits beside the program.
        return Launch(self._line.command(f"exec {far_command}"), opening, partial(troubles.of_program, self.address))

    def _takes(self, password: str) -> bool:
        """Whether sudo takes the password."""
        command = self._line.command('exec sudo -k -S -p "" -- true')
        try:
            done = subprocess.run(
                command, input=password.encode() + b"\n", capture_output=True, timeout=_SUDO_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _visit(
        self, modules: Sequence[str], lacking: Callable[[About], Iterable[str]]
    ) -> tuple[About, Mapping[str, bytes]]:
        opening = archive.opening_alone(ABOUT, [str(archive.SILENCE_S), *modules])
        try:
            program = ProgramProcess(self._start(f"{self._python} {archive.COMMAND}", opening))
        except Gone as error:
            raise Unable(str(error)) from None
        try:
            output = _Reader(program.chunks(patience_s=ANSWER_S))
            line = output.until(b"\n", MAX_ABOUT_BYTES)
            if not line:
                program.kill()
                why = (
                    program.why()
                    if output.has_ended
                    else f"{self.address}: the host's description of itself is too long"
                )
                raise (_NoPython if troubles.is_without_python(why) else Unable)(why)
            try:
                about = msgspec.json.decode(line, type=About)
            except UNREADABLE as error:
                raise Unable(
                    f"{self.address}: the host's description of itself cannot be read: {safe(error, 120)}"
                ) from None
            if sum(one.bytes for one in about.files.values()) > MAX_FILES_BYTES:
                raise Unable(
                    f"{self.address}: the types of the host's kernel (BTF) have more than {MAX_FILES_BYTES >> 20} MB"
                )
            wanted = list(lacking(about))
            program.send(" ".join([*wanted, "."]).encode() + b"\n")
            files = {}
            for name in wanted:
                told = about.files[name]
                content = output.exactly(told.bytes)
                if len(content) < told.bytes:
                    raise Unable(program.why())
                if sha256(content).hexdigest() != told.sha256:
                    raise Unable(
                        f"{self.address}: the types of the host's kernel ({name}) did not arrive whole; try again"
                    )
                files[name] = content
            self.about = about
            return about, files
        except Gone:
            raise Unable(program.why()) from None
        finally:
            # It ends by itself; nobody has to wait for that.
            threading.Thread(target=program.close, name="about-end", daemon=True).start()


class _NoPython(Unable):
    """There is no python3 of this name."""


class _Reader:
    """Reads a stream by lines and sizes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.has_ended = False
        self._chunks = chunks
        self._rest = bytearray()

    def until(self, end: bytes, most: int) -> bytes:
        """Up to ``end``, without it; b"" when the stream ends or is too long before that."""
        while (place := self._rest.find(end)) < 0:
            chunk = next(self._chunks, b"")
            self.has_ended = not chunk
            if not chunk or len(self._rest) > most:
                return b""
            self._rest += chunk
        found = bytes(self._rest[:place])
        del self._rest[: place + len(end)]
        return found

    def exactly(self, size: int) -> bytes:
        """So many bytes, or fewer when the stream ends before."""
        while len(self._rest) < size and (chunk := next(self._chunks, b"")):
            self._rest += chunk
        found = bytes(self._rest[:size])
        del self._rest[:size]
        return found
