"""`netconsole snapshot` for real: exact counts of real packets, and nothing left behind however it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pcapng
import pytest

from netconsole.base.output import FORMATS
from netconsole.probes.catalogue import load_all
from netconsole.report.ticket import render
from netconsole.snapshot.document import encode, load, parse
from netconsole.snapshot.redact import Redactor
from tests.live.probes.test_mirror import SEND as SEND_MIRROR
from tests.support.console_command import COMMAND, UNBOUNDED
from tests.support.live.network import Namespace, Wire, send_udp
from tests.support.live.storm import CLOSED_PORT

pytestmark = pytest.mark.starting

SCHEMA = Path(__file__).parents[3] / "docs/reference/schema/snapshot-1.json"
RUN = "from netconsole.cli.main import main; main()"
LIMIT_S = 120.0
LONG_ENOUGH = "10s"
"""Processes of sockets are looked for every 5 s at least (names/processes.py)."""
PACKETS = 20_000
SAMPLED = 2_000
"""More than a second may have samples."""
CONTENT = b"netconsole"
THIN = "\u202f"
"""Between thousands."""
SEND = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
left = int(sys.argv[1])
while left:
    try:
        sender.sendto(b"netconsole", ("127.0.0.1", 9))
        left -= 1
    except ConnectionRefusedError:
        pass  # the answer to an earlier one: this one was not sent
"""


class Snapshot:
    """A run that is measuring."""

    def __init__(self, *arguments: str, before: tuple[str, ...] = ()) -> None:
        """``before``: the words of a command that starts it."""
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", RUN, "snapshot", "--duration", "1h", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""
        assert self.process.stderr is not None
        while "measuring" not in self.said:
            line = self.process.stderr.readline()
            assert line, f"ended before it measured: {self.said}"
            self.said += line

    def end(self, number: signal.Signals | None = signal.SIGINT) -> str:
        """Standard output, after it ended: by a signal, or by itself."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, err
        return out


def test_every_drop_is_in_the_document(namespace: Namespace) -> None:
    run = Snapshot(*UNBOUNDED, "--probe", "kernel_drops")
    namespace.python(SEND, PACKETS)
    out = run.end()
    document: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert json.loads(encode(parse(out.encode(), "stdout"))) == document, "loaded and written again it is the same"
    probe = document["probes"]["kernel_drops"]
    if probe["status"] == "unsupported":
        pytest.skip(f"cannot run here: {probe['why']}")
    rows = [
        row
        for row in probe["tables"]["drops"]
        if row["reason"] == "NO_SOCKET" and row["protocol"] == "UDP" and row["netns"] == namespace.name
    ]
    assert sum(row["count"] for row in rows) == PACKETS
    assert document["facts"]["kernel/release"]["value"] == os.uname().release


def test_packets_are_in_their_file_or_said_to_be_missing(namespace: Namespace, tmp_path: Path) -> None:
    """All that were dropped, in one or the other; Wireshark's own reader sees the same where it is installed."""
    path = tmp_path / "drops.pcapng"
    run = Snapshot(*UNBOUNDED, "--probe", "kernel_drops", "--netns", namespace.name, "--pcap", str(path))
    namespace.python(SEND, SAMPLED)
    run.process.send_signal(signal.SIGINT)
    said = run.process.communicate(timeout=LIMIT_S)[1]
    assert run.process.returncode == 0, said
    if "unsupported" in said:
        pytest.skip("cannot run here: see the snapshot")
    told = re.search(r"netconsole: (\d+) packets in \S+; (\d+) more were counted", said.replace(THIN, ""))
    assert told is not None and int(told[1]) + int(told[2]) == SAMPLED, said
    with path.open("rb") as file:
        found = [block for block in pcapng.FileScanner(file) if isinstance(block, pcapng.blocks.EnhancedPacket)]
    assert len(found) == int(told[1]) > 0
    assert {packet.packet_data[-len(CONTENT) :] for packet in found} == {CONTENT}
    assert all(packet.options["opt_comment"].startswith("NO_SOCKET at ") for packet in found)
    assert {packet.interface.options["if_name"] for packet in found} == {"lo"}
    if shutil.which("tshark"):
        words = ("tshark", "-r", str(path), "-Y", "udp.dstport == 9 && frame.comment contains NO_SOCKET")
        shown = subprocess.run(words, capture_output=True, text=True, check=True)
        assert len(shown.stdout.splitlines()) == len(found)


def test_packets_of_a_mirror_are_in_their_file_with_their_tunnel(wire: Wire, tmp_path: Path) -> None:
    """Of the inner flow that was asked for, all that came, in the file or said to be missing."""
    path, port, tuples, flows, rounds = tmp_path / "mirror.pcapng", 1003, 5, 40, 10
    narrow = ("--netns", wire.b.name, "--port", str(port))
    run = Snapshot(*UNBOUNDED, "--probe", "mirror", *narrow, "--pcap", str(path))
    wire.a.python(SEND_MIRROR, Wire.ADDRESSES[1], 4789, tuples, flows, rounds, 7, 0)
    run.process.send_signal(signal.SIGINT)
    said = run.process.communicate(timeout=LIMIT_S)[1]
    assert run.process.returncode == 0, said
    told = re.search(r"netconsole: (\d+) packets in \S+?(?:; (\d+) more were counted.*)?\n", said.replace(THIN, ""))
    assert told is not None and int(told[1]) + int(told[2] or 0) == tuples * rounds, said
    with path.open("rb") as file:
        found = [block for block in pcapng.FileScanner(file) if isinstance(block, pcapng.blocks.EnhancedPacket)]
    assert len(found) == int(told[1]) > 0
    for packet in found:
        assert packet.options["opt_comment"].startswith("VXLAN 7; CPU ")
        outer, inner = packet.packet_data[:42], packet.packet_data[50:]
        assert outer[36:38] == (4789).to_bytes(2, "big") and inner[34:38] == struct.pack(">HH", port, 53)
    assert {packet.interface.options["if_name"] for packet in found} == {Wire.DEVICES[1]}


def test_a_budget_whose_action_is_stop_ends_the_run_with_1(tmp_path: Path) -> None:
    """Its memory is more than 1 MB. The report is written; that is known after ten intervals."""
    profile = tmp_path / "strict.toml"
    profile.write_text('[profile]\nname = "strict"\n[budget]\nmemory_mb = 1\naction = "stop"\n[probes.kernel_drops]\n')
    words = ("snapshot", "--profile", str(profile), "--interval", "100ms", "--duration", "3s")
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1, done.stderr
    assert "budget was exceeded" in done.stderr.splitlines()[-1]
    assert any(one["action"] == "stopped" for one in json.loads(done.stdout)["governor"])


@pytest.mark.parametrize(("duration", "measured_s"), [("300ms", 0.3), ("1ms", 0.1)])
def test_a_short_run_measures_one_interval_of_its_length(duration: str, measured_s: float) -> None:
    run = Snapshot(*UNBOUNDED, "--probe", "kernel_drops", "--duration", duration)
    document = json.loads(run.end(None))
    assert document["duration_s"] >= measured_s / 2, "half an interval is tolerated"
    assert document["probes"]["kernel_drops"]["duration_s"] > 0


def test_the_file_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    run = Snapshot("--probe", "softnet", "-o", str(path))
    assert run.end(signal.SIGTERM) == ""
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["probes"]["softnet"]["status"] == "attached"
    assert [one.name for one in tmp_path.iterdir()] == ["snapshot.json"]


HOST, PROCESS, ADDRESS = "hv-17.dc3.example.net", "tenant-api", "198.51.100.7"
SAMPLES = """
[profile]
name = "samples"
description = "Without a budget: others may storm this host meanwhile."
[probes]
kernel_drops = { mode = "details" }
socket_drops = { mode = "details" }
"""
SLOW_READER = """
import socket, sys
open("/proc/self/comm", "w").write(sys.argv[1])
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
reader.bind((sys.argv[2], 5000))
print("bound", flush=True)
sys.stdin.read()
"""
OVERFLOW = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(500):
    sender.sendto(bytes(1000), (sys.argv[1], 5000))
"""


def test_a_redacted_run_names_nobody(namespace: Namespace, tmp_path: Path) -> None:
    """Known host, process, addresses and MACs, of samples, tables and facts: none of them is in the document."""
    macs = {mac for path in Path("/sys/class/net").glob("*/address") if (mac := path.read_text().strip()).strip("0:")}
    named = ("unshare", "--uts", "sh", "-c", f'hostname {HOST} && exec "$@"', "sh")
    key = ("env", "NETCONSOLE_REDACT_KEY=a key of this ticket")
    profile = tmp_path / "samples.toml"
    profile.write_text(SAMPLES)
    namespace.ip("address", "replace", f"{ADDRESS}/32", "dev", "lo")
    plain, redacted = tmp_path / "plain.json", tmp_path / "redacted.md"
    runs = [
        Snapshot("--profile", str(profile), "-o", str(path), "--duration", LONG_ENOUGH, *options, before=(*named, *key))
        for path, options in ((plain, ()), (redacted, ("--redact",)))
    ]
    reader = namespace.start(SLOW_READER, PROCESS, ADDRESS)
    assert reader.stdout is not None and reader.stdout.readline()
    namespace.python(OVERFLOW, ADDRESS)
    for run in runs:
        run.end(None)
    reader.communicate(timeout=LIMIT_S)
    if ADDRESS not in plain.read_text():
        pytest.skip("cannot run here: no probe could sample")
    known = [HOST, HOST.partition(".")[0], PROCESS, ADDRESS, *macs]
    assert {HOST, PROCESS, ADDRESS} <= {name for name in known if name in plain.read_text()}
    hide, taken = Redactor(b"k" * 32), load(plain)
    pages = [redacted.read_text(), *(render(taken, form, {}, hide=hide)[0].decode() for form in FORMATS)]
    assert not [name for name in known for page in pages if name in page]


@pytest.fixture
def tenant() -> Iterator[Namespace]:
    """A namespace that a scope leaves out, with a device that is in no other."""
    made = Namespace()
    made.ip("link", "add", "nso-tenant", "type", "veth", "peer", "name", "nso-end")
    yield made
    made.remove()


def test_what_is_read_less_often_is_read_again_at_the_end(tenant: Namespace) -> None:
    run = Snapshot("--probe", "protocol_counters", "--duration", "3s")
    tenant.python(SEND, 1000)
    taken = parse(run.end(None).encode(), "stdout")
    rows = taken.probes["protocol_counters"].tables["counters"]
    counted = {row["counter"]: row["count"] for row in rows if row["netns"] == tenant.name}
    assert counted.get("UdpNoPorts") == 1000


def test_a_scope_leaves_other_namespaces_out_of_the_document(wire: Wire, tenant: Namespace) -> None:
    probes = (f"--probe={name}" for name in ("link_rates", "nic_counters", "protocol_counters", "softnet"))
    run = Snapshot("--netns", wire.b.name, *probes, "--duration", "5s")
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, 1000)
    tenant.python(SEND, 1000)
    taken = parse(run.end(None).encode(), "stdout")
    for form in FORMATS:
        text = render(taken, form, load_all())[0].decode()
        assert "UdpNoPorts" in text and wire.DEVICES[1] in text
        assert not [one for one in ("nso-tenant", tenant.name, str(tenant.inode)) if one in text]
    assert f"only netns {wire.b.name}; host-wide: Softnet" in run.said
