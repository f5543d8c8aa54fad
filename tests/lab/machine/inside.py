"""Runs inside the lab's machine: starts commands that arrive on a virtio-serial port, and sends back their output.

One JSON object per line, bytes in base64.
  in   {id, do: start, argv, env, cwd} · {id, do: write, data} · {id, do: close} · {id, do: signal, signal}
       {id, do: ping}
  out  {id, started} · {id, out} · {id, err} · {id, exit} · {id, error} · {id 0, ready}
Every command runs in a session of its own, so that a signal reaches all of its processes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import selectors
import subprocess
from pathlib import Path
from typing import IO, Any

PORT_NAME = "lab"
CHUNK = 65536


def find_port(name: str) -> str:
    """The device of the virtio-serial port with this name (no udev here that would make links)."""
    for port in Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == name:
            return f"/dev/{port.name}"
    raise SystemExit(f"no virtio-serial port named {name}")


class Command:
    """One running command, its pipes without blocking: whoever does not read his input holds up nobody else."""

    def __init__(self, server: Server, id: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.server = server
        self.id = id
        self.process = process
        self.stdin: IO[bytes] | None = process.stdin
        self.unwritten = b""
        self.closing = False
        self.to_end = 3  # its output, its errors, and itself: it may close the first two and go on, or fork and end
        self.pidfd = os.pidfd_open(process.pid)
        server.selector.register(self.pidfd, selectors.EVENT_READ, self.died)
        os.set_blocking(process.stdin.fileno(), False)
        for name, pipe in (("out", process.stdout), ("err", process.stderr)):
            server.selector.register(pipe, selectors.EVENT_READ, lambda n=name, p=pipe: self.forward(n, p))

    def write(self, data: bytes) -> None:
        if self.stdin is not None and data:
            if not self.unwritten:
                self.server.selector.register(self.stdin, selectors.EVENT_WRITE, self.write_some)
            self.unwritten += data

    def write_some(self) -> None:
        assert self.stdin is not None
        try:
            self.unwritten = self.unwritten[os.write(self.stdin.fileno(), self.unwritten[:CHUNK]) :]
        except BrokenPipeError:
            self.unwritten = b""  # it ended without reading all of its input: its exit status says the rest
            self.closing = True
        if not self.unwritten:
            self.server.selector.unregister(self.stdin)
            if self.closing:
                self.close_now()

    def close(self) -> None:
        self.closing = True
        if not self.unwritten:
            self.close_now()

    def close_now(self) -> None:
        if self.stdin is not None:
            if self.unwritten:
                self.server.selector.unregister(self.stdin)
            self.stdin.close()
            self.stdin = None

    def forward(self, name: str, pipe: IO[bytes]) -> None:
        chunk = os.read(pipe.fileno(), CHUNK)
        if chunk:
            self.server.send(id=self.id, **{name: base64.b64encode(chunk).decode()})
            return
        self.server.selector.unregister(pipe)
        pipe.close()
        self.ended()

    def died(self) -> None:
        self.server.selector.unregister(self.pidfd)
        os.close(self.pidfd)
        self.ended()

    def ended(self) -> None:
        self.to_end -= 1
        if self.to_end == 0:
            self.close_now()
            del self.server.commands[self.id]
            self.server.send(id=self.id, exit=self.process.wait())


class Server:
    """Carries out what arrives on the port, one line after another."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.commands: dict[int, Command] = {}
        self.buffer = b""

    def serve(self) -> None:
        self.selector.register(self.port, selectors.EVENT_READ, self.receive)
        self.send(id=0, ready=os.uname().release)
        while True:
            for key, _ in self.selector.select():
                if self.selector.get_map().get(key.fileobj) is key:  # else an earlier one of this round has closed it
                    key.data()

    def send(self, **message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            try:
                data = data[os.write(self.port, data) :]
            except BlockingIOError:
                select.select([], [self.port], [])

    def receive(self) -> None:
        try:
            chunk = os.read(self.port, CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            raise SystemExit("the other end of the port is gone")
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            try:
                self.carry_out(**message)
            except Exception as error:
                self.send(id=message["id"], error=f"{type(error).__name__}: {error}")

    def carry_out(self, id: int, do: str, **what: Any) -> None:
        if do == "start":
            self.start(id, **what)
        elif do == "ping":
            self.send(id=id, exit=0)
        elif id in self.commands:  # else it has just ended by itself
            command = self.commands[id]
            if do == "write":
                command.write(base64.b64decode(what["data"]))
            elif do == "close":
                command.close()
            elif do == "signal":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(command.process.pid, what["signal"])

    def start(self, id: int, argv: list[str], env: dict[str, str], cwd: str) -> None:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            cwd=cwd,
            start_new_session=True,
        )
        self.commands[id] = Command(self, id, process)
        self.send(id=id, started=process.pid)


if __name__ == "__main__":
    Server(os.open(find_port(PORT_NAME), os.O_RDWR | os.O_NONBLOCK)).serve()
