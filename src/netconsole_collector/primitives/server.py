"""Answerer questions about this host for a console on another one: JSON lines come in, binary messages go out.

One line holds all questions of an interval. A question that has a place is kept there and asked again with all others
that are kept, by one word, and its answer is told by what has changed since. It ends when its standard input ends or
falls silent.
"""

import ctypes
import errno
import gc
import json
import os
import queue
import resource
import select
import struct
import sys
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from netconsole_collector.kernel.usage import pss_kb, rss_kb
from netconsole_collector.primitives.answers import Answerer
from netconsole_collector.primitives.changes import SAME, KeptAnswers, changes

VERSION = 1
MAX_LINE_BYTES = 8 << 20
MAX_MESSAGE_BYTES = 24 << 20
"""Of all answers to one line. What does not fit is refused."""
MAX_LANES = 8
TOLD_US = 200
"""An answer that has not changed is left out, unless it took longer: who asks may want to ask less often."""
FAILED = 255
"""The form of an answer that is an error: its number, and its words."""
HEAD = struct.Struct("<IIqqQI")
"""Length of what follows, the line's id, CLOCK_MONOTONIC, CLOCK_REALTIME and CPU time in ns, memory in kB."""
ITEM = struct.Struct("<BIIII")
"""Form, place (0: none), length here, length as it is, CPU time of the answer in µs."""
_CHUNK_BYTES = 1 << 16
_M_ARENA_MAX = -8
_PSS_EVERY = 5
"""Lines between two readings of PSS, for which the kernel walks over all our pages."""


class KeptQuestion(NamedTuple):
    """A question that is kept."""

    method: str
    arguments: List[Any]


class Lane:
    """Questions that are answered one after another, in a thread of their own. Another lane does not wait for them."""

    def __init__(self, write: Any) -> None:
        self.lines: "queue.Queue[Optional[Dict[str, Any]]]" = queue.Queue(4)
        self._write = write
        self._answers = Answerer()
        self._places: Dict[int, KeptQuestion] = {}
        self._kept = KeptAnswers()
        self._lines = 0
        self._memory_kb = 0
        threading.Thread(target=self._run, name="lane", daemon=True).start()

    def _run(self) -> None:
        while True:
            line = self.lines.get()
            if line is None:
                self._answers.close()
                return
            self._write(self._answered(line))

    def _answered(self, line: Dict[str, Any]) -> bytes:
        mono_ns, wall_ns = int(time.monotonic() * 1e9), int(time.time() * 1e9)
        clock = getattr(time, "clock_gettime_ns", None)
        if clock is not None:
            mono_ns, wall_ns = clock(time.CLOCK_MONOTONIC), clock(time.CLOCK_REALTIME)
        for place in line.get("forget", ()):
            self._places.pop(place, None)
            self._kept.forget(place)
        items: List[bytes] = []
        size = 0
        for place, question in self._places.items() if line.get("again") else ():
            item = self._item(place, question, size)
            form, _, _, _, took_us = ITEM.unpack_from(item)
            if form == SAME and took_us < TOLD_US:
                continue  # who asks knows what was asked: what is not told has not changed
            items.append(item)
            size += len(item)
        for place, method, *arguments in line.get("ask", ()):
            question = KeptQuestion(method, arguments)
            if place:
                self._places[place] = question
            items.append(self._item(place, question, size))
            size += len(items[-1])
        body = b"".join(items)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
        length = HEAD.size - 4 + len(body)
        return HEAD.pack(length, line["id"], mono_ns, wall_ns, cpu_ns, self._memory()) + body

    def _memory(self) -> int:
        """PSS, read now and then; what is resident where the kernel tells none."""
        if self._lines % _PSS_EVERY == 0:
            self._memory_kb = pss_kb() or rss_kb() or 0
        self._lines += 1
        return self._memory_kb

    def _item(self, place: int, question: KeptQuestion, so_far: int) -> bytes:
        began = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
        try:
            answer = self._answers.answer(question.method, question.arguments)
            form, told = changes(self._kept.last(place), answer)
            size = len(answer)
            if so_far + len(told) > MAX_MESSAGE_BYTES:
                raise OSError(errno.EMSGSIZE, "more answers than fit into one message")
            self._kept.keep(place, answer)
        except OSError as error:
            words = "{} {}".format(error.errno or errno.EIO, error.strerror or error)
            form, told = FAILED, words.encode("utf-8", "replace")[:300]
            size = len(told)
        took_us = int((time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - began) * 1e6)
        return ITEM.pack(form, place, len(told), size, took_us) + told


class Server:
    """Gives lines to their lanes. ``write`` is called with one message at a time."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._lanes: Dict[int, Lane] = {}
        self._write = write

    def take(self, text: bytes) -> None:
        """One line. What makes no sense ends the process."""
        try:
            self._take(json.loads(text.decode("utf-8", "surrogateescape")))
        except (ValueError, TypeError, AttributeError) as error:
            refuse(str(error))

    def _take(self, line: Dict[str, Any]) -> None:
        number = line.get("lane", 0)
        if line.get("end"):
            lane = self._lanes.pop(number, None)
            if lane is not None:
                lane.lines.put(None)
            return
        if number not in self._lanes:
            if len(self._lanes) >= MAX_LANES:
                raise ValueError("more than {} lanes".format(MAX_LANES))
            self._lanes[number] = Lane(self._write)
        self._lanes[number].lines.put(line)


def refuse(why: str) -> None:
    """Ends the process."""
    sys.stderr.write("what was asked makes no sense: {}\n".format(why[:200]))
    sys.stderr.flush()
    os._exit(2)


def main(arguments: Optional[List[str]] = None) -> int:
    """A process of its own. ``arguments``: after how many seconds without a line to end; none: never."""
    silence_s = float(arguments[0]) if arguments else 0.0
    tidy()
    write_lock = threading.Lock()

    def write(message: bytes) -> None:
        view = memoryview(message)
        with write_lock:
            while view:
                try:
                    view = view[os.write(1, view[:_CHUNK_BYTES]) :]
                except OSError:
                    os._exit(0)  # nobody reads any more

    server = Server(write)
    write(hello())
    rest = b""
    while True:
        if silence_s and is_silent(0, silence_s):
            os._exit(0)
        chunk = os.read(0, _CHUNK_BYTES)
        if not chunk:
            os._exit(0)  # a lane may wait for a driver that never answers
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                server.take(line)
        if len(rest) > MAX_LINE_BYTES:
            refuse("a line of more than {} MB".format(MAX_LINE_BYTES >> 20))


def is_silent(fd: int, silence_s: float) -> bool:
    """Whether nothing comes for so long. On a crowded host this process may have waited, and not the line: so what has
    come by then counts."""
    return not select.select([fd], [], [], silence_s)[0] and not select.select([fd], [], [], 0)[0]


def tidy() -> None:
    """Give back what compiling the imported modules has taken, and let threads share one heap."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.malloc_trim(0)


def hello() -> bytes:
    """The message that comes before all answers."""
    name = os.uname()
    said = {
        "version": VERSION,
        "byteorder": sys.byteorder,
        "nodename": name.nodename,
        "release": name.release,
        "machine": name.machine,
    }
    text = json.dumps(said).encode("ascii")
    return struct.pack("<I", len(text)) + text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
