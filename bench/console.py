"""Measures the console itself against its limits: start, bytes to the terminal, CPU and memory.

Once on this host (needs root; the limits are for an idle machine). Once without probes, with a made-up host whose
figures all change: that is the most to draw. Memory must not grow over ten minutes: --minutes 10.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.terminal_process import TerminalProcess
from tests.support.tui.scenes import for_ever

SIZES = ((120, 40, 16_000), (80, 24, 8_000))
"""Columns, lines, bytes a second."""
FIRST_FIGURES_S = 3.0
COLLECTOR_PSS_KB = 20 * 1024
CONSOLE_RSS_KB = 60 * 1024
CPU_PCT = 3.0
GROWTH_KB = 1024
"""What counts as flat: less than a hundredth of it in ten minutes."""
GONE_S = 2.0
SETTLE_S = 10.0
"""The compiles are over by then."""
WARM_S = 60.0
"""Caches and pools are full by then: memory is watched from here on."""

CHECKOUT = Path(__file__).resolve().parents[1]
LIVE = (sys.executable, "-c", "from netconsole.cli.main import main; main()")
PLAYED = (sys.executable, str(CHECKOUT / "tests" / "support" / "tui" / "run_console.py"))
FIRST_LIVE = re.compile(r"Drops · [≥\d][\d.,kM]* packets/s")
"""The title of the overview's first table, once a figure of a BPF probe has come."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the short runs (default 20)")
    parser.add_argument("--minutes", type=float, default=1.0, help="of the run that watches memory (default 1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if os.geteuid() == 0:
            print("This host, profile summary, one drawing a second:")
            for columns, lines, limit in SIZES:
                is_long = (columns, lines) == SIZES[0][:2]
                seconds = 60 * options.minutes if is_long else options.seconds
                live(Path(directory), columns, lines, limit, seconds, WARM_S if is_long else SETTLE_S)
        else:
            print("not on this host: that needs root")
        print("A host whose every figure moves:")
        scenario = for_ever().save(Path(directory) / "host.jsonl")
        for columns, lines, limit in SIZES:
            played(Path(directory), scenario, columns, lines, limit, options.seconds)


def live(home: Path, columns: int, lines: int, limit: int, seconds: float, settle_s: float) -> None:
    """The real thing at one size."""
    started = time.monotonic()
    with TerminalProcess(LIVE, _environment(home), columns, lines) as process:
        process.until("figures", lambda: FIRST_LIVE.search(process.text()) is not None)
        first_s = time.monotonic() - started
        process.until("all probes", lambda: "still to come" not in process.text())
        all_s = time.monotonic() - started
        read_for(process, settle_s)
        (collector,) = process.children()
        bytes_before, cpu_before, rss_before = len(process.output), _cpu((process.pid, collector)), _rss_kb(process.pid)
        read_for(process, seconds)
        per_s = (len(process.output) - bytes_before) / seconds
        cpu_pct = 100 * (_cpu((process.pid, collector)) - cpu_before) / seconds
        rss_kb, pss_kb = _rss_kb(process.pid), _pss_kb(collector)
        process.press("q")
        gone_s = process.wait()
    print(f"  {columns}x{lines}, {seconds:g} s")
    _say("start to first live figures", first_s, FIRST_FIGURES_S, "s", f"all probes after {all_s:.2f} s")
    _say("terminal output", per_s, limit, "bytes/s")
    _say("console and collector, CPU", cpu_pct, CPU_PCT, "% of a core")
    _say("console, RSS", rss_kb, CONSOLE_RSS_KB, "kB")
    _say("console, RSS, growth", rss_kb - rss_before, GROWTH_KB, "kB", f"in {seconds / 60:.1f} min")
    _say("collector, PSS", pss_kb, COLLECTOR_PSS_KB, "kB")
    _say("gone after q", gone_s, GONE_S, "s")


def played(home: Path, scenario: Path, columns: int, lines: int, limit: int, seconds: float) -> None:
    """Drawing alone at one size."""
    with TerminalProcess((*PLAYED, str(scenario)), _environment(home), columns, lines) as process:
        process.until_text("tun_net_xmit")
        read_for(process, SETTLE_S)
        bytes_before, cpu_before = len(process.output), _cpu((process.pid,))
        read_for(process, seconds)
        per_s = (len(process.output) - bytes_before) / seconds
        cpu_pct = 100 * (_cpu((process.pid,)) - cpu_before) / seconds
        rss_kb = _rss_kb(process.pid)
    print(f"  {columns}x{lines}, {seconds:g} s")
    _say("terminal output", per_s, limit, "bytes/s")
    _say("console, CPU", cpu_pct, CPU_PCT, "% of a core")
    _say("console, RSS", rss_kb, CONSOLE_RSS_KB, "kB")


def _say(what: str, value: float, limit: float, unit: str, more: str = "") -> None:
    verdict = "met" if value <= limit else "NOT met"
    print(f"    {what:30} {value:10,.2f} {unit:12} at most {limit:,g}: {verdict}{f'; {more}' if more else ''}")


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    more = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_CONFIG_HOME": str(home)}
    return {**kept, **more, "PYTHONPATH": str(CHECKOUT / "src")}


def read_for(process: TerminalProcess, seconds: float) -> None:
    """Take what it writes, as a terminal does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        process.pump(min(0.1, max(0.0, end - time.monotonic())))


def _cpu(pids: tuple[int, ...]) -> float:
    """CPU seconds of all threads of these processes."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _rss_kb(pid: int) -> int:
    return _first_number(Path(f"/proc/{pid}/status"), "VmRSS")


def _pss_kb(pid: int) -> int:
    return _first_number(Path(f"/proc/{pid}/smaps_rollup"), "Pss")


def _first_number(path: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", path.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    main()
