"""Measures what it costs to read the console: its CPU while all panes are gone through, one a second.

A made-up host of 50 VMs with four queues each, links, sockets and drops. It rests on the overview; then all panes are
opened, then gone through again. ``--against DIR`` does the same in another checkout, in pairs. Most of the CPU reads
what the collector sends, whatever is on the screen; that of the thread that draws is said by itself.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from bench.console import _cpu, _environment, _rss_kb, read_for  # noqa: E402
from tests.support.fake_collector import Scenario  # noqa: E402
from tests.support.terminal_process import TerminalProcess  # noqa: E402
from tests.support.tui import scenes  # noqa: E402
from tests.support.tui.vhost_scenes import Host  # noqa: E402

VMS, QUEUES, BUSY = 50, 4, 80
MOST_VMS, MOST_BUSY = 200, 200
"""Of the host whose memory is measured: 200 of its 800 queues move."""
MEMORY_MB = 120
IDLE_ROWS = 500
KEYS = "1234567890d"
CYCLE = 11
PROBES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path")
SETTLE_S = 6.0


def crowd(cycle: int = CYCLE, vms: int = VMS, busy: int = BUSY) -> Scenario:
    """The frames of the host, for ever. ``busy``: that many of its queues move."""
    whole = scenes.attached(Scenario(), real=True)
    for probe in PROBES:
        whole.status(probe)
    host = Host(vms, QUEUES)
    host.scenario.lines = []
    first, again = Scenario(), Scenario()
    for tick in range(cycle):
        lines = first if tick == 0 else again
        scenes.interval(lines, tick, rows=IDLE_ROWS if tick == 0 else 0)
        del lines.lines[-1]
        lines.lines += host.interval(set(host.places[:busy])).lines
    whole.lines += first.lines
    return whole.do("repeat", times=0, lines=again.lines)


def spent_pct(checkout: Path, home: Path, size: tuple[int, int], rounds: int) -> list[float]:
    """CPU in % of a core: at rest, in the first round through the panes, in those after it; all threads, then one."""
    scenario, environment = home / f"{checkout.name}.jsonl", {**_environment(home), "PYTHONPATH": str(checkout / "src")}
    subprocess.run([sys.executable, str(checkout / "bench" / "panes.py"), "--make", str(scenario)], check=True)
    play = checkout / "tests" / "support" / "tui" / "run_console.py"
    with TerminalProcess((sys.executable, str(play), str(scenario)), environment, *size) as process:
        process.until_text("tun_net_xmit")
        read_for(process, SETTLE_S)
        rest = _spent_in(process, len(KEYS), "")
        parts = [rest, _spent_in(process, len(KEYS), KEYS), _spent_in(process, rounds * len(KEYS), KEYS)]
        return [whole for whole, _ in parts] + [drawing for _, drawing in parts]


def _spent_in(process: TerminalProcess, seconds: int, keys: str) -> tuple[float, float]:
    """Its CPU while a key is pressed every second: of all threads, and of the one that draws."""
    before, drew, began_s = _cpu((process.pid,)), _drawing_s(process.pid), time.monotonic()
    for second in range(seconds):
        if keys:
            process.press(keys[(second + 1) % len(keys)])
        read_for(process, began_s + second + 1 - time.monotonic())
    return 100 * (_cpu((process.pid,)) - before) / seconds, 100 * (_drawing_s(process.pid) - drew) / seconds


def _drawing_s(pid: int) -> float:
    """CPU seconds of the first thread, which draws."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def remember(home: Path, size: tuple[int, int], minutes: int) -> None:
    """Prints the memory of a console on a host of 200 VMs, each minute."""
    scenario = crowd(vms=MOST_VMS, busy=MOST_BUSY).save(home / "many.jsonl")
    play = CHECKOUT / "tests" / "support" / "tui" / "run_console.py"
    with TerminalProcess((sys.executable, str(play), str(scenario)), _environment(home), *size) as process:
        process.until_text("tun_net_xmit")
        for minute in range(minutes):
            read_for(process, 60.0)
            print(f"{minute + 1} min: {_rss_kb(process.pid) / 1024:.0f} MB (RSS), at most {MEMORY_MB}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout that has this script, to compare with")
    parser.add_argument("--rounds", type=int, default=3, help="through all panes, in each run (default 3)")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--memory", type=int, metavar="MINUTES", help="measure the memory at 200 VMs instead")
    parser.add_argument("--make", type=Path, help="write the frames of the host to this file, and end")
    options = parser.parse_args()
    if options.make is not None:
        crowd().save(options.make)
        return
    columns, _, lines = options.size.partition("x")
    if options.memory:
        with tempfile.TemporaryDirectory() as directory:
            remember(Path(directory), (int(columns), int(lines)), options.memory)
        return
    checkouts = [CHECKOUT, *([options.against.resolve()] if options.against else [])]
    found: dict[Path, list[list[float]]] = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(options.pairs):
            for checkout in checkouts:
                found[checkout].append(spent_pct(checkout, Path(directory), (int(columns), int(lines)), options.rounds))
    print(f"{options.size}, % of a core: at rest; more while panes are opened; more in {options.rounds} rounds after")
    for checkout, runs in found.items():
        medians = [statistics.median(column) for column in zip(*runs, strict=True)]
        for what, (rest, opened, after) in (("all threads", medians[:3]), ("drawing", medians[3:])):
            print(f"  {checkout}, {what}: {rest:.2f}, {opened - rest:.2f}, {after - rest:.2f}")


if __name__ == "__main__":
    main()
