"""The question `command`: runs what only reads, and nothing else."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest

from netconsole.base.readers import read_toml
from netconsole.findings.rules import apart
from netconsole_collector.questions import command
from netconsole_collector.questions.known import BadQuestion, answer

ROOT = Path(__file__).parents[4]


def shipped() -> set[str]:
    """Every command that a finding, a cause or a verdict names, with a name in place of each label."""
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            found.update(one for one in value.get("commands", ()) if isinstance(one, str))
            for one in value.values():
                collect(one)
        elif isinstance(value, list):
            for one in value:
                collect(one)

    for path in [*ROOT.glob("probes/*/*/probe.toml"), *ROOT.glob("probes/common/*.toml")]:
        collect(read_toml(path))
    return {
        "".join(text + ("name" if name else "") for text, name, _, _ in string.Formatter().parse(one)) for one in found
    }


@pytest.mark.parametrize("line", sorted(shipped()))
def test_all_commands_that_are_advised_only_read(line: str) -> None:
    assert command.checked(line.removeprefix("host: "))


@pytest.mark.parametrize(
    "line",
    [
        "", "rm -rf /", "sh -c id", "ip link set dev eth0 down", "ip route add default via 1.2.3.4", "sysctl -w a=1",
        "sysctl a=1", "virsh destroy web", "virsh domif-setlink web vnet0 down", "ovs-appctl dpctl/del-flows",
        "nft flush ruleset", "nft -f /etc/passwd", "tc qdisc del dev eth0 root", "conntrack -D", "ss -K dst 1.2.3.4",
        "ovs-ofctl del-flows br0", "ovs-appctl exit", "ip netns exec blue sh", "iptables -F", "bpftool prog load a b",
        "nft 'list ruleset; flush ruleset'", "nft list chain inet f 'in; flush ruleset'", "nft list chain ip f -f/x",
        "ip 'unbalanced", "/bin/ip link", "ethtool -s eth0", "ip -batch file", "bridge fdb append x",
    ],
)  # fmt: skip
def test_what_may_change_something_is_refused(line: str) -> None:
    with pytest.raises(BadQuestion, match=r"^command: "):
        answer("command", {"netns": "host", "command": line})


@pytest.mark.parametrize("line", ["ip xfrm state", "ip -s xf st list"])
def test_no_key_gets_into_a_ticket(line: str) -> None:
    with pytest.raises(BadQuestion, match="it would show keys"):
        command.checked(line)
    assert command.checked(f"{line} nokeys")


def test_a_table_may_be_named_like_a_command() -> None:
    assert command.checked("nft -a list chain inet f add")[-2:] == ["f", "add"]


def test_what_it_says_is_the_answer() -> None:
    found = answer("command", {"netns": "host", "command": "sysctl net.ipv4.ip_forward net.ipv4.no_such"})
    assert "net.ipv4.ip_forward = " in found["output"] and "no_such" in found["output"]
    assert found["status"] != 0 and found["cut"] is False


def test_the_end_of_a_long_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT_BYTES", 10)
    found = answer("command", {"netns": "host", "command": "sysctl net.ipv4.ip_forward"})
    assert found["cut"] is True and len(found["output"]) == 10


def test_one_that_is_missing_there_is_said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(command, "PATH", "/nowhere")
    with pytest.raises(BadQuestion, match="command: nstat is not installed there"):
        answer("command", {"netns": "host", "command": "nstat -az"})
    assert capfd.readouterr().err == ""


def test_one_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "nstat"
    slow.write_text("#!/bin/sh\necho begun\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(command, "PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(command, "LIMIT_S", 0.3)
    found = answer("command", {"netns": "host", "command": "nstat -az"})
    assert (found["output"], found["status"]) == ("begun\n", -9)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ip route", ("host", "ip route")),
        ("ip netns exec blue ip route", ("blue", "ip route")),
        ("ip netns exec 'a b' ip route", ("a b", "ip route")),
        ('nsenter -n -t "$(lsns -rno PID 4026532301 | head -n 1)" ss -t', ("4026532301", "ss -t")),
    ],
)
def test_the_namespace_of_a_command_is_known(line: str, expected: tuple[str, str]) -> None:
    assert apart(line) == expected
