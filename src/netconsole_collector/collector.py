"""The collector: commands in, frames out, and the probes in between. They live only as long as the collector."""

import os
import select
import signal
import sys
from typing import Any, Dict, List, Optional, Tuple

from netconsole_collector import VERSION, capabilities, commands
from netconsole_collector.commands import BadCommand
from netconsole_collector.compile import kept_programs, received_programs
from netconsole_collector.compile.refused import TRY_PLAIN
from netconsole_collector.frame_writer import FrameWriter, ReaderGone
from netconsole_collector.host import host
from netconsole_collector.kernel import heap
from netconsole_collector.kernel.clock import mono_ns, wall_ns
from netconsole_collector.kernel.process import WakePipe, on_parents_death
from netconsole_collector.kernel.statistics import StatisticsWindow
from netconsole_collector.kernel.usage import UsageReader
from netconsole_collector.load_queue import Load, LoadQueue, failure
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe import config, followers
from netconsole_collector.probe.reading import decode
from netconsole_collector.probe.running import RunningProbe
from netconsole_collector.probe.sampler import Sampler
from netconsole_collector.probe.spec import spec_problem
from netconsole_collector.questions.asker import Asker
from netconsole_collector.sources.known import is_source
from netconsole_collector.sources.reader import SourceReaders
from netconsole_collector.statuses import of_running, status
from netconsole_collector.types import header_tree

DEFAULT_INTERVAL_MS = 1000
MIN_INTERVAL_MS = 50
MAX_INTERVAL_MS = 3600 * 1000
DEFAULT_WINDOW_MS, DEFAULT_EVERY_MS = 200, 5000
SOURCES_S = 0.1
"""How long the end of an interval may wait for the sources. Their figures are of the next one then."""
FLUSH_S = 0.5
"""How long the last frames may take: the collector has to end within a second."""

_NS_PER_MS = 1000000
_PARENT_CHECK_S = 0.5
_READ_BYTES = 65536

Json = Dict[str, Any]


class Collector:
    """One run. ``python`` is the interpreter for compile workers; None: programs come with the load commands.

    ``keep_in`` is where compile workers keep compiled programs. ``silence_s``: it ends when it has read nothing for so
    long, because the line to the console is broken. The console sends empty lines for that. ``is_asked_first``: until
    the first command that is no question it sends nothing but answers.
    """

    def __init__(
        self,
        stdin: int,
        stdout: int,
        python: Optional[str],
        keep_in: Optional[str] = None,
        silence_s: Optional[float] = None,
        is_asked_first: bool = False,
    ) -> None:
        self._stdin = stdin
        self._output = FrameWriter(stdout)
        self._python = python
        self._lookups = Lookups()
        self._usage = UsageReader()
        self._statistics = StatisticsWindow(DEFAULT_WINDOW_MS * _NS_PER_MS, DEFAULT_EVERY_MS * _NS_PER_MS)
        self._probes: Dict[str, RunningProbe] = {}
        self._sampler = Sampler(self._probes, self._statistics, self._has_woken, self._fail)
        self._bound_pct = 0.0
        if python is not None:
            header_tree.sweep()
        self._loads = LoadQueue(python, keep_in, capabilities.has_ring_buffer())
        self._sources = SourceReaders()
        self._asker = Asker()
        self._is_asked_first = is_asked_first
        self._whole: List[int] = []
        """Commands that want everything to be read once."""
        self._whole_asked: List[int] = []
        """Those whose reading has begun."""
        self._ending: Optional[Tuple[Json, int, int]] = None
        """The frame that ends the interval, while the sources are read: body, monotonic and wall clock."""
        self._interval_ns = DEFAULT_INTERVAL_MS * _NS_PER_MS
        self._last_ns = mono_ns()
        self._next_ns = self._last_ns + self._interval_ns
        self._lines = commands.LineSplitter()
        self._unread: List[bytes] = []
        """Commands that wait until the output has left."""
        self._silence_ns = None if silence_s is None else int(silence_s * 1e9)
        self._heard_ns = mono_ns()
        self._parent = os.getppid()
        self._why: Optional[str] = None
        """Why it ends; None while it runs."""
        self._commands = {
            "load": self._load,
            "unload": self._unload,
            "set": self._set,
            "interval": self._interval,
            "statistics": self._configure_statistics,
            "bound": self._bound,
            "read_whole": self._ask_whole,
            "ask": self._ask,
            "clock": lambda command: True,
            "stop": self._stop,
        }

    def run(self) -> int:
        """Runs until the end of standard input, a signal, or a stop. Returns the exit status."""
        signals = WakePipe()
        signal.set_wakeup_fd(signals.end)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        on_parents_death(signal.SIGCONT)  # a stopped collector would keep its probes for good
        try:
            heap.one_for_all_threads()
            if not self._is_asked_first:
                self._send(self._hello())
            while self._why is None:
                self._step(signals.fd)
            self._finish()
        except ReaderGone:
            pass  # nobody to tell: the kernel removes the probes with our descriptors
        finally:
            self._release()
        return 0

    def _on_signal(self, number: int, frame: Any) -> None:
        self._why = signal.Signals(number).name

    # ---- the loop ----

    def _step(self, wake: int) -> None:
        """Waits for a command, an answer, room in the output or the next deadline. Then does what is due."""
        poller = select.poll()
        poller.register(wake, select.POLLIN)
        # While the reader does not read, we take no commands. That it has gone (POLLHUP) is seen in any case.
        listens = self._output.is_idle or self._silence_ns is not None
        poller.register(self._stdin, select.POLLIN if listens else 0)
        if not self._output.is_idle:
            poller.register(self._output.fd, select.POLLOUT)
        for fd in (*self._loads.fds(), *self._sources.fds, self._asker.fd):
            poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(self._timeout_ms())}
        if self._why is not None:
            return
        if os.getppid() != self._parent:
            self._why = "the process that started the collector has ended"
            return
        self._output.flush()
        self._finish_loads()
        self._hear_sources()
        if self._stdin in ready:
            self._read_commands()
        if self._output.is_idle:
            self._obey()
        now = mono_ns()
        if self._stdin not in ready and self._silence_ns is not None and now - self._heard_ns > self._silence_ns:
            raise ReaderGone()  # the line is broken: nobody would hear a goodbye
        for line in self._asker.answers(now):
            self._output.send_beside(line)
        self._statistics.tick(now)
        self._sampler.tick(now)
        if self._ending is not None and (not self._sources.is_reading or now >= self._ending[1] + self._patience_ns()):
            self._end_interval()
        if now >= self._next_ns:
            self._tick(now)

    def _timeout_ms(self) -> int:
        now = mono_ns()
        deadlines = [self._next_ns, now + int(_PARENT_CHECK_S * 1e9)]
        if self._silence_ns is not None:
            deadlines.append(self._heard_ns + self._silence_ns)
        if self._ending is not None:
            deadlines.append(self._ending[1] + self._patience_ns())
        beside = (self._statistics.deadline_ns(), self._sampler.deadline_ns(), self._asker.deadline_ns())
        deadlines += [at for at in beside if at is not None]
        return max(0, (min(deadlines) - now) // _NS_PER_MS + 1)

    def _tick(self, now: int) -> None:
        """One interval. It is left out while the last one is still on its way out: totals stay in the kernel."""
        self._next_ns += self._interval_ns * max(1, (now - self._next_ns) // self._interval_ns + 1)
        if self._is_asked_first:
            return
        if not self._output.is_idle:
            self._output.skip()
            return
        self._report(now)

    def _report(self, now: int) -> None:
        since, self._last_ns, wall = self._last_ns, now, wall_ns()
        if self._ending is not None:
            self._end_interval()
        is_whole = bool(self._whole) or self._why is not None
        if self._why is None and self._sources.read(now, is_whole):
            self._whole_asked, self._whole = self._whole_asked + self._whole, []
        for probe in list(self._probes.values()):
            self._report_probe(probe, since, is_whole)
        body = {"kind": "cost", "interval_ns": now - since, "usage": self._usage.read(self._loads.workers())}
        # Its end is when the readings began: what they take, names of functions above all, is no part of it.
        self._ending = body, now, wall
        if not self._sources.is_reading or self._why is not None:
            self._end_interval()

    def _end_interval(self) -> None:
        """Sends what the sources have read, and the frame that ends the interval."""
        assert self._ending is not None
        is_read = self._sources.is_idle
        for one in self._sources.figures():
            self._output.send(*one)
        ending, self._ending = self._ending, None
        self._output.send(*ending)
        while is_read and self._whole_asked:
            self._reply(self._whole_asked.pop())

    def _patience_ns(self) -> int:
        return min(int(SOURCES_S * 1e9), self._interval_ns // 2)

    def _hear_sources(self) -> None:
        for one in self._sources.told(mono_ns()):
            self._output.send(*one)

    def _report_probe(self, probe: RunningProbe, since: int, is_whole: bool = False) -> None:
        """Sends the frames of a probe. When it cannot be read any more, only this probe fails."""
        mono, wall = mono_ns(), wall_ns()
        try:
            bodies = probe.read(self._statistics, mono, since, is_whole)
        except (OSError, ValueError, KeyError) as error:
            self._fail(probe, error)
            return
        for body in bodies:
            self._output.send(body, mono, wall)
        if probe.detach_failed_checks() or probe.has_lost_a_device():
            self._send(of_running(probe))

    def _fail(self, probe: RunningProbe, error: Exception) -> None:
        self._drop(probe)
        why = "the probe's maps cannot be read or written: {}".format(error)
        self._send(status(probe.name, "failed", probe.mode, probe.knobs, why=why))

    def _has_woken(self, probes: List[RunningProbe]) -> None:
        """Programs of these probes were attached again, or could not be."""
        self._settle(list(self._probes.values()))
        for probe in probes:
            if probe.lost_a_program():
                self._send(of_running(probe))

    def _send(self, body: Json) -> None:
        self._output.send(body, mono_ns(), wall_ns())

    # ---- commands ----

    def _read_commands(self) -> None:
        data = os.read(self._stdin, _READ_BYTES)
        if not data:
            self._why = "end of standard input"
            return
        self._heard_ns = mono_ns()
        self._unread += self._lines.add(data)
        if self._lines.is_too_long():
            self._reply(0, "a line of more than {} bytes is not a command".format(commands.MAX_BYTES))

    def _obey(self) -> None:
        unread, self._unread = self._unread, []
        for line in unread:
            self._command(line)

    def _command(self, line: bytes) -> None:
        identifier = 0
        try:
            command = commands.parsed(line)
            identifier = command["id"]
            call = self._commands.get(str(command.get("command")))
            if call is None:
                raise BadCommand(
                    "unknown command {!r}: expected {}".format(command.get("command"), ", ".join(self._commands))
                )
            if self._is_asked_first and call != self._ask:
                self._begin()
            is_done = call(command)
        except (BadCommand, config.KnobError, OSError) as error:
            self._reply(identifier, str(error))
        else:
            if is_done:
                self._reply(identifier)

    def _reply(self, identifier: int, error: Optional[str] = None) -> None:
        self._send({"kind": "reply", "id": identifier, "ok": error is None, "error": error})

    def _load(self, command: Json) -> bool:
        """Queues a load; its reply comes when it has ended."""
        for key, kind in (("probe", str), ("spec", dict), ("source", str)):
            if not isinstance(command.get(key), kind):
                raise BadCommand("load: {} is missing or of the wrong type".format(key))
        name = command["probe"]
        if name in self._probes or name in self._sources.probes or self._loads.of_probe(name) is not None:
            raise BadCommand("probe {} is loaded already".format(name))
        if is_source(command["spec"]):
            return self._start_source(command)
        problem = spec_problem(command["spec"])
        if problem:
            raise BadCommand("load: spec: {}".format(problem))
        mode, knobs = commands.mode(command), commands.knobs(command)
        commands.why(command)
        defaults = command["spec"].get("knobs", {})
        wanted = config.merged(defaults, {}, knobs)
        bound_pct = commands.bound_pct(command, self._bound_pct)
        raw = config.pack(mode, wanted, bound_pct)  # wrong knobs are refused at once
        command["config"] = raw.hex()
        load = Load(command)
        if command.get("compiled") is not None:
            self._settle_load(load, received_programs.load(self._loads.job_of(load)))
            return False
        if self._python is None:
            raise BadCommand("load: compiled is missing, and nothing is compiled here")
        answer = kept_programs.load(self._loads.job_of(load))
        if answer is not None:
            self._settle_load(load, answer)
            return False
        self._loads.add(load)
        self._send(status(name, "compiling", mode, wanted))
        self._start_loads()
        return False

    def _start_source(self, command: Json) -> bool:
        """Its reply comes when it was opened."""
        commands.why(command)
        if commands.mode(command) not in command["spec"]["probe"].get("modes", ["summary"]):
            raise BadCommand("load: this probe has no such mode")
        self._sources.start(command)
        return False

    def _set_source(self, command: Json) -> bool:
        name = command["probe"]
        mode, why = command.get("mode") or self._sources.probes[name], commands.why(command)
        if commands.knobs(command):
            raise BadCommand("{}: this probe has no knobs".format(name))
        if mode not in self._sources.modes(name):
            raise BadCommand("{}: this probe has no such mode".format(name))
        self._sources.change(name, mode, why)
        return True

    def _ask_whole(self, command: Json) -> bool:
        self._whole.append(command["id"])
        if command.get("at_once"):
            self._next_ns = min(self._next_ns, mono_ns())
        return False

    def _ask(self, command: Json) -> bool:
        """Its answer is a line of its own."""
        self._asker.ask(command["id"], command.get("question"), command.get("arguments", {}))
        return False

    def _begin(self) -> None:
        """After questions alone: the first interval begins now."""
        self._is_asked_first = False
        self._last_ns = mono_ns()
        self._next_ns = self._last_ns + self._interval_ns
        self._send(self._hello())

    def _unload(self, command: Json) -> bool:
        name = command.get("probe")
        load = self._loads.of_probe(name)
        if load is not None:
            self._loads.cancel(load)
            self._reply(load.id, "the probe was unloaded before it was attached")
            self._send(status(load.probe, "off", commands.mode(load.command), commands.knobs(load.command)))
            return True
        why = commands.why(command)
        if str(name) in self._sources.probes:
            self._send(status(str(name), "off", self._sources.stop(str(name)), {}, why))
            return True
        probe = self._probes.get(str(name))
        if probe is None:
            raise BadCommand("probe {} is not loaded".format(name))
        self._settle_without(probe)
        probe.detach()
        self._report_probe(probe, self._last_ns, True)  # detached: the last figures are the final ones
        self._drop(probe)
        self._send(status(probe.name, "off", probe.mode, probe.knobs, why))
        return True

    def _set(self, command: Json) -> bool:
        if str(command.get("probe")) in self._sources.probes:
            return self._set_source(command)
        probe = self._probes.get(str(command.get("probe")))
        if probe is None:
            raise BadCommand("probe {} is not loaded".format(command.get("probe")))
        mode, why = command.get("mode") or probe.mode, commands.why(command)
        probe.configure(mode, commands.knobs(command))
        self._sampler.changed()
        probe.note = why
        self._settle(list(self._probes.values()))
        self._send(of_running(probe))
        return True

    def _interval(self, command: Json) -> bool:
        milliseconds = commands.integer(command, "ms", MIN_INTERVAL_MS, MAX_INTERVAL_MS)
        self._interval_ns = milliseconds * _NS_PER_MS
        self._next_ns = mono_ns() + self._interval_ns
        return True

    def _configure_statistics(self, command: Json) -> bool:
        window = commands.integer(command, "window_ms", 0, MAX_INTERVAL_MS)
        every = commands.integer(command, "every_ms", 1, MAX_INTERVAL_MS) if window else DEFAULT_EVERY_MS
        if window > every:
            raise BadCommand("statistics: window_ms is longer than every_ms")
        self._statistics.configure(window * _NS_PER_MS, every * _NS_PER_MS, mono_ns())
        return True

    def _bound(self, command: Json) -> bool:
        self._bound_pct = commands.bound_pct(command)
        for probe in self._probes.values():
            if not probe.has_own_bound:
                probe.bound(self._bound_pct)
        return True

    def _stop(self, command: Json) -> bool:
        self._why = "stop"
        return True

    # ---- loading ----

    def _start_loads(self) -> None:
        for load, answer in self._loads.start():
            self._refuse(load, answer)

    def _finish_loads(self) -> None:
        for load, answer in self._loads.answered():
            self._settle_load(load, answer)
        self._start_loads()

    def _settle_load(self, load: Load, answer: Json) -> None:
        if answer["ok"]:
            self._accept(load, answer)
        elif not answer.get("plain", True) and load.command.get("has_plain"):
            self._reply(load.id, TRY_PLAIN)
        else:
            self._refuse(load, answer)

    def _accept(self, load: Load, answer: Json) -> None:
        """The probe is attached and counts. From here on its descriptors are ours."""
        try:
            probe = RunningProbe(load.probe, load.command["spec"], answer, self._lookups, mono_ns())
        except (decode.LayoutError, OSError, KeyError, ValueError) as error:
            self._refuse(load, failure(str(error)))
            return
        probe.bound_pct = commands.bound_pct(load.command, self._bound_pct)
        probe.has_own_bound = load.command.get("kernel_cpu_pct") is not None
        try:
            probe.configure(commands.mode(load.command), commands.knobs(load.command))
        except (config.KnobError, OSError) as error:
            probe.close()
            self._refuse(load, failure(str(error)))
            return
        probe.note = commands.why(load.command)
        self._probes[load.probe] = probe
        for fd in probe.program_fds:
            self._statistics.add(fd)
        self._sampler.changed()
        self._settle(list(self._probes.values()))
        self._send(of_running(probe))
        self._reply(load.id)

    def _refuse(self, load: Load, answer: Json) -> None:
        missing = [one["point"] for program in answer["missing"] for one in program["tried"]]
        command = load.command
        mode = commands.mode(command)
        knobs = config.merged(command["spec"].get("knobs", {}), {}, commands.knobs(command))
        self._send(status(load.probe, answer["state"], mode, knobs, answer["why"], answer["help"], [], missing))
        self._reply(load.id, answer["why"])

    # ---- ends ----

    def _settle_without(self, probe: RunningProbe) -> None:
        """Before a probe goes: programs that run behind one of its programs are attached by themselves."""
        self._settle([other for other in self._probes.values() if other is not probe])

    def _settle(self, probes: List[RunningProbe]) -> None:
        stopped = followers.settle([program for probe in probes for program in probe.programs])
        for probe in probes:
            if any(program in stopped for program in probe.programs):
                self._send(of_running(probe))

    def _drop(self, probe: RunningProbe) -> None:
        self._settle_without(probe)
        for fd in probe.program_fds:
            self._statistics.remove(fd)
        probe.close()
        self._probes.pop(probe.name, None)
        self._sampler.changed()

    def _finish(self) -> None:
        """Detaches everything, sends the final figures, and says goodbye if the reader still reads."""
        self._loads.cancel_all()
        for probe in self._probes.values():
            probe.detach()
        if self._is_asked_first:
            return
        if self._output.is_idle:
            self._report(mono_ns())
        self._send({"kind": "bye", "why": self._why or ""})
        self._output.drain(FLUSH_S)

    def _release(self) -> None:
        self._loads.cancel_all()
        self._statistics.close()
        for probe in self._probes.values():
            probe.detach()  # all of them first: a program may run behind another probe's
        for probe in self._probes.values():
            probe.close()

    # ---- hello ----

    def _hello(self) -> Json:
        return {
            "kind": "hello",
            "host": host(),
            "collector": {"pid": os.getpid(), "python": "{}.{}.{}".format(*sys.version_info), "version": VERSION},
            "capabilities": capabilities.all_of(self._python),
        }
