"""The collector's side of a compile worker: starts it, and takes its answer and descriptors without waiting."""

import array
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, Dict, List, Optional

from netconsole_collector.compile import captured_output
from netconsole_collector.types import header_tree

TIMEOUT_S = 300.0
"""A worker that takes longer is ended. A compile takes a second or two, and minutes on a busy emulated machine."""

_DIRECTORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_IN_MEMORY = re.fullmatch(r"/proc/self/fd/(\d+)", _DIRECTORY)
_ARCHIVE = (int(_IN_MEMORY.group(1)),) if _IN_MEMORY else ()
"""The descriptor of the archive that this package is imported from, on a host where nothing is installed."""
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from netconsole_collector.compile.worker import main; main(sys.argv[2:])"
)
_RECEIVE_BYTES = 1 << 16
_SCM_MAX_FD = 253
_LENGTH = struct.Struct("=I")

Json = Dict[str, Any]


class CompileJob:
    """One worker process. Poll ``fileno()`` and call :meth:`advance`. The job is over when ``answer`` is set.

    ``answer`` is that of worker.py, with descriptors in place of the indices. They belong to the caller.
    """

    def __init__(self, job: Json, python: str) -> None:
        """Starts the worker with the interpreter ``python``, which has bcc. Raises OSError."""
        self.answer: Optional[Json] = None
        self._received = b""
        self._descriptors: List[int] = []
        self._deadline = time.monotonic() + TIMEOUT_S
        import subprocess  # 2 MB that a collector which compiles nothing does without
        import tempfile

        self._said = tempfile.TemporaryFile()
        self._socket, far = socket.socketpair()
        self._socket.setblocking(False)
        try:
            # The job goes through an unnamed file, not the socket: then nobody has to wait for the other side.
            with far, tempfile.TemporaryFile() as file:
                file.write(json.dumps(job).encode())
                file.seek(0)
                fds = (file.fileno(), far.fileno())
                self._process = subprocess.Popen(
                    [python, "-I", "-c", _START, _DIRECTORY, str(fds[0]), str(fds[1]), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._said,
                    stderr=self._said,
                    pass_fds=fds + _ARCHIVE,
                )
        except OSError:
            self._socket.close()
            self._said.close()
            raise

    @property
    def pid(self) -> int:
        """Of the worker."""
        return self._process.pid

    def fileno(self) -> int:
        return self._socket.fileno()

    def advance(self) -> bool:
        """Takes what has arrived. True when the answer is complete. Call it on readiness, and now and then."""
        while self.answer is None:
            try:
                size = socket.CMSG_SPACE(_SCM_MAX_FD * array.array("i").itemsize)
                data, rights, flags, _ = self._socket.recvmsg(_RECEIVE_BYTES, size)
            except BlockingIOError:
                if time.monotonic() > self._deadline:
                    self._refuse("compiling took longer than {:.0f} s".format(TIMEOUT_S))
                break
            except ConnectionError:
                data, rights, flags = b"", [], 0
            for _, _, raw in rights:
                received = array.array("i")
                received.frombytes(raw[: len(raw) // received.itemsize * received.itemsize])
                self._descriptors.extend(received)
            self._received += data
            if flags & socket.MSG_CTRUNC:
                why = "the probe's maps and programs need more open files than the limit allows"
                self._refuse(why, "raise the limit: ulimit -n")
            elif not data:
                self._refuse("the compile worker ended early ({})".format(self._how_it_ended()))
            elif len(self._received) >= _LENGTH.size:
                length = _LENGTH.unpack_from(self._received)[0]
                if len(self._received) >= _LENGTH.size + length:
                    self._accept(json.loads(self._received[_LENGTH.size :].decode()))
        return self.answer is not None

    def wait(self) -> Json:
        """The answer, when the worker has ended. For those who have nothing else to do."""
        try:
            while not self.advance():
                select.select([self], [], [], 1.0)
        finally:
            self.cancel()
        assert self.answer is not None
        return self.answer

    def cancel(self) -> None:
        """Ends the worker if it still runs. Closes its descriptors if there is no answer yet."""
        taken = self.answer is not None
        if not taken:
            self._close_descriptors()
        self._end()

    def _accept(self, answer: Json) -> None:
        self.answer = with_descriptors(answer, self._descriptors)
        # The worker waits for the end of the socket: a message that it never reads would be a drop (AF_UNIX).
        self._end()

    def _refuse(self, why: str, help: Optional[str] = None) -> None:
        self._close_descriptors()
        self.answer = {"ok": False, "state": "failed", "why": why, "help": help, "detail": "", "missing": []}
        self._end()

    def _close_descriptors(self) -> None:
        for fd in self._descriptors:
            os.close(fd)
        self._descriptors = []

    def _how_it_ended(self) -> str:
        import subprocess

        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "it closed its socket"
        if code < 0:
            return signal.Signals(-code).name
        return captured_output.error_in(captured_output.take(self._said.fileno())) or "exit code {}".format(code)

    def _end(self) -> None:
        """After its answer the worker has nothing to clean up, so it is killed and not waited for."""
        self._socket.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._said.close()
        header_tree.sweep()


def with_descriptors(answer: Json, descriptors: List[int]) -> Json:
    """The answer of a worker with descriptors in place of their indices."""
    for fd in descriptors:
        os.set_inheritable(fd, False)
    if answer["ok"]:
        for program in answer["programs"]:
            program["program"] = descriptors[program["program"]]
            program["link"] = descriptors[program["link"]]
        answer["maps"] = {name: descriptors[number] for name, number in answer["maps"].items()}
    return answer


def find_python(setting: Optional[str]) -> str:
    """The interpreter for workers: the one that is set, else the system's, else this one."""
    import shutil

    return setting or shutil.which("python3", path="/usr/bin:/bin") or sys.executable
