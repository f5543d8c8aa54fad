"""Compares real runs on this kernel: how often an unchanged run is `same`, and whether faults are the first finding.

It makes a veth pair into its own namespace, sends UDP and TCP at a fixed rate, and takes a baseline of five snapshots.
Then it repeats the run, and adds a delay (tbf), drops of 1 % and a switched-off offload. At the end, each unchanged run
is compared with five, three and one of the others, and each fault with every single run. Needs root; cleans up.
With --losses, steady losses of 1 % and 0.2 % instead, by a firewall, a full socket and a policer, each against
baselines of three runs, with and without bursts of drops in one of the three.
usage: real_comparison.py [--trials N] [--faults N] [--losses N] [--whole-host]
By default only figures of the bench's own device count. --whole-host: all figures of the summary profile (quiet host).
KEEP=DIR keeps the snapshots in DIR and continues from them, so that a long run can be made in parts.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyroute2 import Ethtool

from netconsole.cli.measuring import Measuring
from netconsole.compare.compare import compare, compare_metrics
from netconsole.compare.document import Comparison
from netconsole.compare.metrics import flatten
from netconsole.run.assembly import live_run
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot, encode, load

NAMESPACE, DEVICE, PEER = "nc-bench", "ncbench0", "ncbench1"
HERE, THERE, NOWHERE = "10.213.77.1", "10.213.77.2", "10.213.78.1"
SECONDS = "3s"
LOSS_SECONDS = 8
"""0.2 % of 1000/s are then 16 packets."""
PORTS = {"1 %": 5, "0.2 %": 4}
"""To these ports go so many of the datagrams; a loss is of all that goes to one."""
FULL_PORT, CLOSED_PORT, FILTERED_PORT = BURST_PORTS = 20, 21, 22
BURST = 300
"""Packets."""
CALM, BURSTY = 6, 4
"""Runs that baselines of three are drawn from."""
SAMPLES = 6
"""Baselines that each unchanged run is held against."""
OWN = f"""[profile]
name = "own"
description = "The path of this bench alone, so that it can run on a machine that does other things."
inherits = "summary"
[filters]
address = "10.213.76.0/22"
[probes]
tx_queue_latency = {{ mode = "summary", device = "{DEVICE}" }}
socket_drops = {{ mode = "off" }}
socket_groups = {{ mode = "off" }}
softnet = {{ mode = "off" }}
nic_counters = {{ mode = "off" }}
protocol_counters = {{ mode = "off" }}
softirq_health = {{ mode = "off" }}
self_cost = {{ mode = "off" }}
"""
SINK = """
import selectors, signal, socket
chosen = selectors.DefaultSelector()
for port in (7, 5, 4):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("", port)); chosen.register(udp, 1)
    if port != 7:  # takes a packet or two when nobody reads
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        def toggle(*_, udp=udp):
            chosen.unregister(udp) if udp in chosen.get_map() else chosen.register(udp, 1)
        signal.signal(signal.SIGUSR1 if port == 5 else signal.SIGUSR2, toggle)
full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); full.bind(("", 20))
full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
tcp = socket.create_server(("", 9)); chosen.register(tcp, 1)
print("ready")
while True:
    for key, _ in chosen.select():
        if key.fileobj is tcp:
            chosen.register(tcp.accept()[0], 1)
        else:
            key.fileobj.recv(1 << 17)
"""
SOURCE = """
import os, signal, socket, sys, time
parent = os.getppid()
udp, five, four = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3))
udp.connect((sys.argv[1], 7)); five.connect((sys.argv[1], 5)); four.connect((sys.argv[1], 4))
astray = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); astray.connect((sys.argv[2], 7))
tcp = socket.create_connection((sys.argv[1], 9)); tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
losing = False
def toggle(*_):
    global losing
    losing = not losing
signal.signal(signal.SIGUSR1, toggle)
due = time.monotonic()
rounds = 0
while os.getppid() == parent:
    rounds += 1
    for number in range(10):
        of_all = rounds * 10 + number
        one = five if of_all % 100 == 50 else four if of_all % 500 == 77 else udp
        (astray if losing and of_all % 100 == 0 else one).send(bytes(200))
    tcp.send(bytes(30000))
    due = max(due + 0.01, time.monotonic() - 0.1)
    time.sleep(max(0.0, due - time.monotonic()))
"""


def command(*words: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def qdisc(*words: str) -> None:
    """Put a queueing discipline on the path."""
    subprocess.run(["tc", "qdisc", "del", "dev", DEVICE, "root"], check=False, stderr=subprocess.DEVNULL)
    command("tc", "qdisc", "add", "dev", DEVICE, "root", "handle", "1:", *words)


class Ends(NamedTuple):
    """The two processes of the path."""

    source: subprocess.Popen[bytes]
    sink: subprocess.Popen[bytes]


@contextlib.contextmanager
def path() -> Iterator[Ends]:
    """A path with traffic: 1000 datagrams/s and 3 MB/s of TCP."""
    remove_path()  # of a run that was killed
    command("ip", "netns", "add", NAMESPACE)
    started: list[subprocess.Popen[bytes]] = []
    try:
        command("ip", "link", "add", DEVICE, "type", "veth", "peer", "name", PEER, "netns", NAMESPACE)
        command("ip", "addr", "add", f"{HERE}/30", "dev", DEVICE)
        command("ip", "link", "set", DEVICE, "up")
        command("ip", "-n", NAMESPACE, "addr", "add", f"{THERE}/30", "dev", PEER)
        command("ip", "-n", NAMESPACE, "link", "set", PEER, "up")
        # Whatever is sent there reaches the peer, which is no router, and is dropped.
        command("ip", "route", "add", NOWHERE, "via", THERE, "dev", DEVICE)
        # A queueing discipline as on a physical device: a veth has none, and then nothing ever waits.
        qdisc("pfifo_fast")
        sink = ["ip", "netns", "exec", NAMESPACE, sys.executable, "-uc", SINK]
        started.append(subprocess.Popen(sink, stdout=subprocess.PIPE))
        assert started[0].stdout is not None
        started[0].stdout.readline()
        started.append(subprocess.Popen([sys.executable, "-c", SOURCE, THERE, NOWHERE]))
        yield Ends(started[1], started[0])
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait()
        remove_path()


def remove_path() -> None:
    """Remove what there is of it, and end what runs at its far end."""
    for what in ("pids", "del"):
        done = subprocess.run(["ip", "netns", what, NAMESPACE], capture_output=True, text=True, check=False)
        for process in done.stdout.split():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(int(process), signal.SIGKILL)
    subprocess.run(["ip", "link", "del", DEVICE], check=False, stderr=subprocess.DEVNULL)


def measure(folder: Path, name: str) -> Snapshot:
    """One real snapshot; one that a run before has left in the folder is not measured anew."""
    file = folder / f"{name}.json"
    if not file.exists():
        netconsole = Path(sys.executable).parent / "netconsole"
        command(str(netconsole), "snapshot", "--profile", profile(folder), "--duration", SECONDS, "-o", str(file))
    return load(file)


@contextlib.contextmanager
def one_session(folder: Path) -> Iterator[Callable[[str], Snapshot]]:
    """Snapshots of LOSS_SECONDS each from one session: hundreds of runs, and the probes are made ready once."""
    plan = Measuring(profile(folder)).plan()
    news = threading.Event()

    def wait(true: Callable[[], bool]) -> None:
        while not true():
            news.wait(0.1)
            news.clear()

    with live_run(plan) as live:
        live.session.on_news(lambda _: news.set())
        live.session.start()
        wait(live.session.settled)
        facts = live.facts()

        def closed_ns() -> int:
            with live.session.view() as state:
                return state.collector.closed_mono_ns or 0

        def measure_again(name: str) -> Snapshot:
            file = folder / f"{name}.json"
            if not file.exists():
                before_ns = closed_ns()
                wait(lambda: closed_ns() > before_ns)
                with live.session.view() as state:
                    start = builder.totals(state)
                wait(lambda: closed_ns() >= start.mono_ns + (LOSS_SECONDS - 0.5) * 1e9)
                with live.session.view() as state:
                    file.write_bytes(encode(builder.build(state, plan.manifests, plan.profile, start, facts)))
            return load(file)

        yield measure_again


def profile(folder: Path) -> str:
    """The profile to measure with: a name, or the file of one that is limited to the bench's device."""
    if "--whole-host" in sys.argv:
        return "summary"
    file = folder / "own.toml"
    file.write_text(OWN)
    return str(file)


def told(name: str, found: Comparison) -> None:
    """One line, and the three first findings."""
    print(f"  {name}: {found.verdict}; compared {found.compared}, facts changed {len(found.facts_changed)}")
    for finding in found.findings[:3]:
        if finding.significant:
            print(f"    {finding.rank} {finding.direction} {finding.metric}: {finding.why}")
    for change in found.facts_changed[:3]:
        print(f"    fact {change.fact}: {change.baseline} -> {change.current} (may explain {change.may_explain})")


def offloads(on: bool) -> None:
    """TSO and GSO of the device."""
    with Ethtool() as ethtool:
        features = ethtool.get_features(DEVICE)
        for name in ("tx-tcp-segmentation", "tx-generic-segmentation"):
            features.features[name].enable = on
        ethtool.set_features(DEVICE, features)


@contextlib.contextmanager
def delayed(_: Ends) -> Iterator[None]:
    """The path wants 26 Mbit/s."""
    qdisc("tbf", "rate", "20mbit", "burst", "32kb", "latency", "50ms")
    yield
    qdisc("pfifo_fast")


@contextlib.contextmanager
def losing(ends: Ends) -> Iterator[None]:
    """1 % of the datagrams go where they are dropped."""
    ends.source.send_signal(signal.SIGUSR1)
    yield
    ends.source.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def without_offloads(_: Ends) -> Iterator[None]:
    """TSO and GSO off."""
    offloads(False)
    yield
    offloads(True)


def nft(*words: str) -> None:
    """A firewall of the far end."""
    command("ip", "netns", "exec", NAMESPACE, "nft", *words)


@contextlib.contextmanager
def filtered(_: Ends, port: int) -> Iterator[None]:
    """The far end's firewall drops what goes to a port."""
    nft("add", "table", "inet", "bench")
    nft("add", "chain", "inet", "bench", "fault", "{ type filter hook input priority 10 ; }")
    nft("add", "rule", "inet", "bench", "fault", "udp", "dport", str(port), "drop")
    yield
    nft("flush", "chain", "inet", "bench", "fault")
    nft("delete", "chain", "inet", "bench", "fault")


@contextlib.contextmanager
def unread(ends: Ends, port: int) -> Iterator[None]:
    """The receiver of a port sleeps, and its socket is full."""
    number = signal.SIGUSR1 if port == PORTS["1 %"] else signal.SIGUSR2
    ends.sink.send_signal(number)
    yield
    ends.sink.send_signal(number)


@contextlib.contextmanager
def policed(_: Ends, port: int) -> Iterator[None]:
    """What goes to a port may take next to no bandwidth: the rest is shed."""
    qdisc("htb", "default", "2")
    for number, rate in ((2, "10gbit"), (3, "1kbit")):
        names = ["parent", "1:", "classid", f"1:{number}"]
        command("tc", "class", "add", "dev", DEVICE, *names, "htb", "rate", rate, "quantum", "3000")
        queue = ["pfifo", "limit", "1000"] if number == 2 else ["tbf", "rate", rate, "burst", "300", "limit", "300"]
        command("tc", "qdisc", "add", "dev", DEVICE, "parent", f"1:{number}", *queue)
    match = ["u32", "match", "ip", "protocol", "17", "0xff", "match", "ip", "dport", str(port), "0xffff"]
    command(
        "tc", "filter", "add", "dev", DEVICE, "parent", "1:", "protocol", "ip", "prio", "1", *match, "flowid", "1:3"
    )
    yield
    qdisc("pfifo_fast")


LOSSES: dict[str, tuple[Callable[[Ends, int], contextlib.AbstractContextManager[None]], str]] = {
    "a firewall": (filtered, "reason=NETFILTER_DROP"),
    "a full socket": (unread, "reason=SOCKET_RCVBUFF"),
    "a policer": (policed, "reason=QDISC"),
}
"""How a loss is made, and what is in the metric that tells of it."""


@contextlib.contextmanager
def bursts(chance: random.Random) -> Iterator[None]:
    """While a run is measured: a closed port, a firewall and a full socket each drop many packets at once."""
    due = {port: chance.uniform(2.0, LOSS_SECONDS) for port in BURST_PORTS}
    done = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            waited = 0.0
            for port, at in sorted(due.items(), key=lambda one: one[1]):
                if done.wait(at - waited):
                    return
                waited = at
                for _ in range(BURST):
                    with contextlib.suppress(OSError):
                        udp.sendto(bytes(200), (THERE, port))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def by_finding(name: str) -> Callable[[Comparison], bool]:
    """Whether a figure of the bench's own device is finding 1 or 2, and worse."""

    def found(one: Comparison) -> bool:
        first = [finding for finding in one.findings[:2] if finding.significant and finding.direction == "worse"]
        return any(name in finding.metric for finding in first) and one.verdict == "regressed"

    return found


def by_fact(one: Comparison) -> bool:
    """Whether the switched-off offload is among the changed settings."""
    return any("segmentation" in change.fact for change in one.facts_changed)


FAULTS = {
    "tbf 20 Mbit/s": (delayed, by_finding(f"/device={DEVICE}")),
    "1 % dropped": (losing, by_finding(f"location=ip_error,device={PEER}")),
    "TSO and GSO off": (without_offloads, by_fact),
}
"""What is done to the path, and how one sees that it was found."""


def held_against_others(unchanged: Sequence[Snapshot], faulty: Mapping[str, Sequence[Snapshot]]) -> None:
    """How small a baseline may be: what it takes for a change, and what it misses."""
    runs, chance = [flatten(one) for one in unchanged], random.Random(1)
    for size in (5, 3, 1):
        verdicts = [
            compare_metrics(one, chance.sample([other for other in runs if other is not one], size)).verdict
            for one in runs
            for _ in range(SAMPLES)
        ]
        print(f"an unchanged run against {size}: `same` {verdicts.count('same')} of {len(verdicts)}")
    for name, ones in faulty.items():
        verdicts = [compare_metrics(flatten(one), [run]).verdict for one in ones for run in runs]
        told = ", ".join(f"`{verdict}` {count}" for verdict, count in Counter(verdicts).most_common())
        print(f"{name} against one unchanged run: {told} of {len(verdicts)}")


def is_said(name: str) -> Callable[[Comparison], bool]:
    """Whether any finding that makes it a regression tells of a loss."""

    def found(one: Comparison) -> bool:
        certain = [finding for finding in one.findings if finding.significant and finding.direction == "worse"]
        return any(name in finding.metric for finding in certain)

    return found


def losses(trials: int) -> None:
    """Print how often the same again is called a change, and how often a loss is found, with and without bursts."""
    keep, chance = os.environ.get("KEEP"), random.Random(1)
    with tempfile.TemporaryDirectory() as temporary, path() as ends:
        folder = Path(keep or temporary)
        nft("add", "table", "inet", "bench")
        nft("add", "chain", "inet", "bench", "before", "{ type filter hook input priority 0 ; }")
        nft("add", "rule", "inet", "bench", "before", "udp", "dport", str(FILTERED_PORT), "drop")
        with one_session(folder) as again:
            calm = [again(f"calm-{run}") for run in range(CALM)]
            bursty = []
            for run in range(BURSTY):
                with bursts(chance):
                    bursty.append(again(f"bursty-{run}"))
            runs: dict[str, list[Snapshot]] = {"the same again": []}
            for trial in range(trials):
                runs["the same again"].append(again(f"again-{trial}"))
                for share, port in PORTS.items():
                    for name, (fault, _) in LOSSES.items():
                        with fault(ends, port):
                            one = again(f"{fault.__name__}-{port}-{trial}")
                        runs.setdefault(f"{share} by {name}", []).append(one)
    baselines = {
        "without bursts": [chance.sample(calm, 3) for _ in range(trials)],
        "with bursts": [[*chance.sample(calm, 2), chance.choice(bursty)] for _ in range(trials)],
    }
    for beside, of_trial in baselines.items():
        for name, ones in runs.items():
            results = [compare(one, baseline) for one, baseline in zip(ones, of_trial, strict=True)]
            verdicts = Counter(str(one.verdict) for one in results)
            told_of = f"{name}, baseline {beside}: " + ", ".join(f"`{one}` {count}" for one, count in verdicts.items())
            cause = next((reason for cause, (_, reason) in LOSSES.items() if name.endswith(cause)), None)
            print(told_of + (f"; found {sum(map(is_said(cause), results))} of {len(results)}" if cause else ""))
            for trial, result in enumerate(results):
                if cause is None and result.verdict != "same":
                    told(f"trial {trial}", result)


def main(trials: int, faults: int) -> None:
    """Print the share of `same`, then how often each fault is found, with the findings of those that were not."""
    keep = os.environ.get("KEEP")
    with tempfile.TemporaryDirectory() as temporary, path() as source:
        folder = Path(keep or temporary)
        baseline = [measure(folder, f"baseline-{run}") for run in range(5)]
        same = [measure(folder, f"same-{trial}") for trial in range(trials)]
        again = [compare(one, baseline) for one in same]
        busy = sorted(cost for one in (*baseline, *same) if (cost := one.cost.get("machine_cpu_pct")) is not None)
        if busy:
            print(f"the machine was busy: {busy[len(busy) // 2]:.0f} % in the median run, {busy[-1]:.0f} % at most")
        print(f"the same again: {sum(one.verdict == 'same' for one in again)} of {trials} trials `same`")
        for trial, one in enumerate(again):
            if one.verdict != "same":
                told(f"trial {trial}", one)
        faulty: dict[str, list[Snapshot]] = {}
        for name, (fault, is_found) in FAULTS.items():
            faulty[name] = []
            for trial in range(faults):
                with fault(source):
                    faulty[name].append(measure(folder, f"{fault.__name__}-{trial}"))
            results = [compare(one, baseline) for one in faulty[name]]
            worse = sum(one.verdict == "regressed" for one in results)
            print(f"{name}: {worse} of {faults} `regressed`, named {sum(map(is_found, results))} of {faults}")
            for one in results[:1]:
                told("the first", one)
        held_against_others([*baseline, *same], faulty)


def number(option: str, otherwise: int) -> int:
    """What was typed behind an option."""
    return int(sys.argv[sys.argv.index(option) + 1]) if option in sys.argv else otherwise


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("real comparison: cannot run here: needs root")
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the path is taken down in any case
        if "--losses" in sys.argv:
            losses(number("--losses", 20))
        else:
            main(number("--trials", 20), number("--faults", 3))
