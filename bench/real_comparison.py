"""Comparisons of real runs on this kernel: how often the same again is `same`, and whether faults are found first.

At the end any unchanged run is held against others, five, three and one, and each fault against every single run.
Builds a veth pair into a namespace of its own, sends paced UDP and TCP through it, takes a baseline of five snapshots,
then repeats it and injects a delay (tbf), drops of 1 % and a switched-off offload. Needs root; cleans up.
usage: real_comparison.py [--trials N] [--faults N] [--whole-host]
By default only figures of the bench's own device count; with --whole-host all of the summary profile, for a quiet host.
KEEP=DIR keeps the snapshots there and goes on from them: a long run can be made in pieces.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pyroute2 import Ethtool

from netconsole.compare.compare import compare, compare_metrics
from netconsole.compare.document import Comparison
from netconsole.compare.metrics import flatten
from netconsole.snapshot.document import Snapshot, load

NAMESPACE, DEVICE, PEER = "nc-bench", "ncbench0", "ncbench1"
HERE, THERE, NOWHERE = "10.213.77.1", "10.213.77.2", "10.213.78.1"
SECONDS = "3s"
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
softirq_health = {{ mode = "off" }}
self_cost = {{ mode = "off" }}
"""
SINK = """
import selectors, socket
chosen = selectors.DefaultSelector()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("", 7)); chosen.register(udp, 1)
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
import signal, socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.connect((sys.argv[1], 7))
astray = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); astray.connect((sys.argv[2], 7))
tcp = socket.create_connection((sys.argv[1], 9)); tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
losing = False
def toggle(*_):
    global losing
    losing = not losing
signal.signal(signal.SIGUSR1, toggle)
due = time.monotonic()
rounds = 0
while True:
    rounds += 1
    for number in range(10):
        (astray if losing and not number and rounds % 10 == 0 else udp).send(bytes(200))
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
    command("tc", "qdisc", "add", "dev", DEVICE, "root", *words)


@contextlib.contextmanager
def path() -> Iterator[subprocess.Popen[bytes]]:
    """A path with traffic: 1000 datagrams/s and 3 MB/s of TCP."""
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
        yield started[1]
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait()
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)
        subprocess.run(["ip", "link", "del", DEVICE], check=False, stderr=subprocess.DEVNULL)


def measure(folder: Path, name: str) -> Snapshot:
    """One real snapshot; one that a run before has left in the folder is not measured anew."""
    file = folder / f"{name}.json"
    if not file.exists():
        netconsole = Path(sys.executable).parent / "netconsole"
        command(str(netconsole), "snapshot", "--profile", profile(folder), "--duration", SECONDS, "-o", str(file))
    return load(file)


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
def delayed(_: subprocess.Popen[bytes]) -> Iterator[None]:
    """The path wants 26 Mbit/s."""
    qdisc("tbf", "rate", "20mbit", "burst", "32kb", "latency", "50ms")
    yield
    qdisc("pfifo_fast")


@contextlib.contextmanager
def losing(source: subprocess.Popen[bytes]) -> Iterator[None]:
    """1 % of the datagrams go where they are dropped."""
    source.send_signal(signal.SIGUSR1)
    yield
    source.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def without_offloads(_: subprocess.Popen[bytes]) -> Iterator[None]:
    """TSO and GSO off."""
    offloads(False)
    yield
    offloads(True)


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
        main(number("--trials", 20), number("--faults", 3))
