"""The real program on a real (pseudo) terminal: how it ends, what it sends, and to whom."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.terminal_process import TerminalProcess, alive
from tests.support.tui.scenes import for_ever

pytestmark = pytest.mark.terminals

PROGRAMS = Path(__file__).parents[2] / "support/tui"
PROMISE_S = 2.0
"""However it is ended, so long it may take. (It takes about 0.2 s.)"""


def promise_s(console: TerminalProcess) -> float:
    """What is promised, and on a machine that is slow now so much more as the console took to start on it."""
    return PROMISE_S + console.first_s


COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|38|48|9[0-7]|10[0-7])[0-9;]*m")
MORE_COLOURS = re.compile(rb"\x1b\[(?:[0-9;]*;)?[34]8;[0-9;]*m")
FIRST_FIGURES = "tun_net_xmit"
"""A text that is on the screen once figures are."""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host in trouble, for ever."""
    return for_ever().save(tmp_path_factory.mktemp("scenario") / "host.jsonl")


def console(scenario: Path, **environment: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of the console with a scenario."""
    source = Path(__file__).parents[3] / "src"
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    base = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(source), **kept}
    command = [sys.executable, str(PROGRAMS / "run_console.py"), str(scenario)]
    return command, {**base, **environment}


Start = Callable[..., TerminalProcess]


@pytest.fixture
def start(scenario: Path, tmp_path: Path) -> Start:
    """Starts the console and waits for its first figures."""

    def begin(
        columns: int = 120, lines: int = 40, ignore: tuple[signal.Signals, ...] = (), **more: str
    ) -> TerminalProcess:
        command, environment = console(scenario, XDG_CONFIG_HOME=str(tmp_path), **more)
        process = TerminalProcess(command, environment, columns, lines, ignore)
        process.until_first(FIRST_FIGURES)
        return process

    return begin


def assert_gone(process: TerminalProcess, children: list[int]) -> None:
    """Nothing that it started is left."""
    assert children, "the scenario runs in a process of its own"
    assert not [pid for pid in children if alive(pid)]
    assert process.status is not None


@pytest.mark.parametrize("keys", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_a_key_ends_it(start: Start, keys: str) -> None:
    with start() as console:
        children = console.children()
        console.press(keys)
        assert console.wait() < promise_s(console)
        assert console.status == 0
        assert_gone(console, children)
        assert_terminal_restored(console)
        farewell = console.output.decode().rsplit("\x1b", 1)[1]
        assert "netconsole: watched for 00:00:" in farewell
        assert "CPU time" in farewell and "every probe is removed" in farewell


def assert_terminal_restored(console: TerminalProcess) -> None:
    """Modes as before, alternate screen left, cursor shown, no reports asked for any more."""
    assert termios.tcgetattr(console.master) == console.before
    output = bytes(console.output)
    assert output.rindex(b"\x1b[?1049l") > output.rindex(b"\x1b[?1049h")
    assert output.rindex(b"\x1b[?25h") > output.rindex(b"\x1b[?25l")
    for mode in (b"1004", b"2004"):
        assert output.rindex(b"\x1b[?" + mode + b"l") > output.rindex(b"\x1b[?" + mode + b"h")
    assert b"\x1b[?1000h" not in output, "the mouse is left to the terminal, for selecting text"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_ends_it(start: Start, number: signal.Signals) -> None:
    with start() as console:
        children = console.children()
        console.kill(number)
        assert console.wait() < promise_s(console)
        assert console.status == 130
        assert_gone(console, children)
        assert_terminal_restored(console)


@pytest.mark.parametrize("ignored", [(), (signal.SIGHUP,)], ids=["SIGHUP delivered", "SIGHUP ignored by the parent"])
def test_a_terminal_that_is_gone_ends_it(start: Start, ignored: tuple[signal.Signals, ...]) -> None:
    with start(ignore=ignored) as console:
        children = console.children()
        console.hang_up()
        assert console.wait() < promise_s(console)
        assert console.status == 130
        assert_gone(console, children)


def test_it_ends_although_nobody_reads_what_it_writes(start: Start) -> None:
    with start() as console:
        children = console.children()
        console.until_full()
        console.kill(signal.SIGTERM)
        assert console.wait(reading=False) < promise_s(console)
        assert console.status == 130
        assert_gone(console, children)
        assert termios.tcgetattr(console.master) == console.before


def test_the_end_of_the_console_by_force_ends_everything(start: Start) -> None:
    with start() as console:
        children = console.children()
        console.kill(signal.SIGKILL)
        console.wait()
        end = time.monotonic() + promise_s(console)
        while any(alive(pid) for pid in children):
            assert time.monotonic() < end, "a child survived"
            time.sleep(0.01)  # no event tells of the end of a process that is not ours


def test_standard_error_may_be_a_file(tmp_path: Path) -> None:
    """The screen is drawn on standard output; what is said when it ends goes to the file."""
    _, environment = console(tmp_path, XDG_CONFIG_HOME=str(tmp_path))
    said = tmp_path / "said"
    program = f'exec "{sys.executable}" -c "from netconsole.cli.main import main; main()" replay drops 2>"{said}"'
    with TerminalProcess(["/bin/sh", "-c", program], environment) as process:
        process.until_text("STANDS OUT")
        process.press("q")
        process.wait()
        assert process.status == 0
    assert "netconsole: left the recording of" in said.read_text()
    assert b"netconsole: left the recording of" not in process.output


def test_without_a_terminal_it_says_what_to_do_instead(scenario: Path) -> None:
    command, environment = console(scenario)
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "netconsole snapshot" in done.stderr
    assert done.stdout == ""


def test_a_bad_keys_file_is_one_line_and_exit_2(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "netconsole").mkdir()
    (tmp_path / "netconsole" / "keys.toml").write_text('[keys]\npauze = "x"\n')
    command, environment = console(scenario, XDG_CONFIG_HOME=str(tmp_path))
    with TerminalProcess(command, environment) as process:
        process.wait()
        assert process.status == 2
        assert "keys.pauze: unknown action" in process.output.decode()
        assert b"\x1b[?1049h" not in process.output


def test_no_color_means_no_colour(start: Start) -> None:
    with start(NO_COLOR="1") as console:
        assert COLOUR.search(bytes(console.output)) is None
        console.until_text("!!")  # words carry the meaning
        assert COLOUR.search(bytes(console.output)) is None


@pytest.mark.parametrize("term", ["screen", "tmux-256color", "xterm", "linux"])
def test_only_the_sixteen_colours_of_the_terminal_are_used(start: Start, term: str) -> None:
    with start(TERM=term) as console:
        assert COLOUR.search(bytes(console.output)) is not None
        assert MORE_COLOURS.search(bytes(console.output)) is None


@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}, {"TERM": "dumb"}])
def test_ascii_where_there_is_nothing_else(start: Start, environment: dict[str, str]) -> None:
    with start(**environment) as console:
        assert bytes(console.output).isascii()
        lines = console.text().splitlines()
        assert "STANDS OUT" in lines[2] and re.search(r"data <= \d+ s old", lines[0])
        assert all(len(line) <= 120 for line in lines)


def test_a_dumb_terminal_is_asked_no_questions(start: Start) -> None:
    with start(TERM="dumb") as console:
        assert b"$p" not in console.output and b"\x1b[>" not in console.output


@pytest.mark.parametrize(("columns", "lines", "most"), [(120, 40, 16_000), (80, 24, 8_000)])
def test_the_output_keeps_to_its_budget(start: Start, columns: int, lines: int, most: int) -> None:
    """Every figure of the scenario moves every second: more than the fifth of the cells that the budget is for."""
    with start(columns, lines) as console:
        clock = Clock(console)
        clock.until_seconds(1)
        before, begin_s = len(console.output), clock.shown() or 0
        clock.until_seconds(4)
        per_s = (len(console.output) - before) / ((clock.shown() or 0) - begin_s)
    print(f"{columns}x{lines}: {per_s:.0f} bytes/s")
    assert 0 < per_s <= most


class Clock:
    """The seconds that the header shows: time as the reader of the screen sees it pass."""

    def __init__(self, console: TerminalProcess) -> None:
        self.console = console

    def shown(self) -> int | None:
        found = re.search(r"(?:LIVE|PAUSED) (\d+):(\d+):(\d+)", self.console.text())
        return None if found is None else int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])

    def until_seconds(self, more: int) -> None:
        self.console.until("the clock", lambda: self.shown() is not None)
        wanted = (self.shown() or 0) + more
        self.console.until("the clock to go on", lambda: (self.shown() or 0) >= wanted)


def test_a_slow_reader_never_sees_data_older_than_stated(tmp_path: Path) -> None:
    """8 kB/s, and a pane that changes whole twice a second: more than fits through, so drawings must be skipped.

    A terminal that answers, and beside it one that never does.
    """
    command, environment = console(PROGRAMS / "stamping_collector.py", XDG_CONFIG_HOME=str(tmp_path))
    with TerminalProcess(command, environment) as one, TerminalProcess(command, environment, answers=False) as other:
        for process in (one, other):
            process.until_text("read_")
            process.press("4")
        readers = [SlowReader(one, bytes_per_s=8_000), SlowReader(other, bytes_per_s=8_000)]
        while left := [reader for reader in readers if reader.taken < 130_000]:
            for reader in left:
                reader.read()
            time.sleep(TURN_S / 10)  # the pace of the line, not a wait for something to happen
    for reader in readers:
        oldest_s, stopped_s = max(reader.ages_s), reader.stopped_since(0)
        print(f"oldest data on the screen of a reader of 8 kB/s: {oldest_s:.1f} s; stopped {stopped_s:.1f} s")
        assert len(reader.ages_s) > 50


FIRST_PICTURES_BYTES = 72_000
"""The first picture, the change of pane, and one drawing behind them: before they have been answered, nobody can know
how slow the line is. Measured: the last of them ends after 69 600 bytes, and ages grow until then alone."""
A_FRAME_S = 6.0
"""A frame of 16 kB takes two seconds on such a line. Its first line, which states the age, is there before its last.
Until then the lower lines are of the frame before, drawn four seconds earlier. Were none skipped, the age would grow.
"""
TURN_S = 0.1
"""A reader that comes by less often was stopped; the line carries no more for that."""


class SlowReader:
    """Looks at a screen through a line of a given speed.

    It knows for how long a busy machine stopped it or the console.
    """

    def __init__(self, process: TerminalProcess, bytes_per_s: int) -> None:
        self._process = process
        self._bytes_per_s = bytes_per_s
        self._last_s = time.monotonic()
        self._credit = self._late_s = 0.0
        self._stopped: list[tuple[float, float]] = []
        self.taken = 0
        self.ages_s: list[float] = []
        """Of the oldest data on the screen, whenever something of it changed."""

    def read(self) -> None:
        """Take what the line carries until now, and look."""
        now_s = time.monotonic()
        passed_s, self._last_s = now_s - self._last_s, now_s
        self._late_s += max(0.0, passed_s - TURN_S)
        self._credit = min(self._credit + passed_s * self._bytes_per_s, TURN_S * self._bytes_per_s)
        if self._credit < TURN_S / 2 * self._bytes_per_s:
            return
        read = len(self._process.pump(0, most=int(self._credit)))
        self._credit -= read
        self.taken += read
        if read:
            self._stopped.append((time.time(), self._late_s + self._process.waited_s()))
            self._look()

    def _look(self) -> None:
        text = self._process.text()
        stated = re.search(r"data ≤ (\d+) s old", text)
        stamps = re.findall(r"read_(\d+)_", text)
        if stated is None or not stamps or self.taken < FIRST_PICTURES_BYTES:
            return
        made_s = int(min(stamps)) / 1000
        age_s = time.time() - made_s
        self.ages_s.append(age_s)
        stopped_s = self.stopped_since(made_s)
        assert age_s <= int(stated[1]) + A_FRAME_S + stopped_s, (
            f"{age_s:.1f} s old, stated {stated[1]} s; reader or console stopped for {stopped_s:.1f} s"
        )

    def stopped_since(self, at_s: float) -> float:
        """For how long the reader or the console could not run since this moment (time.time)."""
        before = [stopped_s for when_s, stopped_s in self._stopped if when_s <= at_s]
        return self._stopped[-1][1] - (before[-1] if before else 0.0)


def test_what_is_typed_behind_the_filter_key_goes_into_the_filter(start: Start) -> None:
    with start() as console:
        console.press("4")
        console.until_text("nf_hook_slow")
        console.press("/SOCK\r")  # S alone would write a picture, q would end it
        console.until_text("filter 'sock': 2 of 6")


def test_the_first_picture_is_small(start: Start) -> None:
    """Mounting must not paint again and again: on a slow line the first picture is what one waits for."""
    with start() as console:
        assert len(console.output) < 40_000


def test_memory_is_bounded_with_thousands_of_rows(tmp_path: Path) -> None:
    path = for_ever(cycle=3, pace_s=0.5, rows=3000).save(tmp_path / "rows.jsonl")
    command, environment = console(path, XDG_CONFIG_HOME=str(tmp_path))
    with TerminalProcess(command, environment) as process:
        process.until_text("tun_net_xmit")
        clock = Clock(process)
        clock.until_seconds(2)
        before = rss_kb(process.pid)
        clock.until_seconds(3)
        grown = rss_kb(process.pid) - before
    assert grown < 16_000, f"{grown} kB in six intervals"


def rss_kb(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kb,) = re.findall(r"VmRSS:\s+(\d+)", status)
    return int(kb)
