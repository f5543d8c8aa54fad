"""Boots a machine under QEMU's TCG and runs commands in it. QEMU always ends with the test run."""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import os
import queue
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.lab.kernels.qemu import Qemu, qemu
from tests.lab.machine.errors import CommandTimeout, LabError, MachineDied
from tests.lab.machine.shares import Server

SUPERVISOR = Path(__file__).with_name("supervisor.py")
BOOT_LIMIT_S = 240.0  # only a hang meets it, also on one slow core
STALL = "detected stalls on CPUs/tasks"
STALLS = 2
"""Reports of RCU, 21 s apart, until a boot is given up: QEMU has lost the timer of a CPU, which does not come back."""
COMMAND_LIMIT_S = 60.0
ANSWER_LIMIT_S = 30.0  # a live machine answers a ping in milliseconds, a busy one on two shared cores in seconds
CONSOLE_LINES_KEPT = 2000
CONSOLE_LINES_SHOWN = 60
# Where the kernel told of trouble, everything from there on: a lock-up's report has a trace of each CPU, twice.
TROUBLE = re.compile(r"BUG: |Oops: |Kernel panic|rcu: INFO: |int3: 0000|general protection fault")
TROUBLE_LINES_SHOWN = 300
LINES_BEFORE_TROUBLE = 10
CHUNK = 65536


@dataclass(frozen=True)
class Result:
    """How a command inside the machine ended; `code` is negative when a signal killed it."""

    argv: tuple[str, ...]
    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        return self.err.decode("utf-8", "replace")


class Machine:
    """A running machine. Use as a context manager, or call `close`."""

    def __init__(
        self,
        arguments: list[str],
        *,
        initramfs: bytes,
        limit_s: float,
        servers: Sequence[Server] = (),
        boot_limit_s: float = BOOT_LIMIT_S,
        ports: tuple[str, ...] = (),
        emulator: Qemu | None = None,
    ) -> None:
        """Boots it and waits until its command server answers.

        `arguments` are QEMU's, without accelerator, console, control port and initramfs; `servers` are started before
        it and end with it. After `limit_s`, counted from its start or the last `keep`, it is ended whatever it does.
        `ports` are further virtio-serial consoles (hvc0, …); `port(name)` is this end of them. `emulator` is that of a
        hypervisor unless another is given. Raises MachineDied with the last console lines when it does not come up.
        """
        emulator = emulator or qemu()
        self._console: deque[str] = deque(maxlen=CONSOLE_LINES_KEPT)
        self._stalls = 0
        self._partial_line = b""
        self._replies: dict[int, queue.SimpleQueue[dict[str, Any]]] = {0: queue.SimpleQueue()}
        self._ids = itertools.count(1)
        self._sending = threading.Lock()
        self._gone = threading.Event()
        self._ports: dict[str, socket.socket] = {}
        self._limit_s = limit_s
        with contextlib.ExitStack() as handed_over:

            def connect() -> tuple[socket.socket, int]:
                mine, theirs = socket.socketpair()
                handed_over.callback(theirs.close)
                return mine, theirs.fileno()

            # Sockets without a name and a file in memory: nothing on disk that could be left behind.
            self._control, control_fd = connect()
            self._console_socket, console_fd = connect()
            image = handed_over.enter_context(_memory_file("initramfs", initramfs))
            fds = [control_fd, console_fd, image]
            command = [
                # Says that the machine reset itself (a triple fault, say), for `died`.
                *(emulator.program, *emulator.firmware, "-accel", emulator.accelerator, "-d", "cpu_reset"),
                *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
                *("-initrd", f"/proc/self/fd/{image}"),
                *("-chardev", f"socket,id=console,fd={console_fd}", "-serial", "chardev:console"),
                *("-device", "virtio-serial", "-chardev", f"socket,id=lab,fd={control_fd}"),
                *("-device", "virtserialport,chardev=lab,name=lab"),
            ]
            for name in ports:
                self._ports[name], fd = connect()
                fds.append(fd)
                command += ["-chardev", f"socket,id={name},fd={fd}"]
                command += ["-device", f"virtconsole,chardev={name},name={name}"]
            commands = [{"argv": server.argv, "fds": server.fds} for server in servers]
            commands.append({"argv": command + arguments, "fds": fds})
            lifeline, self._lifeline = os.pipe()
            handed_over.callback(os.close, lifeline)
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", str(SUPERVISOR), str(lifeline), str(limit_s), json.dumps(commands)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(lifeline, *fds, *(fd for server in servers for fd in server.fds)),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="lab machine", daemon=True)
        self._reader.start()
        try:
            self.release: str = self._reply(0, time.monotonic() + boot_limit_s, "boot")["ready"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the machine and waits until its processes are gone."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._supervisor.wait()
        self._reader.join()
        if self._supervisor.stdout is not None:
            self._supervisor.stdout.close()
        for connection in (self._control, self._console_socket, *self._ports.values()):
            connection.close()

    def run(
        self,
        *argv: str | Path,
        input: bytes = b"",
        env: dict[str, str] | None = None,
        cwd: str | Path = "/",
        limit_s: float = COMMAND_LIMIT_S,
        check: bool = True,
    ) -> Result:
        """Runs a command to its end.

        Raises CommandTimeout at its limit (its processes are killed), MachineDied when the machine does not answer any
        more, and subprocess.CalledProcessError when `check` is set and the command fails.
        """
        with self.start(*argv, env=env, cwd=cwd) as process:
            process.write(input)
            process.close_input()
            result = process.wait(limit_s)
        if check and result.code != 0:
            raise CommandFailed(result)
        return result

    def start(self, *argv: str | Path, env: dict[str, str] | None = None, cwd: str | Path = "/") -> Process:
        """Starts a command in the background; as a context manager it is killed at the end of the block."""
        id = next(self._ids)
        self._replies[id] = queue.SimpleQueue()
        words = tuple(str(word) for word in argv)
        self._send(id=id, do="start", argv=words, env=env or {}, cwd=str(cwd))
        return Process(self, id, words)

    def read_file(self, path: str | Path) -> bytes:
        """A file of the machine, whole."""
        return self.run("cat", path).out

    def write_file(self, path: str | Path, data: bytes) -> None:
        """Writes a file inside the machine (in its memory: it is gone with the machine)."""
        self.run("sh", "-c", 'cat >"$1"', "sh", path, input=data)

    def answers(self, limit_s: float = ANSWER_LIMIT_S) -> bool:
        """Whether its command server still works."""
        id = next(self._ids)
        self._replies[id] = queue.SimpleQueue()
        try:
            self._send(id=id, do="ping")
            self._replies[id].get(timeout=limit_s)
        except (MachineDied, queue.Empty):
            return False
        finally:
            del self._replies[id]
        return not self._gone.is_set()

    def keep(self) -> None:
        """Its lifetime begins anew: somebody has a use for it."""
        with contextlib.suppress(OSError):  # it is dead, as whoever uses it will see
            os.write(self._lifeline, b"k")

    def port(self, name: str) -> socket.socket:
        """This end of a virtio-serial port asked for at the start."""
        return self._ports[name]

    @property
    def supervisor_pid(self) -> int:
        """The process that owns QEMU and what serves it."""
        return self._supervisor.pid

    @property
    def console(self) -> str:
        """The last lines that the machine's kernel and init printed."""
        partial = [self._partial_line.decode("utf-8", "replace")] if self._partial_line else []
        return "\n".join([*self._console, *partial])

    def died(self, doing: str) -> MachineDied:
        """The error that tells what the machine was doing when it was lost, with its last console lines."""
        if self._gone.is_set():
            why = self._how_it_ended
        elif self._stalls >= STALLS:
            why = "stalls"
        else:
            why = "does not answer"
        lines = what_matters(self.console.splitlines())
        return MachineDied("\n  ".join([f"{doing}: the machine {why}; last lines of its console:", *lines]))

    @functools.cached_property
    def _how_it_ended(self) -> str:
        """With what QEMU said, which can be read only once."""
        status, output = self._supervisor.wait(), self._supervisor.stdout
        if output is not None and output.closed:  # by the lab: it had not answered somebody else
            return "was taken down before"
        said = _without_registers(output.read()) if output is not None else ""
        return {
            124: f"was cut off at its limit of {self._limit_s:g} s",
            125: "was ended because the test run seemed to be gone",
        }.get(status, f"ended (status {status})" + (f": {said}" if said else ""))

    def _reply(self, id: int, deadline: float, doing: str) -> dict[str, Any]:
        """The next message about this command. Raises MachineDied, or queue.Empty at the deadline of a live machine."""
        try:
            message = self._replies[id].get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if id == 0 or not self.answers():
                raise self.died(doing) from None
            raise
        if "gone" in message or "stalled" in message:
            raise self.died(doing)
        return message

    def _send(self, **message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._sending:
            try:
                self._control.sendall(data)
            except OSError:
                raise self.died(str(message.get("do"))) from None

    def _read(self) -> None:
        """Takes in console and replies until QEMU closes both."""
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ, self._take_replies)
        selector.register(self._console_socket, selectors.EVENT_READ, self._take_console)
        self._reply_buffer = b""
        while selector.get_map():
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                try:
                    chunk = key.fileobj.recv(CHUNK)
                except OSError:
                    chunk = b""
                if chunk:
                    key.data(chunk)
                else:
                    selector.unregister(key.fileobj)
        self._gone.set()
        for replies in list(self._replies.values()):
            replies.put({"gone": True})

    def _take_replies(self, chunk: bytes) -> None:
        *lines, self._reply_buffer = (self._reply_buffer + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            replies = self._replies.get(message["id"])
            if replies is not None:
                replies.put(message)

    def _take_console(self, chunk: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        self._console += [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
        self._stalls += sum(STALL.encode() in line for line in lines)
        if self._stalls >= STALLS:
            self._replies[0].put({"stalled": True})  # nobody asks any more once it has booted


class CommandFailed(subprocess.CalledProcessError):
    """A command inside the machine ended with another status than 0; its output is in the message."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.code, result.argv, result.out, result.err)
        self._said = (result.errors or result.text).strip()

    def __str__(self) -> str:
        return f"{' '.join(self.cmd)}: exit status {self.returncode}\n{self._said}"


class Process:
    """A command running inside the machine."""

    def __init__(self, machine: Machine, id: int, argv: tuple[str, ...]) -> None:
        self._machine = machine
        self._id = id
        self.argv = argv
        self.out = bytearray()
        self.err = bytearray()
        self.code: int | None = None

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.code is None:
            # An error is on its way already, or the machine may be gone: that one is what counts.
            with contextlib.suppress(LabError) if kind else contextlib.nullcontext():
                self.stop()

    def write(self, data: bytes) -> None:
        """Feeds its standard input."""
        for start in range(0, len(data), CHUNK):
            chunk = base64.b64encode(data[start : start + CHUNK]).decode()
            self._machine._send(id=self._id, do="write", data=chunk)

    def close_input(self) -> None:
        self._machine._send(id=self._id, do="close")

    def signal(self, number: int) -> None:
        """Sends a signal to all of its processes."""
        self._machine._send(id=self._id, do="signal", signal=number)

    def stop(self, limit_s: float = ANSWER_LIMIT_S) -> Result:
        """Kills it (SIGKILL) and waits for its end."""
        if self.code is None:
            self.signal(signal.SIGKILL)
        return self.wait(limit_s)

    def wait(self, limit_s: float = COMMAND_LIMIT_S) -> Result:
        """Waits for its end. Raises CommandTimeout (and kills it) at the limit."""
        if not self.ends_within(limit_s):
            self.signal(signal.SIGKILL)
            raise CommandTimeout(self._describe(f"was cut off at its limit of {limit_s:g} s"))
        assert self.code is not None
        return Result(self.argv, self.code, bytes(self.out), bytes(self.err))

    def ends_within(self, limit_s: float) -> bool:
        """Waits for its end; unlike `wait` leaves it running at the limit."""
        deadline = time.monotonic() + limit_s
        while self.code is None:
            try:
                self._take(deadline)
            except queue.Empty:
                return False
        return True

    def wait_for(self, text: bytes, limit_s: float = COMMAND_LIMIT_S) -> bytes:
        """Waits until `text` stands in its output; returns the output up to and with it, and takes it away.

        Raises CommandTimeout at the limit, MachineDied when the command or the machine ends before.
        """
        deadline = time.monotonic() + limit_s
        while (found := self.out.find(text)) < 0:
            if self.code is not None:
                raise MachineDied(self._describe(f"ended with status {self.code} before it printed {text!r}"))
            try:
                self._take(deadline)
            except queue.Empty:
                raise CommandTimeout(self._describe(f"did not print {text!r} within {limit_s:g} s")) from None
        end = found + len(text)
        before = bytes(self.out[:end])
        del self.out[:end]
        return before

    def _take(self, deadline: float) -> None:
        message = self._machine._reply(self._id, deadline, " ".join(self.argv))
        if "out" in message:
            self.out += base64.b64decode(message["out"])
        elif "err" in message:
            self.err += base64.b64decode(message["err"])
        elif "exit" in message:
            self.code = message["exit"]
            del self._machine._replies[self._id]
        elif "error" in message:
            self.code = 127
            self.err += message["error"].encode()

    def _describe(self, what: str) -> str:
        said = (bytes(self.out[-2000:]) + bytes(self.err[-2000:])).decode("utf-8", "replace").strip()
        return f"{' '.join(self.argv)}: {what}; it had printed:\n{said}"


def what_matters(console: Sequence[str]) -> Sequence[str]:
    """The last lines, and from the first word of trouble on what the kernel said: the cause stands there."""
    last = max(0, len(console) - CONSOLE_LINES_SHOWN)
    trouble = (max(0, number - LINES_BEFORE_TROUBLE) for number, line in enumerate(console) if TROUBLE.search(line))
    first = min(next(trouble, last), last)
    end = min(first + TROUBLE_LINES_SHOWN, last)
    return [*console[first:end], *(["…"] if end < last else []), *console[last:]]


@contextlib.contextmanager
def _memory_file(name: str, data: bytes) -> Any:
    fd = os.memfd_create(name)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield fd
    finally:
        os.close(fd)


def _without_registers(log: bytes) -> str:
    """What QEMU said, without the dumps of all registers that it adds to each reset."""
    lines = log.decode("utf-8", "replace").splitlines()
    return " ".join(line for line in lines if not re.match(r"[A-Z0-9]{2,5} ?=|CPU Reset|\s*$", line)).strip()
