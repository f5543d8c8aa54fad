"""The program on a far host: the collector, and the reader of what sources ask, in one process (two_streams.py).

A process of its own for each would take 7 MB more. Whatever is compiled comes with the load commands.
"""

import fcntl
import os
import queue
import signal
import threading
from typing import List

from netconsole_collector.collector import Collector
from netconsole_collector.commands import MAX_BYTES
from netconsole_collector.primitives.server import Server, hello, is_silent, refuse, tidy
from netconsole_collector.two_streams import ANSWERS, ASK, END, FRAMES, MAX_PIECE_BYTES, PIECE, START

MARGIN_S = 0.3
"""The collector ends by itself when the line is silent. If it cannot, the process ends so much later."""
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
"""Loads are long lines. Nothing else has to wait while the collector takes them."""
_CHUNK_BYTES = 1 << 16


class FarProgram:
    """The collector runs in the main thread, for its signals; it has pipes in place of the line."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._server = Server(self._answer)
        self._write_lock = threading.Lock()
        self._starts: "queue.Queue[bool]" = queue.Queue()
        self._has_started = False
        self._commands_in, self._commands = os.pipe()
        self._frames, self._frames_in = os.pipe()
        self._is_ended = False
        """The collector was told to end."""
        try:
            fcntl.fcntl(self._commands, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # it is only slower

    def run(self) -> None:
        """Returns when the input ends, or when a signal has ended the collector."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        reader = threading.Thread(target=self._read, name="line", daemon=True)
        reader.start()
        self._answer(hello())
        tidy()
        if not self._starts.get():
            return
        pump = threading.Thread(target=self._pump, name="frames", daemon=True)
        pump.start()
        Collector(self._commands_in, self._frames_in, None, None, self._silence_s, is_asked_first=True).run()
        os.close(self._frames_in)
        pump.join()
        if self._is_ended:  # else a signal has ended it
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            reader.join()

    def _read(self) -> None:
        """The thread that reads the line. When nothing comes for a while, it ends the process."""
        rest = b""
        while True:
            if is_silent(0, self._silence_s + MARGIN_S):
                os._exit(0)
            chunk = os.read(0, _CHUNK_BYTES)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            if len(rest) > MAX_BYTES:
                refuse("a line of more than {} MB".format(MAX_BYTES >> 20))
        signal.setitimer(signal.ITIMER_REAL, self._silence_s + MARGIN_S)  # the kernel ends what does not end by itself
        self._end()
        self._starts.put(False)

    def _take(self, line: bytes) -> None:
        if line.startswith(ASK):
            self._server.take(line[len(ASK) :])
        elif line == START:
            self._has_started = True
            self._starts.put(True)
        elif line == END:
            self._end()
        elif self._has_started and not self._is_ended:
            view = memoryview(line + b"\n")  # an empty one, too: the collector counts what it hears
            while view:
                view = view[os.write(self._commands, view) :]

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            os.close(self._commands)

    def _pump(self) -> None:
        while True:
            data = os.read(self._frames, MAX_PIECE_BYTES)
            self._write(FRAMES, data)
            if not data:
                return

    def _answer(self, message: bytes) -> None:
        for start in range(0, len(message), MAX_PIECE_BYTES):
            self._write(ANSWERS, message[start : start + MAX_PIECE_BYTES])

    def _write(self, stream: int, data: bytes) -> None:
        view = memoryview(PIECE.pack(stream, len(data)) + data)
        with self._write_lock:
            while view:
                try:
                    view = view[os.write(1, view) :]
                except OSError:
                    os._exit(0)  # nobody reads any more


def main(arguments: List[str]) -> int:
    """The argument: seconds of silence after which it ends."""
    FarProgram(float(arguments[0])).run()
    os._exit(0)  # a question may wait for a driver that never answers
