"""What drawing costs: bytes to the terminal, CPU and memory of the console with a host whose every figure moves."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "tui"))

from scenes import for_ever
from terminal_process import TerminalProcess, console

SIZES = ((120, 40, 16_000), (80, 24, 8_000))
SETTLE_S = 5.0


def main() -> None:
    """Measure at both sizes; the seconds of each run may be given (default 20)."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory() as directory:
        scenario = for_ever().save(Path(directory) / "host.jsonl")
        print(f"console: one drawing a second, every figure moves; {seconds:g} s after {SETTLE_S:g} s")
        for columns, lines, budget in SIZES:
            measure(scenario, columns, lines, budget, seconds)


def measure(scenario: Path, columns: int, lines: int, budget: int, seconds: float) -> None:
    """Print the figures of one size."""
    command, environment = console(scenario)
    started = time.monotonic()
    with TerminalProcess(command, environment, columns, lines) as process:
        process.until_text("tun_net_xmit")
        first_s, first_bytes = time.monotonic() - started, len(process.output)
        read_for(process, SETTLE_S)
        sent, cpu_s, rss_kb = len(process.output), cpu(process.pid), rss(process.pid)
        read_for(process, seconds)
        per_s = (len(process.output) - sent) / seconds
        share = 100 * (cpu(process.pid) - cpu_s) / seconds
        grown = rss(process.pid) - rss_kb
        process.press("q")
        took_s = process.wait()
    print(
        f"  {columns}x{lines}: {per_s:.0f} bytes/s of {budget}, {share:.2f} % of a core, RSS {rss_kb / 1024:.1f} MB"
        f" ({grown:+d} kB), first figures after {first_s:.2f} s and {first_bytes} bytes, gone {took_s:.2f} s after q"
    )


def read_for(process: TerminalProcess, seconds: float) -> None:
    """Take what it writes, as a terminal does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        process.pump(min(0.1, max(0.0, end - time.monotonic())))


def cpu(pid: int) -> float:
    """CPU seconds of all its threads."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def rss(pid: int) -> int:
    """Resident memory in kB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


if __name__ == "__main__":
    main()
