"""The console on a host over ssh: a real sshd, this machine's kernel, and a line that breaks in every way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from netconsole.base.errors import Unable
from netconsole.calibrate.load import WORKLOADS, LoadEnds
from netconsole.cli.main import run
from netconsole.far.door import Approach
from tests.live.collector.test_cleanup import Before
from tests.support.console_command import COMMAND, UNBOUNDED
from tests.support.live.network import Namespace, Wire, send_udp
from tests.support.live.ssh_server import ADDRESS, PROGRAM, SshServer

pytestmark = pytest.mark.starting

KERNEL_DROPS = ("--probe", "kernel_drops")
MEASURING = "measuring with"
LIMIT_S = 60.0
COUNT = 500
ROUND_TRIPS = next(one for one in WORKLOADS if one.name == "tcp_round_trip")
PORT = 5301
RULES = f"""
table inet shop {{
  chain in {{
    type filter hook input priority 0; policy accept;
    udp dport {PORT} drop
  }}
}}
"""
PACED = """
import socket, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    one.sendto(b"x", ("{target}", {port}))
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def usual(server: SshServer) -> Iterator[None]:
    """Every test begins with a host that is well."""
    yield
    server.shell()
    server.known("host")
    server.cut(False)


def are_gone(server: SshServer, programs: set[int], count: int) -> bool:
    return len(programs - server.programs()) >= count


def snapshot(server: SshServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, "snapshot", "--host", ADDRESS, *UNBOUNDED, *arguments]
    return subprocess.run(
        words, env=server.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=LIMIT_S,
    )  # fmt: skip


@contextlib.contextmanager
def measuring(server: SshServer) -> Iterator[subprocess.Popen[str]]:
    """A console without a screen that has begun to measure."""
    words = [*COMMAND, "snapshot", "--host", ADDRESS, *UNBOUNDED, *KERNEL_DROPS, "--duration", "10m", "-o", "/dev/null"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, env=server.environment, stdin=quiet, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(MEASURING in line for line in process.stderr)
            yield process
        finally:
            process.kill()


def await_that(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("is_narrowed", [False, True])
def test_n_packets_that_are_lost_there_are_n(server: SshServer, tmp_path: Path, is_narrowed: bool) -> None:
    """Also of a network namespace that is named as it is there."""
    before = Before()
    lost, other = Namespace(), Namespace()
    try:
        narrow = ["--netns", lost.name] if is_narrowed else []
        measured = [*UNBOUNDED, *KERNEL_DROPS, *narrow]
        words = [*COMMAND, "snapshot", "--host", ADDRESS, *measured, "--duration", "3s", "-o"]
        output = tmp_path / "far.json"
        with subprocess.Popen([*words, output], env=server.environment, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if MEASURING.encode() in line:
                    send_udp(lost, "127.0.0.1", PORT, COUNT)
                    send_udp(other, "127.0.0.1", PORT, COUNT)
            assert process.wait(LIMIT_S) == 0, said
        inode = lost.inode
    finally:
        lost.remove()
        other.remove()
    document = json.loads(output.read_text())
    rows = document["probes"]["kernel_drops"]["tables"]["drops"]
    assert any(row["netns"] == other.name for row in rows) is not is_narrowed
    assert sum(row["count"] for row in rows if row["netns"] in (lost.name, str(inode), inode)) == COUNT
    assert document["host"]["kernel"] == os.uname().release
    before.assert_nothing_more(server.programs())


def test_the_host_is_asked_there_who_is_to_blame(server: SshServer, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        names = [Namespace(), Namespace()]
        for one in names:
            stack.callback(one.remove)
        Wire(*names)
        names[1].run("nft", "-f", "-", input=RULES)
        code = PACED.format(target=Wire.ADDRESSES[1], port=PORT)
        sender = names[0].start(code)
        stack.callback(sender.wait)
        stack.callback(sender.kill)
        path = tmp_path / "one.json"
        done = snapshot(server, *KERNEL_DROPS, "--netns", names[1].name, "--duration", "6s", "-o", str(path))
        assert done.returncode == 0, done.stderr
    (one,) = json.loads(path.read_text())["incidents"]
    assert f"nftables: udp dport {PORT} drop (table shop, chain in): " in one["what"]
    assert one["commands"] == [f"ip netns exec {names[1].name} nft -a list chain inet shop in"]
    assert (one["answer"]["moved"], one["answer"]["remains"]) == (0, False)


def test_where_only_the_far_host_has_bcc_it_compiles(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETCONSOLE_PYTHON", sys.executable)  # the environment of the tests has no bcc
    done = snapshot(server, *KERNEL_DROPS, "--duration", "500ms")
    assert done.returncode == 0, done.stderr
    probe = json.loads(done.stdout)["probes"]["kernel_drops"]
    assert probe["status"] == "attached", probe["why"]


def children(pid: int) -> list[int]:
    return [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]


def carrier(console: int, words: bytes) -> int:
    """The ssh of a console that has these words in its command line."""
    return next(pid for pid in children(console) if words in Path(f"/proc/{pid}/cmdline").read_bytes())


def victim(server: SshServer, console: int, whom: str) -> int:
    if whom == "sshd's child":
        return children(server.pid)[0]
    return carrier(console, b"ControlMaster=yes" if whom == "connection" else PROGRAM)


def test_however_the_line_breaks_nothing_is_left_there_and_it_is_joined_again(server: SshServer) -> None:
    before = Before()
    with measuring(server) as process:
        for whom in ("a program's ssh", "connection", "sshd's child", "nobody"):
            mine = server.programs()
            if whom == "nobody":
                server.cut()  # sshd would not notice for a quarter of an hour
            else:
                os.kill(victim(server, process.pid, whom), signal.SIGKILL)
            # One program's ssh takes one with it; the rest, all.
            await_that(partial(are_gone, server, mine, 1 if whom == "a program's ssh" else len(mine)))
            server.cut(False)
            await_that(server.programs)
        assert len(server.sockets()) == 1
        process.kill()
        await_that(lambda: not server.programs())
        await_that(lambda: not server.sockets())
    before.assert_nothing_more(set())


def test_the_load_of_a_calibration_is_made_there_and_ends_with_the_line(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, server.environment[name])
    with contextlib.closing(Approach(ADDRESS, may_ask=False)) as way, LoadEnds(way.enter([])) as load:
        assert load.run(ROUND_TRIPS, 0.05).figures["tcp_round_trip.p50_us"] > 0
        mine = server.programs()
        assert len(mine) == 2
        with ThreadPoolExecutor() as pool:
            running = pool.submit(load.run, ROUND_TRIPS, LIMIT_S)
            server.cut()
            await_that(partial(are_gone, server, mine, len(mine)))
            with pytest.raises(Unable, match=ADDRESS):
                running.result(LIMIT_S)


@pytest.fixture
def refusal(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Why the host cannot be measured."""
    monkeypatch.setenv("PATH", server.environment["PATH"])

    def refused() -> str:
        with contextlib.closing(Approach(ADDRESS, may_ask=False)) as way, pytest.raises(Unable) as caught:
            way.enter([])
        said = str(caught.value)
        assert said.startswith(f"{ADDRESS}: ") and said.isprintable()
        return said

    return refused


def test_an_unknown_host_key_is_said(server: SshServer, refusal: Callable[[], str]) -> None:
    server.known(None)
    assert "ssh does not know the host key yet: run ssh far once" in refusal()


def test_a_changed_host_key_is_said(server: SshServer, refusal: Callable[[], str]) -> None:
    server.known("other")
    assert "is not the one that ssh knows" in refusal()


def test_a_key_that_is_not_let_in_is_said(server: SshServer, refusal: Callable[[], str]) -> None:
    with server.key_of("other"):
        assert "the host refuses the keys and passwords that ssh offers (publickey)" in refusal()


def test_a_host_without_python_is_said(server: SshServer, refusal: Callable[[], str]) -> None:
    server.shell('#!/bin/sh\nexec sh -c "$(echo "$SSH_ORIGINAL_COMMAND" | sed s/python/python-is-gone/)"\n')
    assert "the host has no python3, which netconsole needs there: install python3" in refusal()


def test_a_login_that_ends_the_line_is_said(server: SshServer, refusal: Callable[[], str]) -> None:
    server.shell("#!/bin/sh\nkill -9 $PPID\n")
    assert "the ssh connection broke" in refusal()


COMMANDS = (
    ("snapshot", "--duration", "1s"),
    ("record", "-o", "never.nc"),
    ("doctor",),
    ("probes", "show", "kernel_drops", "--forecast"),
    ("calibrate", "--probe", "kernel_drops"),
    (
        "ping",
        "capture",
        "--role",
        "sender-host",
        "--inside",
        "vnet0",
        "--outside",
        "eth0",
        "--address",
        "192.0.2.1",
        "-o",
        "never.json",
    ),
)


@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
def test_every_command_says_in_one_line_why_it_cannot_with_exit_code_3(
    words: tuple[str, ...], server: SshServer, refusal: Callable[[], str], capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    server.shell("#!/bin/sh\necho This account is currently not available.\nexit 1\n")
    why = refusal()
    assert run([*words, "--host", ADDRESS]) == 3
    said = capsys.readouterr()
    assert said.out == "" and said.err.splitlines()[-1] == f"netconsole: {why}"
    assert "may not run programs on the host" in why and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("address", "says"), [
    ("ssh://far:9", "nothing answers at the host's ssh port"),
    ("ssh://no-such-host.invalid", "no such host: neither DNS nor ssh's configuration knows this name"),
])  # fmt: skip
def test_a_way_that_leads_nowhere_is_said_in_one_line_with_exit_code_3(
    address: str, says: str, server: SshServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", server.environment["PATH"])
    assert run(["doctor", "--host", address]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"netconsole: {address}: {says}")


def test_a_host_that_is_lost_while_it_is_measured_is_said_and_the_report_is_written(
    server: SshServer, tmp_path: Path
) -> None:
    output = tmp_path / "far.json"
    words = [*COMMAND, "snapshot", "--host", ADDRESS, *UNBOUNDED, *KERNEL_DROPS, "--duration", "10m", "-o", str(output)]
    with subprocess.Popen(words, env=server.environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(MEASURING in line for line in process.stderr)
        server.shell("#!/bin/sh\nexit 1\n")
        os.kill(victim(server, process.pid, "connection"), signal.SIGKILL)
        await_that(lambda: not server.programs())
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(LIMIT_S) == 3, said
    assert said.splitlines()[-1].startswith(f"netconsole: {ADDRESS}: "), said
    document = json.loads(output.read_text())
    assert document["probes"]["kernel_drops"]["status"] == "failed"
    lost = [one for one in document["incidents"] if one["cause"] == "collector-lost"]
    assert [one["ended"] for one in lost] == [None]  # others may be open too: packets of other tests that were dropped


def test_a_full_disk_and_a_tmp_that_nobody_may_write_do_not_matter(server: SshServer) -> None:
    tiny = "mount -t tmpfs -o size=4k,noexec full /tmp; cat /dev/zero >/tmp/full 2>/dev/null"
    readonly = "mount -t tmpfs -o ro,noexec none /var/tmp; mount -t tmpfs -o ro,noexec none /dev/shm"
    server.shell(f"#!/bin/sh\nexec unshare --mount sh -c '{tiny}; {readonly}; exec sh -c \"$SSH_ORIGINAL_COMMAND\"'\n")
    done = snapshot(server, *KERNEL_DROPS, "--duration", "500ms")
    assert done.returncode == 0, done.stderr
    probe = json.loads(done.stdout)["probes"]["kernel_drops"]
    assert probe["status"] == "attached", probe["why"]
