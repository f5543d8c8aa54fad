"""`python -m tests.lab`: a hypervisor for people, with switch, guests and traffic (`make lab`; docs/design/lab.md)."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.kernels.compiled import bring, compile_all, shipped
from tests.lab.kernels.fetch import fetch, kernel_named, kernels
from tests.lab.kernels.qemu import qemu
from tests.lab.machine.errors import LabError
from tests.lab.machine.hypervisor import CHECKOUT, on_a_still_checkout
from tests.lab.machine.terminal import attach
from tests.lab.network.testbed import Testbed, boot
from tests.lab.pytest_inside import run_pytest

EXIT_FOUND, EXIT_USAGE, EXIT_CANNOT = 1, 2, 3
HOURS_S = 3600.0
LIFETIME_S = 8 * HOURS_S
TESTS_LIMIT_S = 1200.0
PORT = "terminal"
CLOSED_PORT = 9
DATAGRAMS_PER_S = 200

CONSOLE = "netconsole --profile summary"
# Ends in a shell, so that quitting the console does not end the machine.
SESSION = """
export PATH={bin}:$PATH PS1='\\h:\\w\\$ '
cd {checkout}
echo; echo {banner}; echo
{first}
exec bash --norc -i
"""
BANNER = (
    "hypervisor {release}: bridge br0, guests {guests}; {traffic}. "
    "Ctrl-D or exit ends the lab, Ctrl-] ends it at once. The console: " + CONSOLE
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("--kernel", default=kernels()[0].name, choices=[kernel.name for kernel in kernels()])
    parser.add_argument("--guests", type=int, default=1, choices=(0, 1, 2), help="each takes its time to boot")
    parser.add_argument("--no-traffic", action="store_true", help="guests that keep quiet")
    parser.add_argument("--lose-all-upcalls", action="store_true", help="a switch that no upcall reaches")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("console", help="the console on the hypervisor, then a shell (the default)")
    commands.add_parser("shell", help="a shell on the hypervisor")
    commands.add_parser("tmux", help="the console inside tmux, with a shell beside it")
    commands.add_parser("fetch", help="only fetch all kernels, and QEMU if need be, into the cache")
    pytest = commands.add_parser("pytest", help="run tests of the project on the hypervisor")
    pytest.add_argument("paths", nargs="+")
    run = commands.add_parser("run", help="run one command on the hypervisor")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    try:
        return ACTIONS[options.command or "console"](options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return EXIT_CANNOT


def interactive(options: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("lab: this needs a terminal; without one there are: run, pytest, fetch", file=sys.stderr)
        return EXIT_USAGE
    console = shlex.join(on_a_still_checkout(*CONSOLE.split()))
    in_tmux = shlex.quote(f"{console}; exec bash --norc")
    first = {
        "shell": "",
        "tmux": f"exec tmux new-session {in_tmux} \\; split-window -v -l 25% 'exec bash --norc'",
    }
    started = time.monotonic()
    say("booting a hypervisor")
    with testbed(options, (PORT,)) as bed:
        say(f"ready after {time.monotonic() - started:.0f} s")
        guests = ", ".join(f"{guest.name} on {guest.card.tap}" for guest in bed.guests) or "none"
        traffic = traffic_of(bed) if bed.guests and not options.no_traffic else "no traffic"
        script = SESSION.format(
            bin=shlex.quote(str(Path(sys.executable).parent)),
            checkout=shlex.quote(str(CHECKOUT)),
            banner=shlex.quote(BANNER.format(release=bed.hypervisor.release, guests=guests, traffic=traffic)),
            first=first.get(options.command or "console", console),
        )
        attach(bed.hypervisor, PORT, script)
    return 0


def run_command(options: argparse.Namespace) -> int:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        print("lab: run needs a command", file=sys.stderr)
        return EXIT_USAGE
    with testbed(options) as bed:
        if bed.guests and not options.no_traffic:
            traffic_of(bed)
        path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
        result = bed.hypervisor.run("env", f"PATH={path}", *argv, cwd=CHECKOUT, limit_s=LIFETIME_S, check=False)
    sys.stdout.buffer.write(result.out)
    sys.stdout.flush()
    sys.stderr.buffer.write(result.err)
    return result.code if result.code >= 0 else 128 - result.code


def run_tests(options: argparse.Namespace) -> int:
    with testbed(options) as bed:
        run = run_pytest(bed.hypervisor, *options.paths, limit_s=TESTS_LIMIT_S)
    for outcome in run.outcomes:
        print(f"{outcome.state.upper():8}{outcome.duration_s:7.1f} s  {outcome.file}::{outcome.name}")
        if outcome.state == "failed":
            print(outcome.text)
    if not run.outcomes:
        print(run.output)
    return 0 if run.outcomes and all(outcome.state != "failed" for outcome in run.outcomes) else EXIT_FOUND


def fetch_all(_options: argparse.Namespace) -> int:
    for kernel in kernels():
        tree = fetch(kernel)
        print(f"{kernel.name}: {tree.version} in {tree.tree}")
    emulator = qemu()
    print(f"QEMU: {emulator.program}, {emulator.accelerator}")
    return 0


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "console": interactive,
    "shell": interactive,
    "tmux": interactive,
    "run": run_command,
    "pytest": run_tests,
    "fetch": fetch_all,
}


def testbed(options: argparse.Namespace, ports: tuple[str, ...] = ()) -> Testbed:
    """With the shipped probes compiled for it: where that has not been done before, while it boots."""
    kernel = kernel_named(options.kernel)
    commands = list(shipped().values())
    with ThreadPoolExecutor() as pool:
        pool.submit(lambda: compile_all(fetch(kernel), commands))
        bed = boot(
            kernel,
            guests=options.guests,
            lose_all_upcalls=options.lose_all_upcalls,
            lifetime_s=LIFETIME_S,
            ports=ports,
        )
    bring(bed.hypervisor, commands)
    return bed


def traffic_of(bed: Testbed) -> str:
    """Some for every pane: datagrams to a port that nobody listens on, and pings."""
    first, *others = bed.guests
    first.keep_sending_udp(DATAGRAMS_PER_S, bed.bridge, port=CLOSED_PORT)
    for other in others:
        other.keep_pinging(first.card.at)
    if not others:
        first.keep_pinging(bed.bridge)
    pinged = "between the guests" if others else "from it to the bridge"
    return f"{DATAGRAMS_PER_S} datagrams/s from vm0 to a closed port, pings {pinged}"


def say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
